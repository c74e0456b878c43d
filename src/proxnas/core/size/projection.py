"""The cell within a limit that loses the least score: an exact knapsack over the rows of A.

    maximise  sum of A[e,k] over the selected entries     subject to  sum of cost[e,k] <= room

over the cells of the space: one candidate a row; a node keeps as many inputs as the space says; no
more skip connections than allowed. Rows are taken one after the other. For each way to stand in a
cell (inputs kept at this node, skip connections so far) only those beginnings are kept that no
other beats in both cost and score, so nothing that could become the best is lost; with a handful of
different costs they stay few.

E edges, K candidates; A and cost are (E, K) for each group, costs at least 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, SKIP, Group

Array = np.ndarray[Any, Any]
ABSENT = -1
"""In place of a candidate: the row is not among the inputs that its node keeps."""
SLACK = 1e-12
"""Of the room: a sum of seconds may come out a little different in another order."""


class State(NamedTuple):
    """Where a beginning stands: what it has used up that limits what may follow."""

    inputs: int = 0
    skips: int = 0


class Front(NamedTuple):
    """The beginnings in one state that no other beats, by rising cost and rising score."""

    cost: Array
    score: Array
    before: list[tuple[State, int]]
    """Where each came from: its state and number before the last row ..."""
    chosen: list[int]
    """... and what that row chose."""


@dataclass(frozen=True)
class Line:
    """One row of A as the knapsack sees it."""

    group: str
    e: int
    options: tuple[tuple[int, float, float], ...]
    """(candidate or ABSENT, cost, score)."""
    skip: int
    """The candidate that counts as a skip connection; ABSENT: none does."""
    inputs: range | None
    """How many inputs the node may keep, if this is its last row."""
    ends: bool
    """Whether this is the last row of its group."""
    most_inputs: int
    most_skips: int


def best_within(
    A: Matrices, costs: Matrices, groups: Mapping[str, Group], room: float
) -> Matrices | None:
    """A_bar (entries 0 and 1) with the largest sum of A whose cost is at most `room`; None if every
    cell costs more."""
    lines = [
        line for name, group in groups.items() for line in _lines(name, group, A[name], costs[name])
    ]
    start = Front(np.zeros(1), np.zeros(1), [(State(), 0)], [ABSENT])
    layers: list[dict[State, Front]] = [{State(): start}]
    for line in lines:
        # all layers are kept: the way back from the best ending goes through them
        layers.append(_extended(layers[-1], line, room * (1 + SLACK)))
    # after the last row both counters are back at 0, so there is one ending state
    end = layers[-1].get(State())
    if end is None:
        return None
    return _traced(lines, layers, {name: torch.zeros_like(a) for name, a in A.items()})


def _lines(name: str, group: Group, A: Any, costs: Any) -> Iterator[Line]:
    scores, prices = A.tolist(), costs.tolist()
    limited = group.max_inputs is not None
    # with a limited number of inputs `none` is the same as not being among them: ABSENT
    usable = [k for k, op in enumerate(group.candidates) if not limited or op != NONE]
    counted = (
        group.max_skip is not None
        and not set(group.candidates) <= {SKIP, NONE}
        and SKIP in group.candidates
    )
    for n, rows in enumerate(group.nodes):
        most = len(rows) if group.max_inputs is None else min(group.max_inputs, len(rows))
        # with `none` among the candidates a node may keep fewer, but never no input at all
        least = 0 if not usable else 1 if limited and NONE in group.candidates else most
        for e in rows:
            # a skip connection uses up what others may want: there the beaten can matter
            present = _undominated([(k, prices[e][k], scores[e][k]) for k in usable], counted)
            yield Line(
                group=name,
                e=e,
                options=(*present, (ABSENT, 0.0, 0.0)) if limited else tuple(present),
                skip=group.candidates.index(SKIP) if counted else ABSENT,
                inputs=range(least, most + 1) if e == rows[-1] else None,
                ends=e == rows[-1] and n == len(group.nodes) - 1,
                most_inputs=most,
                most_skips=group.max_skip if counted and group.max_skip is not None else 0,
            )


def _undominated(
    options: list[tuple[int, float, float]], counted: bool
) -> list[tuple[int, float, float]]:
    """Without the candidates that another of the row beats in cost and score; all, where skip
    connections count."""
    if counted:
        return options
    kept: list[tuple[int, float, float]] = []
    for option in sorted(options, key=lambda o: (o[1], -o[2])):
        if not kept or option[2] > kept[-1][2]:
            kept.append(option)
    return kept


def _extended(layer: dict[State, Front], line: Line, room: float) -> dict[State, Front]:
    """All beginnings, each with each option of one more row, by the states they lead to."""
    parts: dict[State, list[tuple[State, Front, int, float, float]]] = {}
    for state, front in layer.items():
        for k, cost, score in line.options:
            inputs = state.inputs + (k != ABSENT)
            skips = state.skips + (k == line.skip != ABSENT)
            if inputs > line.most_inputs or skips > line.most_skips:
                continue
            if line.inputs is not None:
                # the node is complete, and has too few
                if inputs not in line.inputs:
                    continue
                inputs = 0
            # inputs are counted within a node, skip connections within a group
            after = State(inputs, 0 if line.ends else skips)
            parts.setdefault(after, []).append((state, front, k, cost, score))
    fronts = {after: _joined(incoming, room) for after, incoming in parts.items()}
    return {after: front for after, front in fronts.items() if len(front.cost)}


def _joined(parts: list[tuple[State, Front, int, float, float]], room: float) -> Front:
    # (all beginnings of all parts,), part after part
    cost = np.concatenate([front.cost + c for _, front, _, c, _ in parts])
    score = np.concatenate([front.score + a for _, front, _, _, a in parts])
    # by cost, among equals the best score first (lexsort takes its last key for the first)
    order = np.lexsort((-score, cost))
    order = order[cost[order] <= room]
    # the front: those that score more than everything as cheap or cheaper
    rising = np.maximum.accumulate(score[order]) if len(order) else score[order]
    order = order[np.r_[True, rising[1:] > rising[:-1]]] if len(order) else order
    starts = np.cumsum([0, *(len(front.cost) for _, front, *_ in parts)])
    # back from places in the concatenation to (part, place in its front)
    of = np.searchsorted(starts, order, side="right") - 1
    before = [(parts[p][0], int(i - starts[p])) for p, i in zip(of, order, strict=True)]
    return Front(cost[order], score[order], before, [parts[p][2] for p in of])


def _traced(lines: list[Line], layers: list[dict[State, Front]], A_bar: Matrices) -> Matrices:
    """The choices of the best ending, from the last row to the first."""
    state = State()
    i = len(layers[-1][state].score) - 1  # scores rise with costs
    for line, (_, layer) in zip(reversed(lines), reversed(list(pairwise(layers))), strict=True):
        front = layer[state]
        if front.chosen[i] != ABSENT:
            A_bar[line.group][line.e, front.chosen[i]] = 1.0
        state, i = front.before[i]
    return A_bar
