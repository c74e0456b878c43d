"""The space of Genetic CNN: how bits become networks, and that search and final network agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import GENET_STAGES
from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.common.types import Batch, Matrices
from proxnas.core.selection import random_selection
from proxnas.core.size.budget import Budget
from proxnas.core.size.complexity import parameters
from proxnas.core.supernet import Supernet
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.genet import connected_nodes, ends
from proxnas.domains.images.spaces.genet import GROUPS, GenetSpace, SearchStage
from proxnas.report.cell import cell_svg, cell_text
from proxnas.searching.job import Search
from proxnas.searching.start import selecting
from support.searches import mixture_gradient

SIZE = Size(cells=1, channels=2, image_channels=3, classes=3)


def drawn(seed: int) -> Matrices:
    generator = torch.Generator().manual_seed(seed)
    return {name: random_selection(group, generator) for name, group in GROUPS.items()}


def bits(text: str) -> Matrices:
    """0-10 | 0-00-000 | ...: as the paper writes them, a stage after the other."""
    found = {}
    for (name, group), part in zip(GROUPS.items(), text.split("|"), strict=True):
        wanted = [int(bit) for bit in part if bit in "01"]
        found[name] = torch.eye(2, dtype=torch.float64)[wanted].reshape(group.shape)
    return found


def test_there_are_nineteen_bits() -> None:
    assert sum(group.shape[0] for group in GROUPS.values()) == 19
    assert all(group.shape[1] == 2 for group in GROUPS.values())


def test_defaults_and_nodes_without_connections() -> None:
    """By hand: 0 - 2, node 1 alone, node 3 reads 2."""
    read = [[], [], [(0, 1.0)], [(2, 1.0)]]
    assert connected_nodes(read) == [True, False, True, True] and ends(read) == [3]
    assert ends([[], [], []]) == [] and ends([[], [(0, 1.0)], [(0, 1.0)]]) == [1, 2]


def conv_parameters(C_in: int, C: int) -> int:
    return 9 * C_in * C + 2 * C


def test_parameters_by_hand() -> None:
    """Stage 1: nodes 0 and 2; stage 2: nothing; stage 3: all five nodes in a row."""
    genotype = GenetSpace().genotype(bits("0-10|0-00-000|1-01-001-0001"))
    network = GenetSpace().network(genotype, SIZE)
    expected = conv_parameters(3, 2) + 3 * conv_parameters(2, 2)
    expected += conv_parameters(2, 4) + conv_parameters(4, 4)
    expected += conv_parameters(4, 8) + 6 * conv_parameters(8, 8) + 8 * 3 + 3
    assert parameters(network) == expected


def test_a_genotype_is_written_read_shown_and_selected_again() -> None:
    A_bar = drawn(3)
    genotype = GenetSpace().genotype(A_bar)
    assert Genotype.from_json(genotype.to_json()) == genotype
    again = selecting(genotype, GenetSpace())
    assert again is not None and all(torch.equal(again[n], A_bar[n]) for n in A_bar)
    assert "stage 3" in cell_text(genotype) and cell_svg(genotype).startswith("<svg")


@pytest.mark.parametrize("fault", ["nodes", "concat", "edges"])
def test_a_genotype_that_is_none_is_refused(fault: str) -> None:
    cells = dict(GenetSpace().genotype(drawn(0)).cells)
    cell = cells["stage2"]
    nodes, concat = cell.nodes, cell.concat
    if fault == "nodes":
        nodes, concat = nodes[:-1], concat[:-1]
    elif fault == "concat":
        concat = concat[1:]
    else:
        nodes = (*nodes[:-1], nodes[-1][:-1])
    with pytest.raises(InputError, match="stage2"):
        Genotype("genet", cells | {"stage2": type(cell)(nodes, concat)})


def state(network: nn.Module, net: Supernet, A_bar: Matrices) -> None:
    """The weights of a search network in the discrete one."""
    searched = [m for m in net.module.modules() if isinstance(m, SearchStage)]
    found = [m for m in network.get_submodule("stages").children() if hasattr(m, "ends")]
    for mine, theirs in zip(found, searched, strict=True):
        mine.get_submodule("begin").load_state_dict(theirs.begin.state_dict())
        mine.get_submodule("end").load_state_dict(theirs.end.state_dict())
        for name, node in mine.get_submodule("nodes").named_children():
            node.load_state_dict(theirs.nodes[int(name)].state_dict())
    network.get_submodule("classifier").load_state_dict(
        net.module.get_submodule("classifier").state_dict()
    )


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("seed", range(6))
def test_the_search_network_is_the_discrete_one(seed: int) -> None:
    net = Supernet(GenetSpace().search_network(SIZE), GROUPS)
    A_bar = drawn(seed) if seed else bits("0-00|0-00-000|0-00-000-0000")
    network = GenetSpace().network(GenetSpace().genotype(A_bar), SIZE, searched=True)
    state(network, net, A_bar)
    net.use(A_bar)
    x = torch.randn(4, 3, 8, 8)
    assert torch.allclose(net(x), network(x), atol=1e-9)


@pytest.mark.usefixtures("double")
def test_the_fast_gradient_is_that_of_autograd() -> None:
    """Where connections stay as they are: the defaults go by what is selected."""
    net = Supernet(GenetSpace().search_network(SIZE), GROUPS)
    A_bar = drawn(1)
    batch = Batch(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]))

    def whole(A: Matrices, x: Tensor) -> Tensor:
        for part in net.module.get_submodule("stages").children():
            x = walked(part, A, A_bar, x) if isinstance(part, SearchStage) else part(x)
        logits: Tensor = net.module.get_submodule("classifier")(x.mean((2, 3)))
        return logits

    expected = mixture_gradient(net, A_bar, batch, whole)
    net.use(A_bar)
    found, _ = net.architecture_gradient(batch)
    for name in GROUPS:
        assert torch.allclose(found[name][:, 1], expected[name][:, 1], atol=1e-9)


def walked(stage: SearchStage, A: Matrices, A_bar: Matrices, x: Tensor) -> Tensor:
    """A stage by hand, with factors."""
    begin = stage.begin(x)
    states, read = [stage.nodes[0](begin)], [[]]
    group = stage.sums[0].choices[0].row.group  # type: ignore[union-attr,index]
    for j, rows in enumerate(GROUPS[group].nodes, 1):
        read.append([(i, 1.0) for i, e in enumerate(rows) if A_bar[group][e, 1]])
        total = sum(A[group][e, 1] * states[i] for i, e in enumerate(rows))
        states.append(stage.nodes[j](total if read[-1] else begin + total))
    last = ends(read)
    y: Tensor = stage.end(sum(states[j] for j in last) if last else begin)
    return y


@pytest.mark.parametrize("method", ["nasp", "darts-1st", "gdas", "genet", "evolution"])
def test_methods_search_in_it(method: str, make_search: Callable[..., Search]) -> None:
    few = ("--evaluations", "3") if method in ("genet", "evolution") else ()
    search = make_search("--method", method, "--space", "genet", *few)
    for _ in range(2):
        search.step()
    genotype = search.genotype()
    assert [len(cell.nodes) for cell in genotype.cells.values()] == [
        stage.nodes - 1 for stage in GENET_STAGES
    ]


def sizes_of(make_search: Callable[..., Search], flag: str, limit: str) -> tuple[Budget, Search]:
    search = make_search("--space", "genet", "--channels", "2", flag, limit)
    assert search.budget is not None
    return search.budget, search


@pytest.mark.parametrize("flag", ["--max-params", "--max-flops"])
def test_sizes_are_those_of_the_networks(flag: str, make_search: Callable[..., Search]) -> None:
    budget, search = sizes_of(make_search, flag, "1G")
    count = parameters if flag == "--max-params" else search.task.multiply_adds
    for A_bar in [*map(drawn, range(8)), bits("0-00|0-00-000|0-00-000-0000")]:
        assert budget.sizes(A_bar) == count(search.task.final_network(search.space.genotype(A_bar)))
    full = bits("1-11|1-11-111|1-11-111-1111")
    assert (budget.sizes.smallest, budget.sizes.largest) == (
        budget.sizes(A_bar),
        budget.sizes(full),
    )


@pytest.mark.parametrize("seed", range(3))
def test_projection_is_the_best_of_all_networks(
    seed: int, make_search: Callable[..., Search]
) -> None:
    """By brute force over the 2^9 networks of the first two stages, the third being left."""
    budget, _ = sizes_of(make_search, "--max-params", "1G")
    sizes = budget.sizes
    budget.aim = sizes.smallest + 0.3 * (sizes.largest - sizes.smallest)
    A = {name: torch.rand(group.shape, dtype=torch.float64) for name, group in GROUPS.items()}
    A["stage3"][:, 0] = 2.0  # no connection, whatever it takes
    best = -1.0
    for code in itertools.product("01", repeat=9):
        A_bar = bits("".join(code[:3]) + "|" + "".join(code[3:]) + "|0-00-000-0000")
        if budget.meets(A_bar):
            best = max(best, sum(float((A[name] * A_bar[name]).sum()) for name in A))
    found = budget.project(A, bits("1-11|1-11-111|1-11-111-1111"))
    assert budget.meets(found)
    assert sum(float((A[name] * found[name]).sum()) for name in A) == pytest.approx(best)


@pytest.mark.parametrize("method", ["nasp", "darts-1st", "random", "genet", "spos", "score"])
def test_methods_keep_a_limit(method: str, make_search: Callable[..., Search]) -> None:
    few = ("--evaluations", "3") if method == "genet" else ()
    search = make_search(
        "--method", method, "--space", "genet", "--channels", "2", "--max-params", "9k",
        "--final-channels", "4", *few,
    )  # fmt: skip
    for _ in range(2):
        search.step()
    assert parameters(search.task.final_network(search.genotype())) <= 9000


@pytest.mark.parametrize("flags", [("--max-latency", "9s"), ("--eta", "1", "--cost", "latency")])
def test_seconds_are_no_sums(flags: tuple[str, ...], make_search: Callable[..., Search]) -> None:
    with pytest.raises(InputError, match="genet: the seconds of its networks are no sums"):
        make_search("--space", "genet", *flags)


def test_a_plan_says_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--space", "genet", "--dry-run", "--threads", "1", "--channels", "2"]
    assert main(["search", "digits", *flags]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("final network"))
    assert line.startswith("final network:  1 cells, 32 channels, ")
    assert " parameters, " in line
