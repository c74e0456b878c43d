"""prox.py: members of the set, nearest ones, and every rule for rows where the paper is silent."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from proxnas.core.prox import one_hot_argmax, prox_c, prox_c1, prox_c2

GRID = torch.linspace(0, 1, 101, dtype=torch.float64)


def rows(low: float, high: float) -> st.SearchStrategy[Tensor]:
    """Rows of 1 to 6 candidates, with ties and exact bounds made likely."""
    entry = st.floats(low, high, allow_subnormal=False) | st.sampled_from(
        [low, 0.0, 0.5, 1.0, high]
    )
    return st.lists(entry, min_size=1, max_size=6).map(
        lambda a: torch.tensor(a, dtype=torch.float64)
    )


def has_positive(a: Tensor) -> bool:
    return bool((a > 0).any())


def distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().sum(-1)


def members_of_c(K: int) -> Tensor:
    """One-hot rows of every support and every value of a grid in (0, 1]."""
    return torch.cat([value * torch.eye(K, dtype=torch.float64) for value in GRID[1:]])


def in_c1(b: Tensor) -> bool:
    return int((b != 0).sum()) == 1


def in_c2(b: Tensor) -> bool:
    return bool(((b >= 0) & (b <= 1)).all())


@given(rows(0.0, 1.0).filter(has_positive))
def test_prox_c1_is_a_nearest_member_of_c1(a: Tensor) -> None:
    b = prox_c1(a)
    assert in_c1(b)
    assert torch.equal(prox_c1(b), b)
    # the nearest member with support i keeps a_i: all other members of that support are farther
    nearest = torch.cat([torch.diag(a), members_of_c(len(a))])
    assert distance(a, b) <= distance(a, nearest).min() + 1e-12


@given(rows(-2.0, 3.0))
def test_prox_c1_keeps_the_largest_magnitude_outside_the_unit_interval(a: Tensor) -> None:
    if has_positive(a.abs()):
        assert distance(a, prox_c1(a)) <= distance(a, torch.diag(a)).min() + 1e-12


@given(rows(-2.0, 3.0))
def test_prox_c2_is_the_nearest_point_of_the_box(a: Tensor) -> None:
    b = prox_c2(a)
    assert in_c2(b)
    assert torch.equal(prox_c2(b), b)
    # the box is a product: each coordinate is nearest by itself
    assert ((a - b).abs() <= (a[:, None] - GRID).abs().amin(1) + 1e-12).all()


@given(rows(-2.0, 3.0).filter(has_positive))
def test_prox_c_is_a_nearest_member_of_c(a: Tensor) -> None:
    b = prox_c(a)
    assert in_c1(b) and in_c2(b)
    assert torch.equal(prox_c(b), b)
    best_of_each_support = torch.diag(a.clamp(0, 1))[a > 0]
    sampled = torch.cat([best_of_each_support, members_of_c(len(a))])
    assert distance(a, b) <= distance(a, sampled).min() + 1e-12


def test_proposition_1_as_printed_is_not_exact_above_1() -> None:
    """prox_C1(prox_C2(a)) clips both entries to 1 and forgets which was larger; prox_c does not."""
    a = torch.tensor([1.5, 2.0])
    printed, ours = prox_c1(prox_c2(a)), prox_c(a)
    assert printed.tolist() == [1.0, 0.0] and ours.tolist() == [0.0, 1.0]
    assert distance(a, printed) == 4.25 and distance(a, ours) == 3.25  # distance squared


@pytest.mark.parametrize("prox", [prox_c1, prox_c])
def test_batched_is_row_by_row(prox) -> None:  # type: ignore[no-untyped-def]
    A = torch.rand(3, 14, 5).mul(3).sub(1).round(decimals=1)  # rounded: ties occur
    A[0, 0], A[1, 1] = 0.0, -0.5
    priority = torch.rand(3, 14, 5)
    one_by_one = [prox(a, p) for a, p in zip(A.flatten(0, 1), priority.flatten(0, 1), strict=True)]
    assert torch.equal(prox(A, priority), torch.stack(one_by_one).view_as(A))
    assert torch.equal(prox(A), torch.stack([prox(a) for a in A.flatten(0, 1)]).view_as(A))


@pytest.mark.parametrize("prox", [prox_c1, prox_c])
def test_ties_go_to_the_first_index_or_by_priority(prox) -> None:  # type: ignore[no-untyped-def]
    a = torch.tensor([0.2, 0.7, 0.7, 0.7])
    assert prox(a).nonzero().item() == 1
    assert (
        prox(a, torch.tensor([9.0, 0.1, 0.1, 0.3])).nonzero().item() == 3
    )  # the 0.2 is no tie, whatever its priority
    assert (
        prox(a, torch.tensor([9.0, 0.1, 0.3, 0.3])).nonzero().item() == 2
    )  # equal priorities: the first of them
    assert prox(a, torch.tensor([0.0, -5.0, -3.0, -4.0])).nonzero().item() == 2


@pytest.mark.parametrize("prox", [prox_c1, prox_c])
def test_an_all_zero_row_is_switched_on_at_the_first_index_or_by_priority(prox) -> None:  # type: ignore[no-untyped-def]
    a = torch.zeros(3)
    assert prox(a).tolist() == [1.0, 0.0, 0.0]
    assert prox(a, torch.tensor([0.0, 0.5, 0.1])).tolist() == [0.0, 1.0, 0.0]


def test_an_all_negative_row_of_prox_c_is_switched_on_at_its_largest_entry() -> None:
    assert prox_c(torch.tensor([-3.0, -0.5, -2.0])).tolist() == [0.0, 1.0, 0.0]
    assert prox_c(torch.tensor([-3.0, 0.0, -2.0])).tolist() == [0.0, 1.0, 0.0]


def test_a_single_candidate_is_always_selected() -> None:
    A = torch.tensor([[0.4], [0.0]])
    assert prox_c1(A).tolist() == prox_c(A).tolist() == [[pytest.approx(0.4)], [1.0]]
    assert prox_c(torch.tensor([[-1.0], [1.7]])).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("prox", [prox_c1, prox_c2, prox_c])
def test_nan_and_rows_without_candidates_are_errors(prox) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="NaN"):
        prox(torch.tensor([[0.1, 0.2], [float("nan"), 0.3]]))
    with pytest.raises(ValueError, match="at least one candidate"):
        prox(torch.empty(2, 0))


@given(rows(-1.0, 1.0))
def test_one_hot_argmax_has_one_true_entry_at_the_maximum(a: Tensor) -> None:
    winner = one_hot_argmax(a)
    assert winner.dtype == torch.bool and winner.sum() == 1
    assert a[winner] == a.max()
    assert winner.nonzero().item() == a.tolist().index(a.max())


def test_the_argument_is_not_changed() -> None:
    a = torch.tensor([[1.5, 2.0, -1.0]])
    for prox in (prox_c1, prox_c2, prox_c):
        prox(a)
    assert a.tolist() == [[1.5, 2.0, -1.0]]
