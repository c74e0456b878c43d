"""Local search (White, Nolen, Savani, 'Exploring the Loss Landscape in Neural Architecture Search',
UAI 2021).

All cells that differ from the current one in one decision are evaluated; the best of them is the
next, until none is better. Then it begins anew at a random cell. The first cell is random too, or
one that is given (`--start`): a cell that another method found with shared weights is thereby
judged against its neighbours, each trained by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch

from proxnas.common.types import State
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells, stored
from proxnas.methods.options import CELLS, CountsSkips, SamplesCells
from proxnas.methods.sampling import Sampling


class Local:
    """The cell that stands in the middle, those around it that wait, and how good all were."""

    in_order = True

    def __init__(
        self,
        cells: Cells,
        start: Cell | None,
        generator: torch.Generator,
        proposals: Callable[[Cells, Cell], list[Cell]] | None = None,
        within: Callable[[Cell], Cell] = lambda cell: cell,
    ) -> None:
        """`proposals`: what is tried around a cell, in that order; without them its neighbours, in
        random order. `within`: what a limit makes of a cell; those of which it makes the same
        are one."""
        self.cells, self.generator = cells, generator
        self.proposals, self.within = proposals, within
        self.middle = within(start or cells.draw(generator))
        # first of all the middle itself: its neighbours must beat it
        self.waiting = [self.middle]
        self.around: list[Cell] = []
        self.known: dict[Cell, float] = {}
        self.asked = 0

    def ready(self) -> bool:
        """The neighbours of a cell need not wait for each other; the next step needs them all."""
        return bool(self.waiting) or not self.asked

    def ask(self) -> Cell:
        if not self.waiting:
            self._move()
        self.asked += 1
        return self.waiting.pop(0)

    def tell(self, cell: Cell, score: float) -> None:
        self.known[cell] = score
        self.asked -= 1

    def _move(self) -> None:
        """To the best neighbour; from a cell that has no better one to a random cell."""
        # all around are known here: this is asked when none waits any more
        best = max(self.around, key=self.known.__getitem__, default=self.middle)
        if self.around and self.known[best] <= self.known[self.middle]:
            return self._begin_anew()
        self.middle = best
        self.around = self._around(best)
        self.waiting = [cell for cell in self._in_order(self.around) if cell not in self.known]
        if self.waiting:
            return
        if self.around:  # all of them are known
            self._move()
        else:
            self._begin_anew()

    def _around(self, middle: Cell) -> list[Cell]:
        """Its neighbours, or what is proposed, each within the limits, once, and none of them the
        cell itself."""
        if self.proposals:
            tried = self.proposals(self.cells, middle)
        else:
            tried = self.cells.neighbours(middle)
        allowed = (self.within(cell) for cell in tried if self.cells.allows(cell))
        return [cell for cell in dict.fromkeys(allowed) if cell != middle]

    def _in_order(self, around: list[Cell]) -> list[Cell]:
        """As proposed; neighbours are mixed."""
        if self.proposals:
            return around
        order = torch.randperm(len(around), generator=self.generator).tolist()
        return [around[i] for i in order]

    def _begin_anew(self) -> None:
        """At a random cell; where cells are proposed there are no others than these, and the same
        again changes nothing."""
        if self.proposals:
            self.waiting, self.around = [self.middle], []
            return
        self.middle, self.around = self.within(self.cells.draw(self.generator)), []
        self.waiting = [self.middle]

    def state_dict(self) -> State:
        return {
            "middle": self.middle,
            "waiting": list(self.waiting),
            "around": list(self.around),
            "known": list(self.known.items()),
            "asked": self.asked,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.middle, self.asked = stored(state["middle"]), state["asked"]
        self.waiting, self.around = (
            [stored(cell) for cell in state[name]] for name in ("waiting", "around")
        )
        self.known = {stored(cell): score for cell, score in state["known"]}
        self.generator.set_state(state["generator"])


@dataclass(frozen=True)
class LocalSearchOptions(CountsSkips, SamplesCells):
    """From a cell to the best of its neighbours, each trained by itself, until none is better."""

    public: ClassVar[str] = "LocalSearch"

    evaluations: Annotated[int, CELLS] = 24
    """Cells to evaluate, each trained for an equal share of the epochs."""
    start: str = ""
    """The cell to begin with: a run folder, a genotype file, zoo:NAME or a NAS-Bench-201 string;
    else random."""


class LocalSearch(Sampling):
    """Sampling by that strategy."""

    Options = LocalSearchOptions

    def __init__(self, setup: Setup[LocalSearchOptions]) -> None:
        cells = Cells(setup.net.groups)
        start = cells.of(setup.start) if setup.start else None
        within = partial(cells.within, setup.budget)
        generator = torch.Generator().manual_seed(setup.seed)
        super().__init__(setup, Local(cells, start, generator, setup.proposals, within))
