"""MnasNet: the reward, and a limit that is a target while cells are sampled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxnas.common.errors import InputError
from proxnas.methods.mnasnet import MnasnetSearch, reward
from proxnas.runs.metrics import Validation
from proxnas.searching.job import Search

MakeSearch = Callable[..., Search]


def made(make_search: MakeSearch, *flags: str) -> tuple[Search, MnasnetSearch]:
    search = make_search("--method", "mnasnet", "--space", "nasbench201", *flags)
    assert isinstance(search.method, MnasnetSearch)
    return search, search.method


def limited(make_search: MakeSearch, share: float, *flags: str) -> tuple[Search, MnasnetSearch]:
    """With a limit at so much of the way from the smallest network to the largest."""
    budget = made(make_search, "--max-params", "100M")[0].budget
    assert budget is not None
    span = budget.sizes.largest - budget.sizes.smallest
    limit = int(budget.sizes.smallest + share * span)
    return made(make_search, "--max-params", str(limit), *flags)


def test_the_reward_is_that_of_the_paper() -> None:
    soft = {"alpha": -0.07, "beta": -0.07}
    assert reward(0.8, 50.0, 100.0, **soft) == pytest.approx(0.8 * 0.5**-0.07)
    assert reward(0.8, 200.0, 100.0, **soft) == pytest.approx(0.8 * 2**-0.07)
    # the rule that w comes of: twice the latency is worth about 5% of accuracy
    assert reward(0.8 * 1.05, 200.0, 100.0, **soft) == pytest.approx(0.8, rel=2e-3)


def test_the_hard_form_counts_only_what_is_beyond() -> None:
    hard = {"alpha": 0.0, "beta": -1.0}
    assert reward(0.8, 50.0, 100.0, **hard) == reward(0.8, 100.0, 100.0, **hard) == 0.8
    assert reward(0.8, 400.0, 100.0, **hard) == pytest.approx(0.2)


@pytest.mark.parametrize("score", [0.8, -0.8])
def test_costing_more_is_never_worth_more(score: float) -> None:
    rewards = [reward(score, cost, 100.0, -0.07, -0.5) for cost in (1.0, 50.0, 100.0, 300.0)]
    assert rewards == sorted(rewards, reverse=True)


def test_cells_beyond_the_limit_are_evaluated_as_they_are(make_search: MakeSearch) -> None:
    search, method = limited(make_search, 0.1, "--evaluations", "5")
    drawn = [method.strategy.ask() for _ in range(30)]
    assert search.budget is not None
    beyond = [cell for cell in drawn if not search.budget.meets(method.cells.A_bar(cell))]
    assert beyond and all(method.within(cell) == cell for cell in drawn)


def test_the_controller_is_told_the_reward_and_the_best_within_is_kept(
    make_search: MakeSearch,
) -> None:
    search, method = limited(make_search, 0.5, "--evaluations", "400")
    budget = search.budget
    assert budget is not None
    told: list[float] = []
    expected: list[float] = []
    plain = method.strategy.tell
    method.strategy.tell = lambda cell, score: (told.append(score), plain(cell, score))  # type: ignore[method-assign,assignment,func-returns-value]
    within: list[float] = []
    cell = method.first()
    for number in range(40):
        accuracy = (number * 7 % 40 + 1) / 50
        size = budget.sizes(method.cells.A_bar(cell))
        expected.append(accuracy * (size / budget.limit) ** -0.07)
        if size <= budget.limit:
            within.append(accuracy)
        method.tell(cell, Validation(1.0, accuracy))
        cell = method.strategy.ask()
    assert told == pytest.approx(expected)
    assert 0 < len(within) < 40
    assert method.validation().figure == max(within)
    assert search.returned() is method.architecture()[1]  # nothing to bring within


def test_where_none_was_within_the_largest_reward_is_brought_within(
    make_search: MakeSearch,
) -> None:
    search, method = limited(make_search, 0.0, "--evaluations", "400")
    budget = search.budget
    assert budget is not None
    rewards = {}
    cell = method.first()
    while len(rewards) < 10:
        if not budget.meets(method.cells.A_bar(cell)):
            accuracy = 0.5 + len(rewards) / 100
            method.tell(cell, Validation(1.0, accuracy))
            rewards[cell] = method.reward(cell, accuracy)
        else:
            method.strategy.tell(cell, 0.0)
        cell = method.strategy.ask()
    assert method.best == max(rewards, key=lambda each: rewards[each])
    assert budget.meets(search.returned()) and not budget.meets(method.architecture()[1])


def test_without_a_limit_the_reward_is_the_score(make_search: MakeSearch) -> None:
    _, method = made(make_search)
    assert method.reward(method.first(), 0.7) == 0.7
    for flag in ("--reward-alpha", "--reward-beta"):
        with pytest.raises(InputError, match="without a limit"):
            made(make_search, flag, "-0.5")
    with pytest.raises(InputError, match="from -10 to 0"):
        made(make_search, "--reward-beta", "0.5", "--max-params", "100M")
