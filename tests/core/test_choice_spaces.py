"""The fast path in the spaces: its gradient against plain autograd, what runs, and what is kept."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import NONE
from proxnas.core.selection import keep_inputs
from proxnas.core.space import Space
from proxnas.core.supernet import Supernet
from proxnas.domains import spaces
from proxnas.domains.images.networks.chain import Chain
from proxnas.domains.images.networks.cnn import Size, Stack, cell_network
from proxnas.domains.images.networks.mobile import Mobile
from proxnas.domains.images.networks.nasbench201 import nasbench201_network
from proxnas.domains.images.spaces.cnn import SOURCES, first_candidates
from proxnas.methods import proximal
from proxnas.searching.job import Search
from support.searches import SIZE, mixture_gradient, supernet

EXACT = {"rtol": 0.0, "atol": 1e-9}
STACKS = [name for name in spaces.SPACES if name not in ("enas5", "rnn", "genet")]
"""Spaces whose cells are sums of Choices; tests of their own hold the others."""


def images(space: str = "") -> Batch:
    """Two; mobile halves often, and batch statistics of two pixels say nothing."""
    side = 32 if space == "mobile" else 8
    x = torch.randn(2, 3, side, side, dtype=torch.float64)
    x = x.contiguous(memory_format=torch.channels_last)
    return Batch(x, torch.tensor([0, 2]))


def discrete(space: Space, seed: int, weighted: bool = False) -> Matrices:
    """A random A_bar: pruned rows, `none` where the space has it."""
    generator = torch.Generator().manual_seed(seed)
    A_bar = {}
    for name, group in space.groups.items():
        A = torch.rand(group.shape, generator=generator, dtype=torch.float64)
        chosen = torch.zeros_like(A).scatter_(-1, A.argmax(-1, keepdim=True), 1.0)
        A_bar[name] = keep_inputs(A, chosen, group) * (A if weighted else 1.0)
    return A_bar


def nodes_of(cell: nn.Module) -> list[tuple[nn.Module, ...]]:
    """The parts of each node: two sides in enas5, else the node itself."""
    if hasattr(cell, "sides"):
        return list(zip(cell.sides[::2], cell.sides[1::2], strict=True))
    return [(node,) for node in cell.nodes]


def plain_forward(net: Supernet, A: Matrices, x: Tensor, skip_zeros: bool = False) -> Tensor:
    """The network of the mixture, its cells walked by hand."""

    def node(choices: Sequence[Choice], states: Sequence[Tensor]) -> Tensor:
        terms = [
            A[choice.row.group][choice.row.edge, k] * op(x)
            for choice, x in zip(choices, states, strict=True)
            for k, op in enumerate(choice.candidates)
            if not skip_zeros or A[choice.row.group][choice.row.edge, k] != 0
        ]
        return torch.stack(terms).sum(0) if terms else torch.zeros_like(states[0])

    def run(cell: nn.Module, states: list[Tensor]) -> list[Tensor]:
        for parts in nodes_of(cell):
            states.append(sum(node(part.choices, states) for part in parts))
        return states

    module = net.module
    if isinstance(module, Stack):
        before_last, last = module.stem(x)
        for cell in module.cells:
            states = run(cell, cell.preprocess(before_last, last))
            before_last, last = last, torch.cat(states[2:], dim=1)
        return module.classifier(last.mean((2, 3)))
    if isinstance(module, Chain | Mobile):
        x = module.stem(x) if isinstance(module, Mobile) else x
        for choice in module.blocks:
            x = node([choice], [x])
        x = module.head(x) if isinstance(module, Mobile) else x
        return module.classifier(x.mean((2, 3)))
    h = module.stem(x)
    for part in module.body:
        h = run(part, [h])[-1] if hasattr(part, "nodes") else part(h)
    return module.classifier(module.head(h).mean((2, 3)))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("weighted", [False, True], ids=["one", "a_k"])
@pytest.mark.parametrize("name", STACKS)
def test_fast_path_equals_autograd_through_the_mixture(name: str, weighted: bool) -> None:
    """Pruned rows, `none`, reduction cells and rows shared over cells included."""
    space = spaces.find(name)
    net, A_bar, batch = supernet(space), discrete(space, seed=1, weighted=weighted), images(name)
    net.use(A_bar, weighted=weighted)
    fast, _ = net.architecture_gradient(batch)
    exact = mixture_gradient(net, A_bar, batch, lambda A, x: plain_forward(net, A, x))
    for group in A_bar:
        torch.testing.assert_close(fast[group], exact[group], **EXACT)
        assert exact[group].abs().max() > 1e-3
        pruned = A_bar[group].sum(1) == 0
        if space.groups[group].max_inputs and pruned.any():
            assert exact[group][pruned].abs().max() > 1e-4  # pruned rows have gradients, too


@pytest.mark.usefixtures("double")
def test_an_empty_node_scores_as_in_the_mixture() -> None:
    space = spaces.find("nasbench201")
    net, batch = supernet(space), images()
    A_bar = {"cell": torch.zeros(6, 5)}
    A_bar["cell"][torch.arange(6), torch.tensor([0, 0, 0, 3, 0, 1])] = (
        1.0  # nodes 1 and 2 are empty
    )
    net.use(A_bar)
    fast, _ = net.architecture_gradient(batch)
    exact = mixture_gradient(net, A_bar, batch, lambda A, x: plain_forward(net, A, x))
    torch.testing.assert_close(fast["cell"], exact["cell"], **EXACT)
    assert fast["cell"][1].abs().max() > 0 and fast["cell"][:, 0].abs().max() == 0


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", ["darts8", "nasbench201"])
def test_weight_gradients_asked_for_are_those_of_the_loss(name: str) -> None:
    space = spaces.find(name)
    net, batch = supernet(space), images()
    net.use(discrete(space, seed=3))
    weights = list(net.module.parameters())
    _, fast = net.architecture_gradient(batch, weights)
    plain = torch.autograd.grad(net.loss(batch)[0], weights, allow_unused=True)
    for a, b in zip(fast, plain, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("weighted", [False, True], ids=["one", "a_k"])
@pytest.mark.parametrize("name", STACKS)
def test_weight_gradients_touch_the_selected_operations_only(name: str, weighted: bool) -> None:
    space = spaces.find(name)
    net, A_bar, batch = supernet(space), discrete(space, seed=2, weighted=weighted), images(name)
    net.use(A_bar, weighted=weighted)
    weights = list(net.module.parameters())
    ours = torch.autograd.grad(net.loss(batch)[0], weights, allow_unused=True)
    plain_loss = net.criterion(plain_forward(net, A_bar, batch.x, skip_zeros=True), batch.y)
    plain = torch.autograd.grad(plain_loss, weights, allow_unused=True)
    assert any(g is None for g in plain)
    for a, b in zip(ours, plain, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("weighted", [False, True], ids=["one", "a_k"])
@pytest.mark.parametrize("name", ["darts8", "nasbench201", "enas5"])
def test_the_discrete_network_of_the_genotype_is_the_network_that_was_trained(
    name: str, weighted: bool
) -> None:
    """Output and weight gradients agree when the plain network is normalised like the search
    network."""
    space, batch = spaces.find(name), images()
    net = supernet(space)
    A_bar = discrete(space, seed=4, weighted=weighted)
    net.use(A_bar, weighted=weighted)
    pairs, final = final_network(net, space, A_bar)
    loss, output = net.loss(batch)
    torch.testing.assert_close(final(batch.x), output, **EXACT)
    loss.backward()
    net.criterion(final(batch.x), batch.y).backward()
    assert sum(len(list(op.parameters())) for op, _ in pairs) > 0
    for final_part, part in [
        *pairs,
        (final.stem, net.module.stem),
        (final.classifier, net.module.classifier),
    ]:
        for a, b in zip(final_part.parameters(), part.parameters(), strict=True):
            assert (a.grad is None) == (b.grad is None)  # None: a node that nothing reads
            if a.grad is not None:
                torch.testing.assert_close(a.grad, b.grad, **EXACT)


def final_network(
    net: Supernet, space: Space, A_bar: Matrices
) -> tuple[list[tuple[nn.Module, nn.Module]], nn.Module]:
    """The discrete network with the weights of the search network, and the pairs (its operation,
    candidate)."""
    genotype, pairs = space.genotype(A_bar), []
    if isinstance(net.module, Stack):
        final = cell_network(genotype, SIZE, searched=True)
        cells = list(zip(final.cells, net.module.cells, strict=True))
        pairs += [(f.preprocess, s.preprocess) for f, s in cells]
    else:
        final = nasbench201_network(genotype, Size(1, 2, 3, 3), searched=True)
        parts = list(zip(final.body, net.module.body, strict=True))
        cells = [(f, s) for f, s in parts if hasattr(s, "nodes")]
        pairs += [(f, s) for f, s in parts if not hasattr(s, "nodes")]
    for final_cell, cell in cells:
        for operations, parts in zip(final_cell.operations, nodes_of(cell), strict=True):
            choices = [c for part in parts for c in part.choices]
            chosen = [
                (c, k)
                for c in choices
                for k in A_bar[c.row.group][c.row.edge].nonzero().flatten().tolist()
            ]
            pairs += zip(
                operations, (c.candidates[k] for c, k in chosen if c.names[k] != NONE), strict=True
            )
    for final_part, part in [
        *pairs,
        (final.stem, net.module.stem),
        (final.classifier, net.module.classifier),
    ]:
        final_part.load_state_dict(part.state_dict())
    return pairs, final


@pytest.mark.parametrize("name", ["darts7", "darts8", "nasbench201"])
def test_the_weight_step_runs_the_returned_cell_and_nothing_else(
    name: str, make_search: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Completeness, counted with hooks: what NASP trains is what it returns."""
    search = make_search(
        "--space", name, "--method", "nasp", "--explore", "0", "--arch-learning-rate", "0.1"
    )
    ran: Counter[tuple[str, int, str]] = Counter()
    watch_candidates(search.net, ran)
    plain_step = proximal.weight_step

    def watched_step(*args: Any) -> Any:
        ran.clear()
        result = plain_step(*args)
        in_weight_step.append(Counter(ran))
        return result

    in_weight_step: list[Counter[tuple[str, int, str]]] = []
    monkeypatch.setattr(proximal, "weight_step", watched_step)
    for _ in range(3):
        search.method.step()
        assert in_weight_step[-1] == expected_runs(search)


