"""choice.py: the fast path against plain autograd, and Choices inside anybody's module.

Reference mixtures are written out here by hand, sum over e and k of a[e,k] O_k(x_e), with nothing of choice.py in them.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas import spaces
from proxnas.choice import NONE, Choice, Group, Row
from proxnas.methods import proximal
from proxnas.networks.cnn import Size, Stack, cell_network, channels_last
from proxnas.networks.nasbench201 import nasbench201_network
from proxnas.searching import Search
from proxnas.selection import keep_inputs, random_selection
from proxnas.spaces.base import Space
from proxnas.spaces.cnn import SOURCES, first_candidates
from proxnas.supernet import Supernet
from proxnas.types import Batch, Matrices

SIZE = Size(cells=3, channels=2, image_channels=3, classes=3)
EXACT = {"rtol": 0.0, "atol": 1e-9}
STACKS = [name for name in spaces.SPACES if name not in ("enas5", "rnn")]
"""Spaces whose cells are sums of Choices; tests of their own hold the others."""


# ---------------------------------------------------------------- the spaces


def supernet(space: Space) -> Supernet:
    size = Size(1, 2, 3, 3) if space.name == "nasbench201" else SIZE
    return Supernet(channels_last(space.search_network(size)), space.groups)


def images() -> Batch:
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
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
    h = module.stem(x)
    for part in module.body:
        h = run(part, [h])[-1] if hasattr(part, "nodes") else part(h)
    return module.classifier(module.head(h).mean((2, 3)))


def mixture_gradient(net: Supernet, A_bar: Matrices, batch: Batch, forward: Callable[..., Tensor]) -> Matrices:
    """dF/dA at A_bar by autograd through all candidates."""
    A = {name: a.clone().requires_grad_() for name, a in A_bar.items()}
    loss = net.criterion(forward(A, batch.x), batch.y)
    gradients = torch.autograd.grad(loss, list(A.values()), allow_unused=True)
    return {n: torch.zeros_like(a) if g is None else g for (n, a), g in zip(A.items(), gradients, strict=True)}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("weighted", [False, True], ids=["one", "a_k"])
@pytest.mark.parametrize("name", STACKS)
def test_fast_path_equals_autograd_through_the_mixture(name: str, weighted: bool) -> None:
    """Pruned rows, `none`, reduction cells and rows shared over cells included."""
    space = spaces.find(name)
    net, A_bar, batch = supernet(space), discrete(space, seed=1, weighted=weighted), images()
    net.use(A_bar, weighted=weighted)
    fast, _ = net.architecture_gradient(batch)
    exact = mixture_gradient(net, A_bar, batch, lambda A, x: plain_forward(net, A, x))
    for group in A_bar:
        torch.testing.assert_close(fast[group], exact[group], **EXACT)
        assert exact[group].abs().max() > 1e-3
        if space.groups[group].max_inputs:
            assert exact[group][A_bar[group].sum(1) == 0].abs().max() > 1e-4  # pruned rows have gradients, too


@pytest.mark.usefixtures("double")
def test_an_empty_node_scores_as_in_the_mixture() -> None:
    space = spaces.find("nasbench201")
    net, batch = supernet(space), images()
    A_bar = {"cell": torch.zeros(6, 5)}
    A_bar["cell"][torch.arange(6), torch.tensor([0, 0, 0, 3, 0, 1])] = 1.0  # nodes 1 and 2 are empty
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
    net, A_bar, batch = supernet(space), discrete(space, seed=2, weighted=weighted), images()
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
def test_the_discrete_network_of_the_genotype_is_the_network_that_was_trained(name: str, weighted: bool) -> None:
    """Output and weight gradients agree when the plain network is normalised like the search network."""
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
    for final_part, part in [*pairs, (final.stem, net.module.stem), (final.classifier, net.module.classifier)]:
        for a, b in zip(final_part.parameters(), part.parameters(), strict=True):
            assert (a.grad is None) == (b.grad is None)  # None: a node that nothing reads
            if a.grad is not None:
                torch.testing.assert_close(a.grad, b.grad, **EXACT)


def final_network(net: Supernet, space: Space, A_bar: Matrices) -> tuple[list[tuple[nn.Module, nn.Module]], nn.Module]:
    """The discrete network with the weights of the search network, and the pairs (its operation, candidate)."""
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
            chosen = [(c, k) for c in choices for k in A_bar[c.row.group][c.row.edge].nonzero().flatten().tolist()]
            pairs += zip(operations, (c.candidates[k] for c, k in chosen if c.names[k] != NONE), strict=True)
    for final_part, part in [*pairs, (final.stem, net.module.stem), (final.classifier, net.module.classifier)]:
        final_part.load_state_dict(part.state_dict())
    return pairs, final


@pytest.mark.parametrize("name", ["darts7", "darts8", "nasbench201"])
def test_the_weight_step_runs_the_returned_cell_and_nothing_else(
    name: str, make_search: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Completeness, counted with hooks: what NASP trains is what it returns."""
    search = make_search("--space", name, "--method", "nasp", "--explore", "0", "--arch-learning-rate", "0.1")
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
    """Count every run of a candidate as (group, row, operation); `none` only makes the zeros of an empty node."""
    for choice in net.choices.values():
        for op, module in zip(choice.names, choice.candidates, strict=True):
            if op == NONE:
                continue
            key = (*choice.row, op)
            module.register_forward_hook(lambda *_, key=key: ran.update([key]))


