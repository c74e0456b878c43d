"""Random search by training: which cell is kept, and how each is trained."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from proxnas.common.types import Batch
from proxnas.methods.sampling import ByTraining, Sampling
from proxnas.runs.metrics import Validation
from proxnas.searching.job import Search
from support.searches import active_rows, same, steps, stored

MakeSearch = Callable[..., Search]


def random_search(make_search: MakeSearch, *flags: str) -> tuple[Search, Sampling, ByTraining]:
    search = make_search("--method", "random", *flags)
    assert isinstance(search.method, Sampling) and isinstance(search.method.evaluator, ByTraining)
    return search, search.method, search.method.evaluator


def test_random_keeps_the_best_cell_by_validation_accuracy(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, method, training = random_search(
        make_search, "--epochs", "2", "--evaluations", "5"
    )  # two steps a cell
    measured = [
        Validation(loss, accuracy)
        for loss, accuracy in ((3, 0.2), (1, 0.9), (2, 0.8), (1, 0.9), (5, 0.1))
    ]
    remaining = iter(measured)
    monkeypatch.setattr(training, "evaluate", lambda batches: next(remaining))
    drawn = []
    for t in range(10):
        if t % 2 == 0:
            drawn.append(method.A_bar)
        search.method.step()
    assert same(method.architecture()[1], drawn[1]) and search.genotype() == search.space.genotype(
        drawn[1]
    )
    assert method.validation() == measured[1]  # of the cell returned, not of the one in training
    assert len({str(cell) for cell in drawn}) == 5


def test_random_trains_every_cell_anew_from_the_same_weights_over_a_whole_cosine(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, _, method = random_search(
        make_search, "--epochs", "4", "--evaluations", "4"
    )  # five steps a cell
    initial, rates, anew = stored(search.net.module.state_dict()), [], []
    take = method.train.next

    def noted() -> Batch:
        """The batch of a step; what it will start from is known then."""
        anew.append(same(search.net.module.state_dict(), initial))
        return take()

    monkeypatch.setattr(method.train, "next", noted)
    for t in range(15):
        if t % 5 == 0:
            assert all(
                not method.w_optimizer.momentum_of(w).any() for w in method.w_optimizer.weights
            )  # type: ignore[union-attr]
        rates.append(method.w_optimizer.learning_rate)
        search.method.step()
    assert anew == [True, False, False, False, False] * 3
    assert rates[:5] == rates[5:10] == rates[10:] == sorted(rates[:5], reverse=True)
    assert rates[0] == pytest.approx(0.025) and rates[4] < 0.005


@pytest.mark.parametrize("space", ["darts7", "rnn"])
def test_all_cells_see_the_same_batches(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch, space: str
) -> None:
    search, _, training = random_search(
        make_search, "--space", space, "--epochs", "2", "--evaluations", "4"
    )
    take, seen = training.train.next, []
    monkeypatch.setattr(training.train, "next", lambda: seen.append(batch := take()) or batch)
    n = training.steps_per_cell
    steps(search, 2 * n + 1)
    for t, batch in enumerate(seen[n:]):
        assert torch.equal(batch.x, seen[t % n].x) and torch.equal(batch.y, seen[t % n].y)
    assert n > 1 and not torch.equal(seen[0].y, seen[1].y)


def test_random_judges_a_cell_with_the_weights_trained_for_it(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, method, training = random_search(
        make_search, "--epochs", "1", "--evaluations", "5"
    )  # one step a cell
    initial, cell, judged = stored(search.net.module.state_dict()), method.A_bar, []

    def evaluate(batches: int) -> Validation:
        judged.append(
            (dict(search.net.route.active), not same(search.net.module.state_dict(), initial))
        )
        return search.evaluate()

    monkeypatch.setattr(training, "evaluate", evaluate)
    search.method.step()
    assert judged == [(active_rows(cell), True)]
    assert search.valid.delivered == 0  # the whole half for A is judged by, not a stream


def test_before_the_first_cell_is_judged_the_one_in_training_is_evaluated(
    make_search: MakeSearch,
) -> None:
    search, method, _ = random_search(make_search)
    steps(search, 1)
    measured = method.validation()
    assert math.isfinite(measured.loss) and search.net.route.active == active_rows(method.A_bar)
    assert measured == search.evaluate()
