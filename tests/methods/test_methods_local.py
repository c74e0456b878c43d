"""Local search: its neighbours, its moves, and the cell that it begins with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import OPERATIONS
from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.common.types import Matrices
from proxnas.core.groups import Group
from proxnas.core.prox import prox_c, prox_c1
from proxnas.core.selection import keep_inputs, one_hot
from proxnas.domains import spaces
from proxnas.methods.asng import Variables
from proxnas.methods.cells import Cell, Cells, uniform
from proxnas.methods.controller import Controller, ControllerOptions
from proxnas.methods.gdas import pairs
from proxnas.methods.gumbel import hard
from proxnas.methods.local import Local
from proxnas.searching.job import Search
from proxnas.searching.start import selecting, start
from support.commands import interrupted_at

MakeSearch = Callable[..., Search]
CONVOLUTIONS = (
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|"
    "+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
)
EMPTY = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def differ(one: Cell, other: Cell) -> int:
    return sum(len(set(a) - set(b)) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("space", ["darts7", "darts8", "nasbench201", "enas5", "rnn"])
def test_the_neighbours_are_all_cells_that_differ_in_one_decision(space: str) -> None:
    cells = Cells(spaces.find(space).groups)
    cell = cells.draw(generator())
    found = cells.neighbours(cell)
    assert len(set(found)) == len(found) and all(differ(other, cell) == 1 for other in found)
    assert all(cells.of(cells.A_bar(other)) == other for other in found)
    inputs = [
        (place, picks) for place, picks in zip(cells.places, cell, strict=True) for _ in picks
    ]
    assert len(found) == sum(len(p.usable) - 1 + len(p.rows) - len(picks) for p, picks in inputs)


def scored(local: Local, number: int, score: dict[Cell, float]) -> list[Cell]:
    """So many cells asked for and told."""
    asked = []
    for _ in range(number):
        asked.append(local.ask())
        local.tell(asked[-1], score.get(asked[-1], 0.0))
    return asked


def test_it_moves_to_the_best_neighbour_and_asks_for_no_known_cell_twice() -> None:
    cells = Cells(spaces.find("nasbench201").groups)
    first = cells.draw(generator())
    around = cells.neighbours(first)
    local = Local(cells, first, generator())
    fresh = set(cells.neighbours(around[3])) - {first} - set(around)
    asked = scored(local, 1 + 24 + len(fresh), {first: 1.0, around[3]: 3.0, around[7]: 2.0})
    assert asked[0] == first and set(asked[1:25]) == set(around) and set(asked[25:]) == fresh
    assert local.middle == around[3]
    (other,) = scored(local, 1, {})
    assert other not in asked and local.middle == other  # nothing was better: a random cell


def test_a_space_of_one_cell_is_no_trap() -> None:
    cells = Cells({"x": Group(("only",), ((0,),), 1)})
    assert len(set(scored(Local(cells, None, generator()), 5, {}))) == 1


def test_the_next_step_waits_for_all_neighbours() -> None:
    cells = Cells(spaces.find("nasbench201").groups)
    local = Local(cells, None, generator())
    local.tell(local.ask(), 1.0)
    asked = [local.ask() for _ in range(24)]
    assert not local.ready()
    for cell in asked:
        local.tell(cell, 0.0)
    assert local.ready()


def test_its_state_goes_on_alike() -> None:
    cells = Cells(spaces.find("darts7").groups)
    one, other = Local(cells, None, generator(1)), Local(cells, None, generator(2))
    scored(one, 30, {})
    other.load_state_dict(
        json.loads(json.dumps(one.state_dict(), default=lambda x: x.tolist()))
        | {"generator": one.state_dict()["generator"]}
    )
    assert scored(one, 200, {}) == scored(other, 200, {})


@pytest.mark.parametrize("space", ["darts7", "darts8", "nasp12", "nasbench201", "enas5", "rnn"])
def test_every_cell_of_a_space_can_be_started_from(space: str, tmp_path: Path) -> None:
    found = spaces.find(space)
    for seed in range(5):
        A_bar = Cells(found.groups).A_bar(Cells(found.groups).draw(generator(seed)))
        (tmp_path / "cell.json").write_text(found.genotype(A_bar).to_json())
        begun = start(str(tmp_path / "cell.json"), found)
        assert all(torch.equal(begun[name], A_bar[name]) for name in A_bar)


@pytest.mark.parametrize("cell", ["zoo:DARTS_V2", "zoo:NASP_12ops", CONVOLUTIONS])
def test_a_cell_of_another_space_is_refused(cell: str) -> None:
    with pytest.raises(InputError, match=r"^start .*: is no cell of space rnn: give one"):
        start(cell, spaces.find("rnn"))


def test_a_published_cell_with_foreign_operations_is_refused() -> None:
    assert start("zoo:DARTS_V2", spaces.find("darts8"))
    with pytest.raises(InputError, match="start zoo:NASP_12ops: is no cell of space darts8"):
        start("zoo:NASP_12ops", spaces.find("darts8"))


def test_a_search_begins_with_the_given_cell_and_keeps_the_better_neighbour(tmp_path: Path) -> None:
    best = CONVOLUTIONS.replace(
        "|nor_conv_3x3~0|nor_conv_3x3~1|nor", "|skip_connect~0|nor_conv_3x3~1|nor"
    )
    table = tmp_path / "table.csv"
    form = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|"
    names = [form.format(*ops) for ops in product(OPERATIONS["nasbench201"], repeat=6)]
    table.write_text(
        "arch,a_valid\n" + "".join(f"{name},{90.0 if name == best else 50.0}\n" for name in names)
    )
    flags = [
        "--evaluate",
        "table",
        "--table",
        str(table),
        "--evaluations",
        "25",
        "--epochs",
        "1",
        "--quiet",
    ]
    asked = [
        "search",
        "digits",
        "--space",
        "nasbench201",
        "--method",
        "local",
        "--start",
        CONVOLUTIONS,
        *flags,
    ]
    assert main([*asked, "--channels", "1", "--threads", "1", "--run", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert Genotype.from_object(result["genotype"]).to_string() == best


def test_a_search_goes_on_without_the_file_that_it_began_with(tmp_path: Path) -> None:
    cell = tmp_path / "cell.txt"
    cell.write_text(EMPTY)
    sizes = [
        "--evaluations",
        "6",
        "--epochs",
        "2",
        "--cells",
        "1",
        "--channels",
        "2",
        "--threads",
        "1",
        "--quiet",
    ]
    asked = [
        "search",
        "digits",
        "--space",
        "nasbench201",
        "--method",
        "local",
        "--start",
        str(cell),
        *sizes,
    ]
    assert main([*asked, "--run", str(tmp_path / "whole")]) == 0
    with interrupted_at(25):
        assert main([*asked, "--run", str(tmp_path / "cut")]) == 130
    cell.unlink()
    assert main(["search", "--run", str(tmp_path / "cut"), "--resume", "--quiet"]) == 0
    whole, cut = ((tmp_path / name / "genotype.json").read_text() for name in ("whole", "cut"))
    assert whole == cut


def test_other_methods_have_no_use_for_a_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "digits", "--start", EMPTY]) == 2
    assert (
        "--start |none~0|" in (said := capsys.readouterr().err)
        and "is for local, not for nasp: leave it out" in said
    )


def test_the_first_cell_is_random_by_the_seed() -> None:
    cells = Cells(spaces.find("darts7").groups)
    firsts = [Local(cells, None, generator(seed)).ask() for seed in (1, 1, 2)]
    assert firsts[0] == firsts[1] != firsts[2]


# ------------------------------------------------------------- cells of other methods


def by_slots(groups: Mapping[str, Group], A: Matrices, random: torch.Generator) -> Matrices:
    """As asng samples and derives."""
    variables = Variables(groups)
    return variables.A_bar([uniform(size, random) for size in variables.sizes])


def by_controller(groups: Mapping[str, Group], A: Matrices, random: torch.Generator) -> Matrices:
    """As enas and reinforce draw."""
    found: Matrices = Controller(groups, ControllerOptions(hidden=4), random)(random).A_bar
    return found


def each_group(rule: Callable[[torch.Tensor, Group], torch.Tensor]) -> Derive:
    return lambda groups, A, random: {name: rule(A[name], group) for name, group in groups.items()}


Derive = Callable[[Mapping[str, Group], Matrices, torch.Generator], Matrices]
DERIVATIONS: dict[str, Derive] = {
    "darts, asap, random, bayesnas": each_group(one_hot),
    "gdas": each_group(pairs),
    "snas": each_group(lambda p, group: (keep_inputs(p, hard(p), group) != 0).double()),
    "nasp": each_group(lambda A, group: keep_inputs(A, prox_c1(A), group)),
    "pa": each_group(lambda A, group: keep_inputs(A, prox_c(A), group)),
    "asng": by_slots,
    "enas, reinforce": by_controller,
}


@pytest.mark.parametrize("space", ["darts7", "darts8", "nasp12", "enas5", "nasbench201", "rnn"])
@pytest.mark.parametrize("method", DERIVATIONS)
def test_every_cell_that_a_method_derives_is_the_one_that_local_search_begins_with(
    method: str, space: str
) -> None:
    found = spaces.find(space)
    cells, random = Cells(found.groups), generator()
    for _ in range(40):
        A = {
            name: torch.rand(g.shape, generator=random, dtype=torch.float64)
            for name, g in found.groups.items()
        }
        A_bar = DERIVATIONS[method](found.groups, A, random)
        genotype, cell = found.genotype(A_bar).without_values(), cells.of(A_bar)
        assert found.genotype(cells.A_bar(cell)) == genotype
        begin = selecting(genotype, found)
        assert begin is not None and found.genotype(cells.A_bar(cells.of(begin))) == genotype


@pytest.mark.parametrize("space", ["darts7", "darts8"])
@pytest.mark.parametrize("method", ["gdas", "asng"])
def test_neighbours_of_a_cell_with_shared_edges_keep_its_number_of_inputs(
    method: str, space: str
) -> None:
    found = spaces.find(space)
    cells, random, shared = Cells(found.groups), generator(), 0
    for _ in range(10):
        A = {
            name: torch.rand(g.shape, generator=random, dtype=torch.float64)
            for name, g in found.groups.items()
        }
        cell = cells.of(DERIVATIONS[method](found.groups, A, random))
        shared += any(len({e for e, _ in picks}) < len(picks) for picks in cell)
        around = cells.neighbours(cell)
        assert len(set(around)) == len(around)
        for other in around:
            assert differ(other, cell) == 1 and list(map(len, other)) == list(map(len, cell))
            assert sum(int(a.sum()) for a in cells.A_bar(other).values()) == sum(map(len, cell))
    assert shared


@pytest.mark.parametrize("space", ["darts7", "nasbench201"])
def test_what_a_limit_makes_the_same_of_is_one_cell(space: str, make_search: MakeSearch) -> None:
    """So that no cell is evaluated twice, and none is the rival of itself."""
    flags = (
        "--method",
        "local",
        "--space",
        space,
        "--final-cells",
        "3",
        "--final-channels",
        "4",
        "--epochs",
        "1",
    )
    search = make_search(*flags, "--evaluations", "5", "--max-params", "100M")
    assert search.budget is not None
    known, cells, doubles = search.budget.sizes, Cells(search.net.groups), 0
    for seed in range(4):
        search.budget.aim = known.smallest + 0.1 * (seed + 1) * (known.largest - known.smallest)
        within = partial(cells.within, search.budget)
        local = Local(cells, within(cells.draw(generator(seed))), generator(seed), within=within)
        middle = local.ask()
        local.tell(middle, 1.0)
        around = [local.ask() for _ in range(1 + len(local.waiting))]
        around += [local.ask() for _ in range(len(local.waiting))]
        assert len({*around, middle}) == len(around) + 1
        assert all(search.budget.meets(cells.A_bar(cell)) for cell in (*around, middle))
        assert {*around} == {within(cell) for cell in cells.neighbours(middle)} - {middle}
        doubles += len(cells.neighbours(middle)) - len(around)
    assert doubles