def expected_runs(search: Search) -> Counter[tuple[str, int, str]]:
    """(group, row, operation) of every edge of the genotype, once a cell of its kind."""
    runs: Counter[tuple[str, int, str]] = Counter()
    cells = {"normal": 1, "reduce": 2, "cell": 3}  # three cells, of which the last two halve; nasbench201: one a stage
    for group, cell in search.genotype().cells.items():
        rows = search.space.groups[group].nodes
        for node, edges in enumerate(cell.nodes):
            sources = [SOURCES[e] if search.config.space != "nasbench201" else i for i, e in enumerate(rows[node])]
            for edge in edges:
                if edge.op != NONE:
                    runs[group, rows[node][sources.index(edge.input)], edge.op] += cells[group]
    return runs


def test_memory_does_not_depend_on_the_number_of_candidates() -> None:
    saved = {number: saved_tensors(number) for number in (4, 12)}
    assert saved[4] == saved[12] > 0


def saved_tensors(candidates: int) -> int:
    """How many tensors autograd keeps in one architecture gradient, all edges being sep_conv_3x3."""
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
    # of the two active ones of a node one is run again: nothing is kept of it, and the other is what it leaves
    assert runs["sep_conv_3x3"] == cells * (edges + nodes)


# ------------------------------------------------------- anybody's module


class Model(nn.Module):
    """parts by name, and a forward given as a function of them and x."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.parts, x)


def linears(*names: str, share: str | None = None) -> Choice:
    return Choice({name: nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for name in names}, share)


def mix(choice: Choice, a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """sum_k a_k O_k, written out."""
    return sum(a_k * op(*args, **kwargs) for a_k, op in zip(a, choice.candidates, strict=True))  # type: ignore[return-value]


def check_module(
    model: Model,
    reference: Callable[[Mapping[str, Any], Matrices, Tensor], Tensor],
    selected: Mapping[str, list[float]],
    weighted: bool = True,
) -> Matrices:
    """The fast path of a model against autograd through its reference mixture; returns the gradient."""
    net = Supernet(model, criterion=nn.functional.cross_entropy)
    A_bar = {name: torch.tensor([row], dtype=torch.float64) for name, row in selected.items()}
    batch = Batch(torch.randn(5, 3), torch.randint(3, (5,)))
    net.use(A_bar, weighted=weighted)
    fast, _ = net.architecture_gradient(batch)
    exact = mixture_gradient(net, A_bar, batch, lambda A, x: reference(model.parts, A, x))
    assert set(fast) == set(exact)
    for name in exact:
        torch.testing.assert_close(fast[name], exact[name], **EXACT)
    return fast


in_double = pytest.mark.usefixtures("double")


@in_double
def test_choices_in_a_row_and_a_plain_layer_between() -> None:
    model = Model(
        lambda p, x: p["second"](p["between"](p["first"](x))) + x,
        first=linears("a", "b"),
        between=nn.Linear(3, 3),
        second=linears("c", "d", "e"),
    )

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        h = p["between"](mix(p["first"], A["parts.first"][0], x))
        return mix(p["second"], A["parts.second"][0], h) + x

    dA = check_module(model, reference, {"parts.first": [0, 0.7], "parts.second": [0.3, 0, 0]})
    assert all((matrix != 0).all() for matrix in dA.values())


@in_double
def test_several_entries_of_a_row_may_be_on() -> None:
    model = Model(lambda p, x: p["c"](x), c=linears("a", "b", "d"))
    check_module(model, lambda p, A, x: mix(p["c"], A["parts.c"][0], x), {"parts.c": [0.3, 0.0, 0.9]})


@in_double
@pytest.mark.parametrize("outer", [[1.0, 0.0], [0.0, 1.0]], ids=["inner used", "inner unused"])
def test_nested_choices(outer: list[float]) -> None:
    """The inner Choice is the outer one's candidate itself, so both put out one tensor."""
    model = Model(lambda p, x: p["outer"](x), outer=Choice({"deep": linears("a", "b"), "flat": nn.Linear(3, 3)}))
    inner = "parts.outer.candidates.0"

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        deep, flat = p["outer"].candidates
        a = A["parts.outer"][0]
        return a[0] * mix(deep, A[inner][0], x) + a[1] * flat(x)

    dA = check_module(model, reference, {"parts.outer": outer, inner: [0.0, 1.0]}, weighted=False)
    assert (dA[inner] != 0).all() == (outer[0] == 1.0)


