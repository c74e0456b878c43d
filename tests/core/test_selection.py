"""selection.py: which inputs a node keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from proxnas.core.groups import Group
from proxnas.core.prox import prox_c1
from proxnas.core.selection import changed, keep_inputs, one_hot, random_selection, without_weights
from proxnas.domains import spaces

THREE = Group(("skip", "conv"), nodes=((0, 1, 2),), max_inputs=2)
WITH_NONE = Group(("none", "skip", "conv"), nodes=((0, 1, 2),), max_inputs=2)


def kept(
    A: list[list[float]], group: Group, priority: list[list[float]] | None = None
) -> list[list[float]]:
    """A -> A_bar by prox_c1 and the node's rule, as lists."""
    order = None if priority is None else torch.tensor(priority)
    matrix = torch.tensor(A, dtype=torch.float64)
    result: list[list[float]] = keep_inputs(matrix, prox_c1(matrix, order), group, order).tolist()
    return result


def test_a_node_keeps_its_two_strongest_edges() -> None:
    assert kept([[0.1, 0.3], [0.9, 0.2], [0.2, 0.4]], THREE) == [[0, 0], [0.9, 0], [0, 0.4]]


def test_every_node_by_itself() -> None:
    group = Group(("skip", "conv"), nodes=((0, 1), (2, 3)), max_inputs=1)
    assert kept([[0.1, 0], [0.2, 0], [0.9, 0], [0.8, 0]], group) == [
        [0, 0],
        [0.2, 0],
        [0.9, 0],
        [0, 0],
    ]


def test_a_none_edge_is_absent_and_does_not_count_as_an_input() -> None:
    A = [[0.9, 0.1, 0.2], [0.1, 0.3, 0.2], [0.1, 0.2, 0.4]]
    assert kept(A, WITH_NONE) == [[0, 0, 0], [0, 0.3, 0], [0, 0, 0.4]]


def test_a_node_of_none_edges_keeps_its_best_edge_that_is_not_none() -> None:
    A = [[0.9, 0.1, 0.2], [0.9, 0.3, 0.5], [0.9, 0.4, 0.1]]
    assert kept(A, WITH_NONE) == [[0, 0, 0], [0, 0, 0.5], [0, 0, 0]]


def test_an_edge_kept_for_want_of_another_is_switched_on_and_stays_in_the_unit_interval() -> None:
    assert kept([[0.9, 0, 0]] * 3, WITH_NONE) == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert kept([[1.9, 1.2, 0], [1.9, 0, 1.3], [1.9, 0, 0]], WITH_NONE) == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 0, 0],
    ]


def test_a_space_without_limit_keeps_every_edge_and_its_empty_nodes() -> None:
    group = spaces.find("nasbench201").groups["cell"]
    A = torch.rand(group.shape, dtype=torch.float64)
    A[:3, 0] = 2.0  # `none` wins on all edges into nodes 1 and 2
    A_bar = prox_c1(A)
    assert torch.equal(keep_inputs(A, A_bar, group), A_bar)
    assert torch.equal(one_hot(A, group), (A_bar != 0).double())


def test_equal_edges_are_kept_by_first_row_or_by_priority_of_the_selected_entry() -> None:
    A = [[0.5, 0.1], [0.5, 0.1], [0.5, 0.1]]
    assert kept(A, THREE) == [[0.5, 0], [0.5, 0], [0, 0]]
    # the high priority of row 1 lies at an entry that is not selected
    assert kept(A, THREE, [[0.1, 0], [0.2, 9], [0.3, 0]]) == [[0, 0], [0.5, 0], [0.5, 0]]


def test_edges_are_ranked_by_their_value_in_A_not_in_A_bar() -> None:
    A = torch.tensor([[1.5, 0], [0.0, 0.0], [2.0, 0], [1.2, 0]], dtype=torch.float64)
    A_bar = torch.tensor([[1.0, 0], [1.0, 0], [1.0, 0], [1.0, 0]], dtype=torch.float64)
    group = Group(("skip", "conv"), nodes=((0, 1, 2, 3),), max_inputs=2)
    assert keep_inputs(A, A_bar, group)[:, 0].tolist() == [1, 0, 1, 0]


def test_one_hot_derives_as_darts() -> None:
    """`none` never counts, and an edge is ranked by its best other entry even where `none` is
    larger."""
    A = torch.tensor([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.5, 0.1, 0.4]], dtype=torch.float64)
    assert one_hot(A, WITH_NONE).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert A[0].tolist() == [0.8, 0.15, 0.05]


