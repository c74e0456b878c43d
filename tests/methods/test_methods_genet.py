"""The genetic algorithm: each of its parts by itself, and all of it with a score that is known."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from proxnas.core.groups import Group
from proxnas.methods.cells import Cell, Cells
from proxnas.methods.genet import Constants, Genetic

ROWS = ((0,), (1, 2), (3, 4, 5))
BITS = Group(("none", "skip_connect"), ROWS)
STAGES = {"one": BITS, "two": BITS, "three": BITS}


def genetic(seed: int = 0, groups: dict[str, Group] = STAGES, **constants: float) -> Genetic:
    generator = torch.Generator().manual_seed(seed)
    return Genetic(Cells(groups), Constants(**{"population": 6} | constants), generator)  # type: ignore[arg-type]


def ones(cell: Cell) -> float:
    return float(sum(k for picks in cell for _, k in picks))


def filled(search: Genetic, score: object = ones) -> list[Cell]:
    """The cells of a generation, evaluated."""
    cells = []
    while search.ready() and (search.waiting or not cells):
        cells.append(search.ask())
    for cell in cells:
        search.tell(cell, score(cell))  # type: ignore[operator]
    return cells


def test_a_generation_waits_for_all_of_the_one_before() -> None:
    search = genetic()
    cells = [search.ask() for _ in range(6)]
    assert not search.ready()
    for cell in cells[:-1]:
        search.tell(cell, ones(cell))
        assert not search.ready()
    search.tell(cells[-1], 0.0)
    assert search.ready()


def test_the_roulette_goes_by_what_is_above_the_worst() -> None:
    search = genetic(population=6000)
    cells = [search._draw() for _ in range(3)]
    drawn = Counter(search.selected(list(zip(cells, (0.5, 0.6, 0.8), strict=True))))
    shares = [drawn[cell] / 6000 for cell in cells]
    assert shares == pytest.approx([0.0, 0.25, 0.75], abs=0.02)
    alike = Counter(search.selected([(cell, 1.0) for cell in cells]))
    assert min(alike[cell] for cell in cells) > 1800


def test_stages_are_exchanged_as_a_whole() -> None:
    search = genetic(exchanging=0.5)
    one, other = search._draw(), search._draw()
    per = len(ROWS)
    seen = set()
    for _ in range(60):
        pair = search.crossed(one, other)
        swapped = []
        for stage in range(3):
            part = slice(stage * per, (stage + 1) * per)
            whole = [child[part] for child in pair]
            assert whole in ([one[part], other[part]], [other[part], one[part]])
            swapped.append(whole != [one[part], other[part]])
        seen.add(tuple(swapped))
    assert len(seen) == 8


def test_where_there_is_one_group_nodes_are_exchanged() -> None:
    assert genetic(groups={"cell": BITS}).stages == [[0], [1], [2]]
    assert genetic().stages == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_a_mutation_changes_decisions_by_chance() -> None:
    cell = genetic()._draw()
    assert genetic(changing=0.0).mutated(cell) == cell
    assert ones(genetic(changing=1.0).mutated(cell)) == 18 - ones(cell)
    search = genetic(changing=0.1)
    changes = []
    for _ in range(400):
        A_bar, B_bar = (search.cells.A_bar(c) for c in (cell, search.mutated(cell)))
        changes.append(sum(float((A_bar[n] != B_bar[n]).sum()) / 2 for n in A_bar))
    assert sum(changes) / 400 == pytest.approx(1.8, abs=0.25)


def test_a_cell_that_is_crossed_is_not_mutated() -> None:
    search = genetic(crossing=1.0, exchanging=0.0, changing=1.0)
    cells = filled(search)
    assert set(search.bred(search.generation)) <= set(cells)


def test_no_cell_is_evaluated_twice_and_scores_rise() -> None:
    search, asked, means = genetic(population=12), list[Cell](), list[float]()
    for _ in range(15):
        cells = filled(search)
        asked += cells
        scores = [score for _, score in search.generation]
        means.append(sum(scores) / len(scores))
    assert len(set(asked)) == len(asked)
    assert means[-1] > means[0] + 3 and max(map(ones, asked)) >= 15


def test_a_space_of_few_cells_comes_to_its_end() -> None:
    search = genetic(groups={"x": Group(("a", "b"), ((0,),), max_inputs=1)})
    for _ in range(5):
        filled(search)
    assert len(search.scores) == 2


def test_it_goes_on_where_it_was() -> None:
    one, other = genetic(), genetic(seed=9)
    filled(one)
    one.ask()
    other.load_state_dict(one.state_dict())
    for search in (one, other):
        search.tell(search.waiting[0] if search.waiting else search._draw(), 1.0)
    assert filled(one) == filled(other) and one.generation == other.generation