@in_double
def test_a_nested_choice_with_values() -> None:
    deep = nn.Sequential(nn.Linear(3, 3), linears("a", "b"), nn.Tanh())
    model = Model(lambda p, x: p["outer"](x), outer=Choice({"flat": nn.Linear(3, 3), "deep": deep}))
    inner = "parts.outer.candidates.1.1"

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        flat, (first, choice, last) = p["outer"].candidates
        a = A["parts.outer"][0]
        return a[0] * flat(x) + a[1] * last(mix(choice, A[inner][0], first(x)))

    check_module(model, reference, {"parts.outer": [0, 0.6], inner: [0.4, 0]})


@in_double
def test_shared_choices_follow_one_row_and_their_gradients_add_up() -> None:
    model = Model(
        lambda p, x: p["second"](p["first"](x)),
        first=linears("a", "b", share="both"),
        second=linears("a", "b", share="both"),
    )

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        return mix(p["second"], A["both"][0], mix(p["first"], A["both"][0], x))

    check_module(model, reference, {"both": [0, 0.8]})


@in_double
@pytest.mark.parametrize("row", [[1.0, 0.0], [0.0, 1.0]])
def test_one_choice_called_several_times(row: list[float]) -> None:
    model = Model(
        lambda p, x: p["c"](p["c"](x)) + p["c"](x), c=Choice({"id": nn.Identity(), "linear": nn.Linear(3, 3)})
    )

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        a = A["parts.c"][0]
        return mix(p["c"], a, mix(p["c"], a, x)) + mix(p["c"], a, x)

    check_module(model, reference, {"parts.c": row})


class Gated(nn.Linear):
    """Wants a keyword."""

    def forward(self, x: Tensor, *, gate: Tensor, sign: float = 1.0) -> Tensor:
        return super().forward(x) * gate * sign


class TakesGate(nn.Module):
    """Returns one of its tensors as it is."""

    def forward(self, x: Tensor, *, gate: Tensor, sign: float = 1.0) -> Tensor:
        return gate


@in_double
@pytest.mark.parametrize("row", [[1.0, 0.0], [0.0, 1.0]], ids=["computes", "returns its keyword"])
def test_keyword_arguments(row: list[float]) -> None:
    def with_choice(p: Any, x: Tensor) -> Tensor:
        gate = p["gate"](x)
        return p["c"](x, gate=gate, sign=-1.0) + 2 * gate  # gate is read by others, too

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        gate = p["gate"](x)
        return mix(p["c"], A["parts.c"][0], x, gate=gate, sign=-1.0) + 2 * gate

    choice = Choice({"gated": Gated(3, 3), "gate": TakesGate()})
    check_module(Model(with_choice, c=choice, gate=nn.Linear(3, 3)), reference, {"parts.c": row}, weighted=False)


