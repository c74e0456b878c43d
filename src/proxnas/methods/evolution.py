"""Regularised evolution (Real, Aggarwal, Huang, Le, 'Regularized Evolution for Image Classifier
Architecture Search', AAAI 2019: AmoebaNet).

A queue of P cells, at first random. Then again and again: S of them are drawn with replacement, the
best of these is copied with one mutation, the copy is evaluated and appended, and the oldest cell
is dropped, however good it is. The mutations:

    hidden state   one input of one node is read from another state (never one that the node reads
                   already)
    operation      one candidate is replaced by another
    identity       nothing changes (p = 0.05); the cell is evaluated again

The first two have equal chances, where the space has both.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated

import torch

from proxnas.common.options import COUNT_OR_NONE
from proxnas.common.types import State
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells, Place, changed, stored, uniform
from proxnas.methods.options import CELLS, CountsSkips, SamplesCells
from proxnas.methods.sampling import Sampling

TRIES = 100
"""Mutations that are drawn to find one which the limit of skip connections allows."""


@dataclass(frozen=True)
class EvolutionOptions(CountsSkips, SamplesCells):
    """Regularised evolution: mutations of the best of a few, the oldest cell dies."""

    evaluations: Annotated[int, CELLS] = 24
    """Cells to evaluate, each trained for an equal share of the epochs."""
    population: Annotated[int, COUNT_OR_NONE] = 0
    """Cells that are kept; 0: 100, or a quarter of fewer than 400 evaluations."""
    tournament: Annotated[int, COUNT_OR_NONE] = 0
    """Cells drawn from them, of which the best is a parent; 0: a quarter of the population."""


@dataclass(frozen=True)
class Constants:
    """AmoebaNet's."""

    population: int = 100
    tournament: int = 25
    identity: float = 0.05
    """Chance that a child is its parent."""


class Evolution:
    """A queue of cells with their scores, the oldest first.

    With several workers there are no generations to wait for: a child is drawn as soon as one is
    free, from those that are known by then, as in the paper's own distributed runs.
    """

    in_order = False

    def __init__(self, cells: Cells, options: Constants, generator: torch.Generator) -> None:
        self.cells, self.options, self.generator = cells, options, generator
        # a full deque drops its other end when something is appended: the oldest dies
        self.population: deque[tuple[Cell, float]] = deque(maxlen=options.population)
        # the i-th input of the n-th node; a mutation needs something else that it could be
        slots = [(n, i, place) for n, place in enumerate(cells.places) for i in range(place.inputs)]
        rewirable = [(n, i) for n, i, place in slots if len(place.rows) > place.inputs]
        replaceable = [(n, i) for n, i, place in slots if len(place.usable) > 1]
        kinds = ((rewirable, Place.rewirings), (replaceable, Place.replacements))
        self.kinds = [(where, change) for where, change in kinds if where]

    def ready(self) -> bool:
        return True

    def ask(self) -> Cell:
        """A random cell until the population is full, then a mutation of the best of a
        tournament."""
        if len(self.population) < self.options.population:
            return self.cells.draw(self.generator)
        return self.mutated(self.parent())

    def tell(self, cell: Cell, score: float) -> None:
        """The youngest; a full queue drops the oldest."""
        self.population.append((cell, score))

    def parent(self) -> Cell:
        """The best of S cells drawn with replacement."""
        drawn = [
            uniform(len(self.population), self.generator) for _ in range(self.options.tournament)
        ]
        return max((self.population[i] for i in drawn), key=lambda member: member[1])[0]

    def mutated(self, cell: Cell) -> Cell:
        """A copy of the cell with one mutation."""
        if (
            not self.kinds
            or float(torch.rand((), generator=self.generator)) < self.options.identity
        ):
            return cell
        for _ in range(TRIES):
            # first the kind of mutation, then where: kinds have equal chances, not places
            slots, alternatives = self.kinds[uniform(len(self.kinds), self.generator)]
            n, i = slots[uniform(len(slots), self.generator)]
            picks = alternatives(self.cells.places[n], cell[n], i)
            child = changed(cell, n, i, picks[uniform(len(picks), self.generator)])
            if self.cells.allows(child):
                return child
        return cell

    def state_dict(self) -> State:
        return {"population": list(self.population), "generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        members = ((stored(cell), score) for cell, score in state["population"])
        self.population = deque(members, maxlen=self.options.population)
        self.generator.set_state(state["generator"])


def sizes(evaluations: int, population: int, tournament: int) -> Constants:
    """The options; 0: AmoebaNet's 100, or a quarter of few evaluations; and a quarter of the
    population."""
    P = population or max(1, min(Constants.population, evaluations // 4))
    return Constants(P, tournament or max(1, P // 4))


class EvolutionSearch(Sampling):
    """Sampling by that strategy."""

    Options = EvolutionOptions

    def __init__(self, setup: Setup[EvolutionOptions]) -> None:
        o, generator = setup.options, torch.Generator().manual_seed(setup.seed)
        constants = sizes(o.evaluations, o.population, o.tournament)
        super().__init__(setup, Evolution(Cells(setup.net.groups), constants, generator))
