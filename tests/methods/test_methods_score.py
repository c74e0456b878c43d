"""Ranking by scores of untrained networks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from proxnas.common.errors import InputError
from proxnas.common.types import Batch, Matrices
from proxnas.core.size.complexity import parameters
from proxnas.methods.score import Score, make_scorer, parameters_in_use
from proxnas.searching.job import Search
from support.searches import same, steps, stored

MakeSearch = Callable[..., Search]
SCORES = ("zico", "naswot", "synflow", "grad-norm", "params")


def spied(method: Score) -> list[tuple[Matrices, float]]:
    """Every cell that is scored from now on, with its score."""
    seen: list[tuple[Matrices, float]] = []
    plain = method.score

    def score(cell: Matrices, batches: list[Batch]) -> float:
        value = plain(cell, batches)
        seen.append((cell, value))
        return value

    method.score = score
    return seen


def made(make_search: MakeSearch, *flags: str) -> tuple[Search, Score]:
    search = make_search("--method", "score", "--space", "nasbench201", *flags)
    assert isinstance(search.method, Score)
    return search, search.method


@pytest.mark.parametrize("by", SCORES)
def test_the_best_by_score_is_returned_and_nothing_is_trained(
    by: str, make_search: MakeSearch
) -> None:
    search, method = made(make_search, "--by", by, "--random-cells", "12", "--epochs", "1")
    seen, before = spied(method), stored(search.net.module.state_dict())
    steps(search, 5)
    assert len(seen) == 12
    best = max(value for _, value in seen)
    first = next(cell for cell, value in seen if value == best)
    assert same(method.architecture()[1], first) and method.best_score == pytest.approx(best)
    assert same(search.net.module.state_dict(), before)


@pytest.mark.parametrize(("cells", "expected"), [(12, [3, 2, 3, 2, 2]), (3, [1, 1, 0, 1, 0])])
def test_cells_are_spread_over_the_steps(
    cells: int, expected: list[int], make_search: MakeSearch
) -> None:
    _, method = made(make_search, "--by", "params", "--random-cells", str(cells), "--epochs", "1")
    seen, counts = spied(method), []
    for _ in range(5):
        before = len(seen)
        method.step()
        counts.append(len(seen) - before)
    assert counts == expected


def test_all_cells_see_the_same_batches(make_search: MakeSearch) -> None:
    search, method = made(make_search, "--random-cells", "5", "--epochs", "1")
    steps(search, 1)
    batches = method.batches
    again, other = made(make_search, "--random-cells", "5", "--epochs", "1")
    again.train.next()
    other.step()
    assert all(torch.equal(a.x, b.x) for a, b in zip(batches, other.batches, strict=True))
    steps(search, 3)
    assert method.batches is batches and search.train.delivered == 2


@pytest.mark.parametrize("by", SCORES)
def test_a_score_depends_on_the_cell_alone(by: str, make_search: MakeSearch) -> None:
    """Not on what was scored before it."""
    search, method = made(make_search, "--by", by)
    batches = [search.train.next(), search.train.next()]
    one, other = method._draw(), method._draw()
    score = make_scorer(by, search.net)
    first = score(one, batches)
    assert score(other, batches) != first
    assert score(one, batches) == first


def test_params_counts_the_candidates_in_use(make_search: MakeSearch) -> None:
    search, method = made(make_search)
    cell = method._draw()
    search.net.use(cell)
    expected = 0
    for choice in search.net.choices.values():
        assert choice.row is not None
        k = int(cell["cell"][choice.row.edge].argmax())
        expected += parameters(choice.candidates[k])
    assert parameters_in_use(search.net) == expected > 0


def test_cells_are_drawn_within_the_limit(make_search: MakeSearch) -> None:
    free, _ = made(make_search, "--by", "params", "--random-cells", "20", "--epochs", "1")
    steps(free, 5)
    largest = free.task.final_network(free.genotype())
    limit = parameters(largest) - 1
    search, method = made(
        make_search,
        "--by",
        "params",
        "--random-cells",
        "20",
        "--epochs",
        "1",
        "--max-params",
        str(limit),
    )
    seen = spied(method)
    steps(search, 5)
    assert search.budget is not None and all(search.budget.meets(cell) for cell, _ in seen)


def test_what_would_do_nothing_is_refused(make_search: MakeSearch) -> None:
    with pytest.raises(InputError, match="trains nothing"):
        made(make_search, "--learning-rate", "0.1")
    with pytest.raises(InputError, match="zico and grad-norm"):
        make_search("--method", "score", "--space", "rnn", "--by", "naswot")