def test_changed_counts_entries_switched_on_or_off() -> None:
    before = {"a": torch.tensor([[0.5, 0, 0], [0, 0.5, 0]]), "b": torch.tensor([[1.0, 0]])}
    after = {"a": torch.tensor([[0, 0.5, 0], [0, 0.9, 0]]), "b": torch.tensor([[0.0, 0]])}
    assert changed(before, after) == 3  # one off, one on, a value only, one off
    assert changed(after, after) == 0


@pytest.mark.parametrize("name", spaces.SPACES)
def test_random_selections_are_valid_seeded_and_different(name: str) -> None:
    space = spaces.find(name)
    for group in space.groups.values():
        drawn = [random_selection(group, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
        assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
        for A_bar in drawn:
            check_valid(A_bar, group)


def check_valid(A_bar: Tensor, group: Group) -> None:
    assert A_bar.shape == group.shape
    assert set(A_bar.unique().tolist()) <= {0.0, 1.0}
    assert (A_bar.sum(1) <= 1).all()
    inputs = [int(A_bar[list(rows)].sum()) for rows in group.nodes]
    assert inputs == [group.max_inputs or len(rows) for rows in group.nodes]
    if group.max_inputs and "none" in group.candidates:
        assert A_bar[:, group.candidates.index("none")].sum() == 0


def test_random_selection_reaches_every_operation_and_every_edge() -> None:
    generator = torch.Generator().manual_seed(0)
    total = sum(random_selection(WITH_NONE, generator) for _ in range(300))
    assert isinstance(total, Tensor)
    assert (total[:, 0] == 0).all() and (
        total[:, 1:] > 60
    ).all()  # 300 draws, 2 of 3 edges, 2 operations: 100 each


LIMITED = Group(
    ("none", "skip_connect", "conv", "pool"), nodes=((0, 1), (2, 3, 4)), max_inputs=2, max_skip=1
)


def test_surplus_skip_connections_turn_to_the_next_best_candidate() -> None:
    A = [
        [0, 0.9, 0.3, 0.2],
        [0, 0.8, 0.1, 0.4],
        [0, 0.1, 0.2, 0.3],
        [0.9, 0.7, 0.2, 0.1],
        [0, 0.6, 0.5, 0.2],
    ]
    assert kept(A, LIMITED) == [
        [0, 0.9, 0, 0],
        [0, 0, 0, 0.4],
        [0, 0, 0, 0.3],
        [0, 0, 0, 0],
        [0, 0, 0.5, 0],
    ]


def test_an_edge_that_turned_may_lose_its_place_to_a_stronger_one() -> None:
    A = [
        [0, 0.9, 0.3, 0.2],
        [0, 0.1, 0.8, 0.4],
        [0, 0.5, 0.1, 0.0],
        [0, 0.1, 0.4, 0.1],
        [0, 0.2, 0.1, 0.3],
    ]
    assert kept(A, LIMITED) == [
        [0, 0.9, 0, 0],
        [0, 0, 0.8, 0],
        [0, 0, 0, 0],
        [0, 0, 0.4, 0],
        [0, 0, 0, 0.3],
    ]


@pytest.mark.parametrize("name", ["nasbench201", "darts8"])
@pytest.mark.parametrize("limit", [0, 2])
def test_no_cell_has_more_skip_connections_than_allowed(name: str, limit: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for group in spaces.find(name).groups.values():
        limited = replace(group, max_skip=limit)
        for _ in range(50):
            A = torch.rand(group.shape, generator=generator, dtype=torch.float64)
            A[:, group.candidates.index("skip_connect")] += 0.5
            A_bar = keep_inputs(A, prox_c1(A), limited)
            assert int((A_bar[:, group.candidates.index("skip_connect")] != 0).sum()) <= limit
            assert (
                int(
                    (
                        random_selection(limited, generator)[
                            :, group.candidates.index("skip_connect")
                        ]
                    ).sum()
                )
                <= limit
            )


def test_where_there_is_nothing_else_skip_connections_stay() -> None:
    group = Group(("none", "skip_connect"), nodes=((0, 1),), max_inputs=2, max_skip=0)
    assert kept([[0.1, 0.9], [0.2, 0.8]], group) == [[0, 0.9], [0, 0.8]]


def test_a_cell_without_weights_is_noticed_where_it_had_a_choice() -> None:
    groups = {
        "normal": LIMITED,
        "reduce": Group(("skip_connect", "max_pool_3x3"), nodes=((0, 1),), max_inputs=2),
    }
    A_bar = {"normal": torch.zeros(LIMITED.shape), "reduce": torch.tensor([[1.0, 0.0], [0.0, 1.0]])}
    A_bar["normal"][0, 1] = A_bar["normal"][2, 3] = A_bar["normal"][3, 0] = 1.0
    assert without_weights(A_bar, groups) == ["normal"]
    A_bar["normal"][4, 2] = 0.3
    assert without_weights(A_bar, groups) == []
