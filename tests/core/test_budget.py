"""Limits on the final network: the sums, the projection, the price of size, and what a search
returns."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.common.quantities import count, seconds
from proxnas.common.types import Matrices
from proxnas.core.groups import Group
from proxnas.core.prox import prox_c1
from proxnas.core.selection import keep_inputs, random_selection
from proxnas.core.size.budget import Budget, Sizes
from proxnas.core.size.complexity import parameters
from proxnas.core.size.projection import best_within
from proxnas.domains import spaces
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.text.fitting import TextFitConfig
from proxnas.methods import METHODS
from proxnas.searching.job import Search
from proxnas.searching.sizing import sizes
from proxnas.workflows.fit_parts import search_config
from support.searches import same, spy_on_paths

MakeSearch = Callable[..., Search]
FINAL = ("--final-cells", "3", "--final-channels", "4")
QUICK = ("darts7", "nasbench201", "rnn")
SPACES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in spaces.SPACES
    if name != "genet"
]
"""Of which sizes are sums."""


def random_A(groups: Mapping[str, Group], seed: int) -> Matrices:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(group.shape, generator=generator, dtype=torch.float64)
        for name, group in groups.items()
    }


def score(A: Matrices, A_bar: Matrices) -> float:
    return sum(float((A[name] * A_bar[name]).sum()) for name in A)


# ------------------------------------------------------------- projection


def cells(group: Group) -> Iterator[list[tuple[int, int]]]:
    """All cells of a group, written down plainly."""
    limited = group.max_inputs is not None
    usable = [k for k, op in enumerate(group.candidates) if not limited or op != "none"]

    def nodes(rows: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
        most = len(rows) if group.max_inputs is None else min(group.max_inputs, len(rows))
        for kept in range(1 if limited and "none" in group.candidates else most, most + 1):
            for chosen in combinations(rows, kept):
                yield from ([*zip(chosen, ks, strict=True)] for ks in product(usable, repeat=kept))

    for parts in product(*(list(nodes(rows)) for rows in group.nodes)):
        entries = [entry for part in parts for entry in part]
        skips = sum(group.candidates[k] == "skip_connect" for _, k in entries)
        if group.max_skip is None or skips <= group.max_skip:
            yield entries


def brute_force(A: Tensor, costs: Tensor, group: Group, room: float) -> float | None:
    """The largest sum of A over all cells within the room."""
    sums = [
        [sum(x[e][k] for e, k in cell) for x in (costs.tolist(), A.tolist())]
        for cell in cells(group)
    ]
    return max((total for cost, total in sums if cost <= room), default=None)


CANDIDATES = [("skip_connect", "a", "b"), ("none", "skip_connect", "a"), ("a", "b", "c")]


@settings(max_examples=60, deadline=None)
@given(
    candidates=st.sampled_from(CANDIDATES),
    max_inputs=st.sampled_from([None, 1, 2]),
    max_skip=st.sampled_from([None, 0, 1]),
    prices=st.lists(st.integers(0, 6), min_size=15, max_size=15),
    seed=st.integers(0, 10_000),
    room=st.integers(0, 16),
)
def test_the_projection_is_the_best_of_all_cells(
    candidates: tuple[str, ...],
    max_inputs: int | None,
    max_skip: int | None,
    prices: list[int],
    seed: int,
    room: int,
) -> None:
    group = Group(candidates, ((0, 1), (2, 3, 4)), max_inputs, max_skip)
    A, costs = random_A({"g": group}, seed), torch.tensor(prices, dtype=torch.float64).reshape(5, 3)
    found = best_within(A, {"g": costs}, {"g": group}, room)
    best = brute_force(A["g"], costs, group, room)
    if best is None:
        assert found is None
    else:
        assert found is not None
        assert float((costs * found["g"]).sum()) <= room
        assert score(A, found) == pytest.approx(best)


PAIR = {"x": Group(("a", "b"), ((0,), (1,))), "y": Group(("a", "b"), ((0,), (1,)))}


def test_groups_share_one_room() -> None:
    """Four rows, b is better by 0.1, 0.2, 0.3, 0.4 and costs 1: room for two takes the best two,
    wherever they are."""
    A = {
        "x": torch.tensor([[0.0, 0.1], [0.0, 0.4]]).double(),
        "y": torch.tensor([[0.0, 0.3], [0.0, 0.2]]).double(),
    }
    costs = {name: torch.tensor([[0.0, 1.0]] * 2).double() for name in A}
    found = best_within(A, costs, PAIR, 2)
    assert found is not None
    assert {name: matrix[:, 1].tolist() for name, matrix in found.items()} == {
        "x": [0, 1],
        "y": [1, 0],
    }


def plain_sizes(space: str, seed: int) -> Sizes:
    """Made-up costs for a real space."""
    groups = spaces.find(space).groups
    entries = {name: (1000 * x).round() for name, x in random_A(groups, seed).items()}
    return Sizes("params", entries, groups, lambda A_bar: 7 + score(entries, A_bar))


@pytest.mark.parametrize("space", ["darts7", "darts8", "nasbench201", "enas5", "rnn"])
def test_every_limit_that_some_network_meets_is_met(space: str) -> None:
    known = plain_sizes(space, 0)
    for seed, share in enumerate((0.0, 0.2, 0.7)):
        limit = known.smallest + share * (known.largest - known.smallest)
        A = random_A(known.groups, seed)
        A_bar = {
            name: random_selection(g, torch.Generator().manual_seed(seed))
            for name, g in known.groups.items()
        }
        budget = Budget(known, limit, "--max-params")
        within = budget.project(A, A_bar)
        assert known(within) <= limit
        assert budget.project(A, within) is within
        spaces.find(space).genotype(within)  # a cell of the space
    assert Budget(known, known.largest, "").project(A, A_bar) is A_bar


def test_no_network_is_smaller_than_the_smallest_nor_larger_than_the_largest() -> None:
    """Against all cells of a group in which each row and candidate has a cost of its own."""
    group = Group(("a", "b", "none"), ((0, 1), (2, 3, 4)), max_inputs=2)
    costs = random_A({"g": group}, 3)
    known = Sizes("params", costs, {"g": group}, lambda A_bar: score(costs, A_bar))
    sums = [sum(float(costs["g"][e, k]) for e, k in cell) for cell in cells(group)]
    assert (known.smallest, known.largest) == (pytest.approx(min(sums)), pytest.approx(max(sums)))


def test_seconds_are_fitted_to_the_smallest_and_the_largest_network() -> None:
    group = Group(("a", "b"), ((0,), (1,)))
    costs = {"g": torch.tensor([[1.0, 2.0], [1.0, 4.0]]).double()}
    known = Sizes("latency", costs, {"g": group}, lambda A_bar: 10 + 3 * score(costs, A_bar))
    assert (known.smallest, known.largest) == (pytest.approx(16), pytest.approx(28))
    half = {"g": torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()}
    assert known(half) == pytest.approx(19)
    budget = Budget(known, 20.0, "--max-latency")
    budget.tighten(measured=25.0)
    assert budget.aim < 20 and budget.limit == 20
    assert known(budget.project({"g": torch.tensor([[0.0, 1.0], [0.0, 1.0]]).double()}, half)) <= 16


# ------------------------------------------------------------------ sizes


@pytest.mark.parametrize("space", SPACES)
def test_sizes_are_those_of_the_networks_that_are_built(
    make_search: MakeSearch, space: str
) -> None:
    size = {"rnn": (), "mobile": FINAL[2:]}.get(space, FINAL)  # both have no number of cells
    search = make_search("--space", space, *size)
    generator = torch.Generator().manual_seed(0)
    sums = {of: sizes(of, search.task, search.space) for of in ("params", "flops")}
    for _ in range(2):
        A_bar = {
            name: random_selection(group, generator) for name, group in search.net.groups.items()
        }
        network = search.final_network(search.space.genotype(A_bar))
        assert sums["params"](A_bar) == parameters(network)
        assert sums["flops"](A_bar) == search.task.multiply_adds(network)
        assert all(s.smallest <= s(A_bar) <= s.largest for s in sums.values())
    assert (space == "rnn") == (sums["params"].smallest == sums["params"].largest)


def test_seconds_of_entries_are_measured(make_search: MakeSearch) -> None:
    search = make_search(*FINAL)
    known = sizes("latency", search.task, search.space)
    assert 0 < known.smallest <= known.largest
    assert all((matrix >= 0).all() for matrix in known.entries.values())


# ---------------------------------------------------------------- searches


SPAN: dict[tuple[str, ...], tuple[float, float]] = {}
SMALL = ("--space", "nasbench201", "--final-cells", "1", "--final-channels", "4")


def limit_at(make_search: MakeSearch, share: float, flags: tuple[str, ...] = FINAL) -> int:
    """Between the smallest and the largest network of these flags, which are counted once."""
    if flags not in SPAN:
        search = make_search(*flags)
        known = sizes("params", search.task, search.space)
        SPAN[flags] = (known.smallest, known.largest)
    smallest, largest = SPAN[flags]
    return int(smallest + share * (largest - smallest))


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("darts-2nd", "pa", "asap")])
def test_every_method_returns_a_network_within_the_limit(
    make_search: MakeSearch, method: str
) -> None:
    limit = limit_at(make_search, 0.1, SMALL)
    search = make_search("--method", method, "--max-params", str(limit), "--epochs", "1", *SMALL)
    search.totals.add(search.step())
    assert parameters(search.final_network(search.genotype())) <= limit
    assert 0 < (search.row(0.0).params or 0) <= limit


def test_all_that_is_trained_is_within_the_limit(make_search: MakeSearch) -> None:
    """Also what is explored: the cell returned is the cell trained."""
    limit = limit_at(make_search, 0.3)
    search = make_search("--max-params", str(limit), "--explore", "0.5", *FINAL)
    assert search.budget is not None
    paths = spy_on_paths(search.net)
    for _ in range(3):
        search.step()
        assert all(search.budget.meets(path) for path in paths)
        assert search.budget.meets(search.method.architecture()[1])
        assert search.returned() is search.method.architecture()[1]


def test_the_price_rises_while_A_asks_for_too_much_and_falls_again(make_search: MakeSearch) -> None:
    tight, loose = (limit_at(make_search, share) for share in (0.0, 1.0))
    method: Any = make_search("--max-params", str(tight), *FINAL).method
    price = method.additions.price
    assert price.value == 0
    method.step()
    assert price.value > 0 and method.eta == price.value * price.steepness.value > 0
    price.value, price.budget.aim = 1.0, loose
    method.step()
    assert 0 < price.value < 1 and method.eta == 0  # there is room: nothing is charged
    price.value = 0.0
    method.step()
    assert price.value == 0


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_the_price_is_as_steep_as_the_loss(make_search: MakeSearch, factor: float) -> None:
    """A loss that is steeper by a factor has a price that is: A moves as before."""
    limit = str(limit_at(make_search, 0.0))
    plain, other = (
        make_search("--max-params", limit, "--look-ahead", "0", "--eta", "0", *FINAL).method
        for _ in range(2)
    )
    gradient = other._loss_gradient

    def steeper(batch: Any, weights: Any) -> Any:
        dA, dw = gradient(batch, weights)
        return {name: factor * d for name, d in dA.items()}, dw

    other._loss_gradient = steeper
    for _ in range(4):
        plain.step()
        other.step()
        assert other.eta == pytest.approx(factor * plain.eta)
    assert plain.eta > 0
    assert all(torch.allclose(plain.A[name], other.A[name]) for name in plain.A)


def test_the_price_presses_what_A_selects_without_the_limit(make_search: MakeSearch) -> None:
    method: Any = make_search(
        "--max-params", str(limit_at(make_search, 0.0)), "--eta", "1", *FINAL
    ).method
    wanted = {
        name: keep_inputs(a, prox_c1(a), method.net.groups[name]) != 0
        for name, a in method.A.items()
    }
    assert method.discretize.budget.excess(wanted) > 0
    place = method.penalty.place(method.A, method.A_bar, method.A_bar, None)
    assert all(torch.equal(at, wanted[name].double()) for name, at in place.items())


@pytest.mark.parametrize(
    "more", [(), ("--explore", "0"), ("--value", "a_k"), ("--eta-at", "A"), ("--method", "pa")]
)
def test_a_limit_that_does_not_bind_changes_nothing(
    make_search: MakeSearch, more: tuple[str, ...]
) -> None:
    flags = (
        "--space",
        "nasbench201",
        "--eta",
        "0.1",
        "--epochs",
        "1",
        "--arch-learning-rate",
        "0.05",
        *more,
    )
    flags += FINAL
    plain, limited = make_search(*flags), make_search(*flags, "--max-params", "100M")
    for _ in range(4):
        one, other = plain.step(), limited.step()
        assert torch.equal(one.loss, other.loss) and one.changes == other.changes
    assert same(
        plain.state_dict() | {"budget": None, "method": without_price(plain)},
        limited.state_dict() | {"budget": None, "method": without_price(limited)},
    )
    assert plain.genotype() == limited.genotype()


def without_price(search: Search) -> dict[str, Any]:
    """The state of a method but for what only a limit has."""
    return {name: value for name, value in search.method.state_dict().items() if name != "price"}


def test_a_resumed_search_has_the_same_price_costs_and_cell(make_search: MakeSearch) -> None:
    flags = [
        "--max-params",
        str(limit_at(make_search, 0.3)),
        "--cost",
        "latency",
        "--eta",
        "0.1",
        *FINAL,
    ]
    one, other = make_search(*flags), make_search(*flags)
    for _ in range(2):
        one.step()
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for search in (one, other):
        search.step()
    first, second = (search.method.state_dict() for search in (one, other))
    assert first["price"] == second["price"] and first["price"][0] > 0
    for name in first["costs"]:
        assert torch.equal(first["costs"][name], second["costs"][name])  # measured once
        assert torch.equal(first["A_bar"][name], second["A_bar"][name])
    assert one.genotype() == other.genotype()


def run(tmp_path: Path, *flags: str) -> int:
    size = [
        "--cells",
        "3",
        "--channels",
        "2",
        "--epochs",
        "2",
        "--batch-size",
        "4",
        "--threads",
        "1",
        "--quiet",
    ]
    return main(["search", *flags, *size, *FINAL, "--run", str(tmp_path / "run")])


def test_the_files_of_a_run_agree(
    stripes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, str(stripes), "--max-params", "2.1k") == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    budget = result["budget"]
    assert budget["limit"] == 2100 and budget["of"] == "params"
    assert budget["smallest"] <= result["params"] <= 2100 < budget["largest"]
    assert all(row["params"] <= 2100 for row in rows) and rows[-1]["params"] == result["params"]
    assert rows[-1]["eta"] > 0
    genotype = Genotype.from_json(json.dumps(result["genotype"]))
    assert read_genotype(tmp_path / "run") == genotype
    with torch.device("meta"):
        network = spaces.find("darts7").network(genotype, Size(3, 4, 1, 2))
    assert parameters(network) == result["params"]


def test_a_latency_limit_is_aimed_at_and_measured(stripes: Path, tmp_path: Path) -> None:
    flags = ("--max-latency", "2s", "--latency-by", "torch", "--epochs", "1")
    assert run(tmp_path, str(stripes), *flags) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["budget"]["of"] == "latency" and result["budget"]["limit"] == 2.0
    assert 0 < result["latency"] <= 2.0


# ----------------------------------------------------------------- refusals


def test_an_impossible_limit_names_the_smallest_network(
    stripes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], make_search: MakeSearch
) -> None:
    assert run(tmp_path, str(stripes), "--max-params", "10") == 2
    line = capsys.readouterr().err
    smallest = int(re.findall(r"has ([\d,]+) parameters", line)[0].replace(",", ""))
    assert line.count("\n") == 1 and "--max-params 10:" in line
    assert not (tmp_path / "run").exists()
    assert run(tmp_path, str(stripes), "--max-params", str(smallest), "--dry-run") == 0
    assert (
        f"limit {smallest:,} parameters  (smallest network {smallest:,} parameters"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--max-params", "many"), "--max-params many"),
        (("--max-params", "0"), "--max-params 0"),
        (("--max-params", "-5k"), "--max-params -5k"),
        (("--max-params", "5m"), "--max-params 5m"),
        (("--max-flops", "1T"), "--max-flops 1T"),
        (("--max-flops", "nan"), "--max-flops nan"),
        (("--max-latency", "2"), "--max-latency 2:"),
        (("--max-latency", "2k"), "--max-latency 2k"),
        (("--max-params", "5k", "--max-flops", "5M"), "give one limit only"),
        (("--cost", "size"), "--cost size"),
        (("--cost", "flops", "--method", "random"), "--cost flops"),
        (("--max-params", "5k", "--method", "gdas", "--fixed-reduction"), "--fixed-reduction"),
    ],
)
def test_bad_flags_are_refused_in_one_line(
    flags: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "digits", *(f"{a}={b}" if b else a for a, b in pairs(flags))]) == 2
    line = capsys.readouterr().err
    assert named in line and line.startswith("proxnas: error: ") and line.count("\n") == 1


def pairs(flags: tuple[str, ...]) -> list[tuple[str, str]]:
    """Flags and their values; a word like -5k must not look like a flag."""
    words = list(flags)
    found = []
    while words:
        name = words.pop(0)
        found.append((name, words.pop(0) if words and not words[0].startswith("--") else ""))
    return found


def test_fit_refuses_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "digits", "--max-params", "many"]) == 2
    assert "--max-params many" in capsys.readouterr().err
    assert main(["fit", "digits", "--max-params", "9k", "--protocol", "imagenet"]) == 2
    assert "stem imagenet" in capsys.readouterr().err
    with pytest.raises(InputError, match="one limit"):
        TextFitConfig(data="pydocs", max_params="5k", max_latency="2ms")


def test_fit_hands_the_limit_to_its_search() -> None:
    config = search_config(
        FitConfig(data="digits", space="darts7", max_flops="5M", cells=4, channels=8)
    )
    assert (config.max_flops, config.final_cells, config.final_channels) == ("5M", 4, 8)
    assert config.cost_of_R() == "flops"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500k", 500_000),
        ("20M", 20_000_000),
        ("1.5M", 1_500_000),
        ("2G", 2 * 10**9),
        ("12345", 12345),
    ],
)
def test_counts_as_people_write_them(text: str, value: int) -> None:
    assert count("--max-params", text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("2ms", 0.002), ("800us", 0.0008), ("0.01s", 0.01), ("1.5ms", 0.0015)]
)
def test_times_as_people_write_them(text: str, value: float) -> None:
    assert seconds("--max-latency", text) == pytest.approx(value)


# ------------------------------------------------- methods that are projected at the end

LOGITS = ("darts-1st", "darts-2nd", "gdas", "snas", "asap")
"""Methods whose A a softmax makes probabilities of."""


def within(search: Search, share: float) -> Search:
    """The same with its limit at a share of the way from the smallest to the largest network."""
    assert search.budget is not None
    known = search.budget.sizes
    search.budget.aim = known.smallest + share * (known.largest - known.smallest)
    return search


def with_random_A(search: Search, seed: int) -> Matrices:
    """The A of a method of LOGITS, each row around a level of its own, and the cell that it derives
    from it."""
    method: Any = search.method
    A: Matrices = method.architecture()[0]
    generator = torch.Generator().manual_seed(seed)
    for a in A.values():
        a.copy_(torch.randn(a.shape, generator=generator, dtype=a.dtype))
    method.A_bar = method.derive()
    return A


@pytest.mark.parametrize("space", ["darts7", "nasbench201"])
@pytest.mark.parametrize("method", LOGITS)
def test_the_level_of_a_row_of_logits_does_not_change_the_projected_cell(
    make_search: MakeSearch, method: str, space: str
) -> None:
    search = within(
        make_search("--method", method, "--space", space, "--max-params", "100M", *FINAL), 0.05
    )
    bound = 0
    for seed in range(8):
        A, other = with_random_A(search, seed), torch.Generator().manual_seed(100 + seed)
        before, own = search.returned(), search.method.architecture()[1]
        bound += before is not own
        for a in A.values():
            a += 5 * torch.randn((len(a), 1), generator=other, dtype=a.dtype)
        search.method.A_bar = search.method.derive()  # type: ignore[attr-defined]
        assert all(torch.equal(own[name], a) for name, a in search.method.architecture()[1].items())
        assert all(torch.equal(before[name], a) for name, a in search.returned().items())
    assert bound > 3


@pytest.mark.parametrize("space", ["darts7", "nasbench201"])
@pytest.mark.parametrize("method", [*LOGITS, "bayesnas"])
def test_where_there_is_room_the_projection_is_what_the_method_derives(
    make_search: MakeSearch, method: str, space: str
) -> None:
    search = make_search("--method", method, "--space", space, "--max-params", "100M", *FINAL)
    for seed in range(5):
        if method != "bayesnas":  # else gamma as it is drawn at the start
            with_random_A(search, seed)
        own: Matrices = search.method.architecture()[1]
        assert search.returned() is own
        if (method, space) == ("gdas", "darts7"):
            continue  # it may put two candidates on an edge, and the projection never does
        free = {name: torch.zeros_like(a) for name, a in own.items()}
        found = best_within(search.method.preferences(), free, search.net.groups, 0.0)  # type: ignore[attr-defined]
        assert found is not None and all(torch.equal(own[name], a) for name, a in found.items())


@pytest.mark.parametrize("limited", [True, False], ids=["limited", "any size"])
@pytest.mark.parametrize(
    "more", [("--space", "darts8"), ("--max-skip", "0"), ("--space", "nasbench201")]
)
def test_what_asap_dropped_does_not_come_back(
    make_search: MakeSearch, more: tuple[str, ...], limited: bool
) -> None:
    search = make_search(
        "--method", "asap", "--epochs", "50", "--max-params", "100M", *more, *FINAL
    )
    method: Any = within(search, 0.1 if limited else 1.0).method
    for seed in range(8):
        with_random_A(search, seed)
        for alive in method.alive.values():
            alive[:] = True
        generator = torch.Generator().manual_seed(seed)
        for epoch in range(10, 50, 8):
            method.learner.w_optimizer.t = epoch * len(search.train)
            for a in method.learner.A.values():
                a += torch.randn(a.shape, generator=generator, dtype=a.dtype)
            method.A_bar = method.derive()
            method.prune()
            for a in method.learner.A.values():  # and A moves on until the next time
                a += torch.randn(a.shape, generator=generator, dtype=a.dtype)
            method.A_bar = method.derive()
            for name, a in search.returned().items():
                assert method.alive[name][a != 0].all()
            assert search.budget is not None and search.budget.meets(search.returned())
