"""A discrete cell as decisions: what the sampling methods draw, change and remember.

A pick is (row, candidate): an edge that a node keeps, and what runs on it. A cell is the picks of
every node, group after group, in the order of their rows, so that equal cells are equal tuples.
What is drawn has one pick an edge; some methods (gdas, asng) find cells with two candidates on one
edge, and these are cells too. Plain numbers: a history of thousands of cells costs little and goes
into a checkpoint as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import NamedTuple

import torch

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, SKIP, Group
from proxnas.core.selection import random_selection
from proxnas.core.size.budget import Budget

Pick = tuple[int, int]
NodePicks = tuple[Pick, ...]
Cell = tuple[NodePicks, ...]


class Place(NamedTuple):
    """A node of a group: the rows that it may read, how many of them it keeps, and the candidates
    on them."""

    group: str
    rows: tuple[int, ...]
    inputs: int
    usable: tuple[int, ...]

    def replacements(self, picks: NodePicks, i: int) -> list[Pick]:
        """Candidates on the edge of the i-th pick that are not there yet."""
        e, _ = picks[i]
        return [(e, k) for k in self.usable if (e, k) not in picks]

    def rewirings(self, picks: NodePicks, i: int) -> list[Pick]:
        """The candidate of the i-th pick on edges that the node does not keep."""
        taken = {e for e, _ in picks}
        return [(e, picks[i][1]) for e in self.rows if e not in taken]

    def options(self) -> list[NodePicks]:
        """Everything that the node can be."""
        return [
            tuple(zip(rows, candidates, strict=True))
            for rows in combinations(self.rows, self.inputs)
            for candidates in product(self.usable, repeat=self.inputs)
        ]


class Cells:
    """The cells that the groups of a space allow; `none` only where a node keeps every edge."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.groups = groups
        self.places = tuple(
            _place(name, group, rows) for name, group in groups.items() for rows in group.nodes
        )

    def draw(self, generator: torch.Generator) -> Cell:
        """A cell drawn uniformly."""
        return self.of(
            {name: random_selection(group, generator) for name, group in self.groups.items()}
        )

    def of(self, A_bar: Matrices) -> Cell:
        """The cell that a discrete A_bar selects: all its entries, also where several are of one
        edge."""
        rows = {name: matrix.tolist() for name, matrix in A_bar.items()}
        return tuple(
            tuple((e, k) for e in place.rows for k, a in enumerate(rows[place.group][e]) if a)
            for place in self.places
        )

    def A_bar(self, cell: Cell) -> Matrices:
        """The selection of a cell: 1 at its picks."""
        A_bar = {
            name: torch.zeros(group.shape, dtype=torch.float64)
            for name, group in self.groups.items()
        }
        for place, picks in zip(self.places, cell, strict=True):
            for e, k in picks:
                A_bar[place.group][e, k] = 1.0
        return A_bar

    def within(self, budget: Budget | None, cell: Cell) -> Cell:
        """The cell itself, or the one within the limit that has most of it."""
        A_bar = self.A_bar(cell)
        # the cell as its own scores: projected, it keeps as many of its picks as fit
        return self.of(budget.project(A_bar, A_bar)) if budget else cell

    def neighbours(self, cell: Cell) -> list[Cell]:
        """The cells that differ in one decision: another candidate on an edge, or another edge for
        an input."""
        return [
            changed(cell, n, i, pick)
            for n, (place, picks) in enumerate(zip(self.places, cell, strict=True))
            for i in range(len(picks))
            for pick in place.replacements(picks, i) + place.rewirings(picks, i)
        ]

    def on_inputs(self, cell: Cell) -> Cell:
        """The cell with the same candidates on the first edges of its nodes, so that they read the
        inputs of the cell and no way through it is longer than it must be."""
        return tuple(map(_on_first_edges, self.places, cell))

    def allows(self, cell: Cell) -> bool:
        """Whether no group has more skip connections than it may."""
        return all(
            group.max_skip is None or self._skips(cell, name) <= group.max_skip
            for name, group in self.groups.items()
        )

    def _skips(self, cell: Cell, name: str) -> int:
        candidates = self.groups[name].candidates
        mine = (
            picks for place, picks in zip(self.places, cell, strict=True) if place.group == name
        )
        return sum(candidates[k] == SKIP for picks in mine for _, k in picks)


def _on_first_edges(place: Place, picks: NodePicks) -> NodePicks:
    """The candidates of a node, in their order, on its first edges; of a node that has two on one
    edge nothing changes."""
    if len({e for e, _ in picks}) < len(picks):
        return picks
    return tuple((e, k) for e, (_, k) in zip(place.rows, picks, strict=False))


def _place(name: str, group: Group, rows: tuple[int, ...]) -> Place:
    everything = tuple(range(len(group.candidates)))
    if group.max_inputs is None:
        # every edge is kept, and `none` is how one is left out
        return Place(name, rows, len(rows), everything)
    # a group that has nothing but `none` keeps it
    usable = tuple(k for k in everything if group.candidates[k] != NONE) or everything
    return Place(name, rows, min(group.max_inputs, len(rows)), usable)


def changed(cell: Cell, n: int, i: int, pick: Pick) -> Cell:
    """The cell with another i-th pick of its n-th node."""
    # sorted by row, so that equal cells stay equal tuples
    picks = cell[n]
    return (*cell[:n], tuple(sorted((*picks[:i], pick, *picks[i + 1 :]))), *cell[n + 1 :])


def stored(cell: list[list[list[int]]] | Cell) -> Cell:
    """A cell in tuples, whatever sequences it was kept in."""
    return tuple(tuple((e, k) for e, k in picks) for picks in cell)


def uniform(number: int, generator: torch.Generator) -> int:
    """One of 0 .. number - 1."""
    return int(torch.randint(number, (), generator=generator))