def watch_candidates(net: Supernet, ran: Counter[tuple[str, int, str]]) -> None:
    """Count every run of a candidate as (group, row, operation); `none` only makes the zeros of an
    empty node."""
    for choice in net.choices.values():
        for op, module in zip(choice.names, choice.candidates, strict=True):
            if op == NONE:
                continue
            key = (*choice.row, op)
            module.register_forward_hook(lambda *_, key=key: ran.update([key]))


def expected_runs(search: Search) -> Counter[tuple[str, int, str]]:
    """(group, row, operation) of every edge of the genotype, once a cell of its kind."""
    runs: Counter[tuple[str, int, str]] = Counter()
    cells = {
        "normal": 1,
        "reduce": 2,
        "cell": 3,
    }  # three cells, of which the last two halve; nasbench201: one a stage
    for group, cell in search.genotype().cells.items():
        rows = search.space.groups[group].nodes
        for node, edges in enumerate(cell.nodes):
            sources = [
                SOURCES[e] if search.config.space != "nasbench201" else i
                for i, e in enumerate(rows[node])
            ]
            for edge in edges:
                if edge.op != NONE:
                    runs[group, rows[node][sources.index(edge.input)], edge.op] += cells[group]
    return runs


def test_memory_does_not_depend_on_the_number_of_candidates() -> None:
    saved = {number: saved_tensors(number) for number in (4, 12)}
    assert saved[4] == saved[12] > 0


