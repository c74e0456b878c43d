"""An architecture as a vector of categorical variables: one candidate a row, or one input and one
candidate a slot.

Where a node keeps every edge, each row is a variable over its candidates. Where it keeps n inputs
it has n slots of two variables each: which edge, and which candidate on it (never `none`). Two
slots may choose one edge; if they choose the same candidate too, the node has one input less.

E edges, K candidates; A_bar is (E, K) for each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, Group


class Slot(NamedTuple):
    """One choice of an edge among `rows` and of a candidate among `usable`."""

    group: str
    rows: tuple[int, ...]
    usable: tuple[int, ...]


class Variables:
    """The slots of all groups, two variables each; a variable over one category is there and
    decides nothing."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.groups = groups
        self.slots = [slot for name, group in groups.items() for slot in _slots(name, group)]
        self.sizes = [n for slot in self.slots for n in (len(slot.rows), len(slot.usable))]

    def A_bar(self, values: Sequence[int]) -> Matrices:
        """The architecture that the values of all variables select."""
        A_bar = self._zeros()
        for slot, edge, candidate in zip(self.slots, values[::2], values[1::2], strict=True):
            A_bar[slot.group][slot.rows[edge], slot.usable[candidate]] = 1.0
        return A_bar

    def marginals(self, theta: Sequence[Tensor]) -> Matrices:
        """How likely each entry of A_bar is 1, if the variables are independent with probabilities
        theta."""
        absent = {name: 1 + zeros for name, zeros in self._zeros().items()}
        for slot, p_edge, p_candidate in zip(self.slots, theta[::2], theta[1::2], strict=True):
            chosen = torch.outer(p_edge, p_candidate)
            absent[slot.group][torch.tensor(slot.rows)[:, None], torch.tensor(slot.usable)] *= (
                1 - chosen
            )
        return {name: 1 - a for name, a in absent.items()}

    def _zeros(self) -> Matrices:
        return {
            name: torch.zeros(group.shape, dtype=torch.float64)
            for name, group in self.groups.items()
        }


def _slots(name: str, group: Group) -> Iterator[Slot]:
    everything = tuple(range(len(group.candidates)))
    if group.max_inputs is None:
        yield from (Slot(name, (e,), everything) for rows in group.nodes for e in rows)
        return
    usable = tuple(k for k in everything if group.candidates[k] != NONE) or everything
    for rows in group.nodes:
        yield from (Slot(name, rows, usable) for _ in range(min(group.max_inputs, len(rows))))