@in_double
def test_calls_that_differ_in_keywords_only_do_not_share_pure_candidates() -> None:
    class Power(nn.Module):
        pure_key = "power"

        def forward(self, x: Tensor, *, n: int) -> Tensor:
            return x**n

    class Scale(nn.Linear):
        def forward(self, x: Tensor, *, n: int) -> Tensor:
            return super().forward(x) * n

    choices = {name: Choice({"scale": Scale(3, 3), "power": Power()}) for name in ("two", "three")}
    model = Model(lambda p, x: p["two"](x, n=2) + p["three"](x, n=3), **choices)

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        return mix(p["two"], A["parts.two"][0], x, n=2) + mix(p["three"], A["parts.three"][0], x, n=3)

    check_module(model, reference, {"parts.two": [1.0, 0], "parts.three": [1.0, 0]})


@in_double
@pytest.mark.parametrize("weighted", [False, True])
def test_a_node_that_is_literally_its_source(weighted: bool) -> None:
    """The gradient at an identity's output is not the gradient of all that reads the source."""
    choice = Choice({"skip": nn.Identity(), "linear": nn.Linear(3, 3)})
    model = Model(lambda p, x: p["c"](h := p["before"](x)) + 3 * h, before=nn.Linear(3, 3), c=choice)

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        h = p["before"](x)
        return mix(p["c"], A["parts.c"][0], h) + 3 * h

    check_module(model, reference, {"parts.c": [1.0, 0.0]}, weighted=weighted)


@in_double
def test_an_identity_of_the_images_themselves() -> None:
    """Nothing before it needs a gradient, and the batch must not begin to."""
    model = Model(lambda p, x: p["c"](x) + x, c=Choice({"skip": nn.Identity(), "linear": nn.Linear(3, 3)}))
    net = Supernet(model)
    batch = Batch(torch.randn(4, 3), torch.randint(3, (4,)))
    net.use({"parts.c": torch.tensor([[1.0, 0.0]])})
    dA, _ = net.architecture_gradient(batch)
    assert (dA["parts.c"] != 0).all() and not batch.x.requires_grad
    check_module(model, lambda p, A, x: mix(p["c"], A["parts.c"][0], x) + x, {"parts.c": [1.0, 0.0]}, weighted=False)


