"""Wired groups, where sizes are counted: their rows are connections, there or not, and what has a
size are the nodes that have any connection. That is no sum over rows.

So a wired group is one row of the knapsack: every set of connections is a column, of as much size
as the nodes that it connects. There are 1,024 at most in the space `genet`.

E connections, N nodes, M = 2^E sets of connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
from torch import Tensor

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, SKIP, Group

NODE = "node"
"""What a node is, if it is there."""


@cache
def connections(group: Group) -> Tensor:
    """All sets of connections (M, E)."""
    E = group.shape[0]
    columns = torch.arange(2**E).unsqueeze(1)
    # bit e of column m tells whether set m has connection e
    return (columns >> torch.arange(E)) & 1 == 1


def connected(group: Group) -> Tensor:
    """The nodes that have a connection (M, N), by the sets of connections."""
    there = connections(group)
    found = torch.zeros(len(there), len(group.nodes) + 1, dtype=torch.bool)
    for j, rows in enumerate(group.nodes, 1):
        # rows of node j are the connections from each node i before it
        for i, e in enumerate(rows):
            found[:, i] |= there[:, e]
            found[:, j] |= there[:, e]
    return found


def nodes_of(groups: Mapping[str, Group]) -> dict[str, Group]:
    """The groups of a network in which it is the nodes of wired groups that are there or not."""
    return {name: _nodes(group) if group.wired else group for name, group in groups.items()}


def _nodes(group: Group) -> Group:
    return Group((NONE, NODE), tuple((n,) for n in range(len(group.nodes) + 1)))


def sets_of(groups: Mapping[str, Group]) -> dict[str, Group]:
    """The groups with one row for each wired one, of which a column is a set of connections."""
    return {name: _sets(group) if group.wired else group for name, group in groups.items()}


def _sets(group: Group) -> Group:
    return Group(tuple(map(str, range(len(connections(group))))))


def set_entries(entries: Matrices, groups: Mapping[str, Group]) -> Matrices:
    """What each set of connections adds to a network (1, M), from what each node does (N, 2)."""
    return {
        name: (connected(groups[name]) * x[:, 1]).sum(1)[None] if groups[name].wired else x
        for name, x in entries.items()
    }


def set_scores(A: Matrices, groups: Mapping[str, Group]) -> Matrices:
    """Sums of A (1, M) by sets of connections; never one with more than the group may have."""
    return {name: _scores(a, groups[name]) if groups[name].wired else a for name, a in A.items()}


def _scores(A: Tensor, group: Group) -> Tensor:
    there = connections(group)
    # (E,) each: what A gives for leaving a connection out, and for making it
    absent, present = (A[:, group.candidates.index(name)] for name in (NONE, SKIP))
    return allowed(torch.where(there, present, absent).sum(1)[None], group)


def allowed(scores: Tensor, group: Group) -> Tensor:
    """The same (1, M) with -inf for sets of more connections than the group may have."""
    if group.max_skip is None or not group.wired:
        return scores
    return scores.masked_fill(connections(group).sum(1) > group.max_skip, -torch.inf)


def selected_sets(A_bar: Matrices, groups: Mapping[str, Group]) -> Matrices:
    """A_bar with 1 at the set of connections that it selects."""
    return {
        name: _selected(a, groups[name]) if groups[name].wired else a for name, a in A_bar.items()
    }


def _selected(A_bar: Tensor, group: Group) -> Tensor:
    there = A_bar[:, group.candidates.index(SKIP)] != 0
    # (M, E) == (E,): one set agrees in all connections
    return (connections(group) == there).all(1)[None].to(A_bar.dtype)


def unfolded(sets: Matrices, groups: Mapping[str, Group]) -> Matrices:
    """A_bar of the sets of connections that are selected."""
    return {
        name: _unfolded(a, groups[name]) if groups[name].wired else a for name, a in sets.items()
    }


def _unfolded(selected: Tensor, group: Group) -> Tensor:
    # (E,)
    there = connections(group)[int(selected.argmax())]
    A_bar = torch.zeros(group.shape, dtype=selected.dtype)
    A_bar[:, group.candidates.index(SKIP)] = there.to(A_bar.dtype)
    A_bar[:, group.candidates.index(NONE)] = (~there).to(A_bar.dtype)
    return A_bar