def saved_tensors(candidates: int) -> int:
    """How many tensors autograd keeps in one architecture gradient, all edges being
    sep_conv_3x3."""
    space, kept = first_candidates(candidates), []
    net = Supernet(space.search_network(SIZE), space.groups)
    A = {name: torch.zeros(group.shape) for name, group in space.groups.items()}
    for name, group in space.groups.items():
        A[name][:, group.candidates.index("sep_conv_3x3")] = 1.0
        A[name] = keep_inputs(A[name], A[name], group)
    net.use(A)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(1) or x, lambda x: x):
        net.architecture_gradient(Batch(torch.randn(2, 3, 8, 8), torch.tensor([0, 1])))
    return len(kept)


def test_nothing_of_an_architecture_gradient_stays_alive() -> None:
    space = spaces.find("nasbench201")
    net, batch = supernet(space), Batch(torch.randn(2, 3, 8, 8), torch.tensor([0, 1]))
    net.use(discrete(space, seed=0))

    def alive() -> int:
        net.architecture_gradient(batch)
        gc.collect()
        return sum(type(x) is Tensor for x in gc.get_objects())

    assert alive() == alive()


def test_pooling_runs_once_a_source_and_other_candidates_once_an_edge() -> None:
    space = spaces.find("darts8")
    net = supernet(space)
    A_bar = {name: torch.zeros(group.shape) for name, group in space.groups.items()}
    for name, group in space.groups.items():
        A_bar[name][:, group.candidates.index("sep_conv_3x3")] = 1.0
        A_bar[name] = keep_inputs(A_bar[name], A_bar[name], group)
    ran: Counter[tuple[str, int, str]] = Counter()
    watch_candidates(net, ran)
    net.use(A_bar)
    net.architecture_gradient(Batch(torch.randn(2, 3, 8, 8), torch.tensor([0, 1])))
    runs = Counter({op: sum(n for (_, _, o), n in ran.items() if o == op) for op in space.normal})
    cells, edges, sources, nodes = 3, 14, 5, 4
    assert runs["max_pool_3x3"] == runs["avg_pool_3x3"] == cells * sources
    assert runs["sep_conv_5x5"] == runs["dil_conv_3x3"] == runs["skip_connect"] == cells * edges
    # of the two active ones of a node one is run again: nothing is kept of it, and the other is
    # what it leaves
    assert runs["sep_conv_3x3"] == cells * (edges + nodes)