@in_double
def test_a_constant_candidate_keeps_its_buffer_as_it_is() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("value", torch.randn(5, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.value

    choice = Choice({"constant": Constant(), "linear": nn.Linear(3, 3)})
    model = Model(lambda p, x: p["c"](x) + x, c=choice)
    check_module(model, lambda p, A, x: mix(p["c"], A["parts.c"][0], x) + x, {"parts.c": [1.0, 0.0]}, weighted=False)
    assert not choice.candidates[0].value.requires_grad


@in_double
def test_a_choice_that_the_loss_does_not_use_scores_zero() -> None:
    def forward(p: Any, x: Tensor) -> Tensor:
        p["unused"](x)
        return p["used"](x)

    model = Model(forward, used=linears("a", "b"), unused=linears("a", "b"), never_called=linears("a", "b"))
    selected = {"parts.used": [1.0, 0], "parts.unused": [1.0, 0], "parts.never_called": [1.0, 0]}
    dA = check_module(model, lambda p, A, x: mix(p["used"], A["parts.used"][0], x), selected)
    assert dA["parts.unused"].tolist() == dA["parts.never_called"].tolist() == [[0.0, 0.0]]


@in_double
def test_none_in_a_module_is_run_by_nobody_and_scores_zero() -> None:
    choice = Choice({"linear": nn.Linear(3, 3), NONE: nn.Threshold(1e9, 0.0)})
    model = Model(lambda p, x: p["c"](x) + x, c=choice)
    for row in ([1.0, 0.0], [0.0, 1.0]):
        dA = check_module(model, lambda p, A, x: mix(p["c"], A["parts.c"][0], x) + x, {"parts.c": row}, weighted=False)
        assert dA["parts.c"][0, 1] == 0 != dA["parts.c"][0, 0]


def test_a_pruned_choice_without_none_is_zero_in_the_shape_of_its_candidates() -> None:
    model = Model(lambda p, x: p["c"](x), c=Choice({"wide": nn.Linear(3, 7)}))
    net = Supernet(model)
    net.use({"parts.c": torch.tensor([[0.0]])})
    assert torch.equal(net(torch.randn(2, 3)), torch.zeros(2, 7))


def test_a_choice_of_its_own_runs_its_first_candidate() -> None:
    choice = Choice({"clip": nn.Hardtanh(), "identity": nn.Identity()})
    assert choice(torch.tensor([3.0])).item() == 1.0


def test_a_choice_runs_in_inference_mode() -> None:
    with torch.inference_mode():
        assert linears("a", "b")(torch.randn(2, 3)).shape == (2, 3)


def test_use_runs_the_selected_candidate_times_its_value_if_asked() -> None:
    net = Supernet(Model(lambda p, x: p["c"](x), c=Choice({"clip": nn.Hardtanh(), "identity": nn.Identity()})))
    x = torch.tensor([[4.0]])
    net.use({"parts.c": torch.tensor([[0.0, 0.25]])})
    assert net(x).item() == 4.0
    net.use({"parts.c": torch.tensor([[0.0, 0.25]])}, weighted=True)
    assert net(x).item() == 1.0


# --------------------------------------------------------- what is refused


def gradient_of(forward: Callable[..., Tensor], row: list[float], **parts: nn.Module) -> None:
    net = Supernet(Model(forward, **parts))
    net.use({"parts.c": torch.tensor([row])})
    net.architecture_gradient(Batch(torch.randn(4, 3), torch.randint(3, (4,))))


@pytest.mark.parametrize("row", [[1.0, 0.0], [0.0, 1.0]], ids=["selected", "only scored"])
@pytest.mark.parametrize("by_keyword", [False, True], ids=["positional", "keyword"])
def test_a_candidate_that_changes_its_input_is_refused(row: list[float], by_keyword: bool) -> None:
    choice = Choice({"relu": nn.ReLU(inplace=True), "fine": nn.Tanh()})
    call: Callable[..., Tensor] = lambda p, x: p["c"](input=x + 0) if by_keyword else p["c"](x + 0)  # noqa: E731
    with pytest.raises(RuntimeError, match=r"input of a Choice was changed in place .*inplace=True"):
        gradient_of(lambda p, x: p["last"](call(p, x)), row, c=choice, last=nn.Linear(3, 3))


def test_an_input_changed_after_the_choice_is_refused() -> None:
    def forward(p: Any, x: Tensor) -> Tensor:
        h = x + 0
        y = p["c"](h)
        h.add_(1.0)
        return y

    with pytest.raises(RuntimeError, match="input of a Choice was changed in place"):
        gradient_of(forward, [1.0, 0.0], c=Choice({"tanh": nn.Tanh(), "id": nn.Linear(3, 3)}))


def test_an_output_changed_in_place_is_refused() -> None:
    with pytest.raises(RuntimeError, match="output of a Choice was changed in place"):
        gradient_of(lambda p, x: p["c"](x).mul_(2.0), [0.0, 1.0], c=linears("a", "b"))


def test_candidates_of_different_shapes_are_refused() -> None:
    choice = Choice({"all": nn.Tanh(), "mean": nn.AdaptiveAvgPool1d(1)})
    with pytest.raises(RuntimeError, match=r"'mean' of Row.*parts.c.* puts out \(4, 1\), the selected one \(4, 3\)"):
        gradient_of(lambda p, x: p["c"](x), [1.0, 0.0], c=choice)


def test_choices_that_share_a_row_must_have_the_same_candidates() -> None:
    model = nn.Sequential(linears("a", "b", share="s"), linears("a", "c", share="s"))
    with pytest.raises(ValueError, match=r"Choice '1' shares row 's' but has the candidates a, c instead of a, b"):
        Supernet(model)


def test_a_choice_must_fit_the_group_it_names() -> None:
    with pytest.raises(ValueError, match="instead of x, y"):
        Supernet(Choice({"a": nn.Identity()}, share=Row("g", 0)), {"g": Group(("x", "y"))})


def test_a_choice_without_candidates_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one candidate"):
        Choice({})


def test_a_module_without_a_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="no Choice"):
        Supernet(nn.Linear(3, 3))


def test_an_error_in_the_forward_pass_leaves_no_tape_behind() -> None:
    net = Supernet(linears("a", "b"))
    with pytest.raises(RuntimeError):
        net.architecture_gradient(Batch(torch.randn(4, 5), torch.zeros(4, dtype=torch.long)))
    assert net.route.tape is None


def test_random_selection_of_every_space_runs() -> None:
    """A smoke test in float32 and without channels_last, over several draws."""
    for name in ("darts7", "nasbench201"):
        space = spaces.find(name)
        net = supernet(space)
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            net.use({n: random_selection(group, generator) for n, group in space.groups.items()})
            assert net(torch.randn(2, 3, 8, 8)).shape == (2, 3)
