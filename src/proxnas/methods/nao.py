"""Neural architecture optimization (Luo, Tian, Qin, Chen, Liu, NeurIPS 2018: NAO).

    round 1   random cells are evaluated
    round r   encoder, predictor f and decoder (autoencoder.py) are fitted to all cells evaluated so
              far; from the best of them, embeddings h take a step uphill,
                  h' = h + eta df/dh,
              for several eta; of what the decoder makes of the h', the new cells with the largest
              f are evaluated

The first round has 60% of the evaluations, as in the paper (600 of 1,000), the others equal parts
of the rest. What differs: the model is fitted anew in every round, by as many steps whatever the
number of cells, and its decoder to random cells too; the gradient is scaled to length 1 at every
decision; new cells are ranked by f (theirs are those of the smallest eta that gives enough); a
decoded cell is always one of the space, because only decisions that can be made are; where the
decoder says nothing new, random cells take its place. The paper's swapping of a node's two inputs
in its training data is not needed: a cell is written with its inputs in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch

from proxnas.common.options import COUNT, Range
from proxnas.methods.autoencoder import AutoencoderOptions, Language, fit
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells
from proxnas.methods.options import CELLS, SamplesCells
from proxnas.methods.sampling import Sampling
from proxnas.methods.strategy import InRounds


@dataclass(frozen=True)
class NaoOptions(SamplesCells):
    """Gradient ascent in an embedding of cells, which is learnt from those evaluated."""

    public: ClassVar[str] = "NAO"

    evaluations: Annotated[int, CELLS] = 24
    """Cells to evaluate, each trained for an equal share of the epochs."""
    rounds: Annotated[int, Range(2, 1000)] = 3
    """Rounds of evaluations; the first is of random cells."""
    predictor_steps: Annotated[int, COUNT] = 200
    """Steps that encoder, predictor and decoder are trained before every other round."""


@dataclass(frozen=True)
class Constants:
    """The paper's, where the evaluations allow."""

    first: float = 0.6
    """Share of the evaluations that the first round has."""
    seeds: int = 100
    """Most cells that steps are taken from; with few evaluations the better half."""
    eta: float = 0.25
    """The shortest step, and how much longer the next one is."""
    lengths: int = 20
    """Lengths of steps that are tried."""
    tries: int = 100
    """Random cells that are drawn to find one that was not evaluated yet."""
    model: AutoencoderOptions = field(default_factory=AutoencoderOptions)


class Nao(InRounds):
    """The round under way: cells that wait, and everything evaluated so far."""

    def __init__(
        self,
        cells: Cells,
        options: NaoOptions,
        generator: torch.Generator,
        within: Callable[[Cell], Cell] = lambda cell: cell,
        constants: Constants | None = None,
    ) -> None:
        """`within`: what is evaluated in a cell's place, which the model must learn of."""
        super().__init__(options.evaluations, generator)
        self.cells, self.within = cells, within
        self.constants, self.rounds = constants or Constants(), options.rounds
        self.model = replace(self.constants.model, steps=options.predictor_steps)
        self.language = Language(cells)

    def ask(self) -> Cell:
        """The next cell of the round; when all evaluations are done, any cell."""
        if not self.waiting:
            self.waiting = self._next_round() if self.left > 0 else [self._random()]
        self.asked.append(self.waiting.pop(0))
        return self.asked[-1]

    def _next_round(self) -> list[Cell]:
        self.round += 1
        if self.round == 1:
            found: list[Cell] = []
            number = max(1, int(self.constants.first * self.left))
        else:
            # after the last round there may be some left, of evaluations that it had no room for
            number = max(1, self.left // max(1, self.rounds - self.round + 1))
            found = self.climb(number)
        while len(found) < number:
            found.append(self._random(found))
        return found

    def climb(self, number: int) -> list[Cell]:
        """Up to so many new cells, uphill from the best that were seen: those that the predictor
        promises most of."""
        model = fit(self.language, self.seen, self.model, self.generator)
        most = min(self.constants.seeds, max(1, len(self.seen) // 2))
        best = sorted(self.seen, key=lambda pair: -pair[1])[:most]
        h = model.embed([cell for cell, _ in best])
        known = {cell for cell, _ in self.seen}
        found: dict[Cell, None] = {}
        for length in range(1, self.constants.lengths + 1):
            # every length from where the cells stand, not from where the last step led
            decoded = model.decode(model.ascend(h, length * self.constants.eta))
            for cell in map(self.within, decoded):
                if cell not in known:
                    found[cell] = None
        # those that no evaluation has seen, by f of their own embeddings
        return model.ranked(list(found))[:number]

    def _random(self, besides: list[Cell] | None = None) -> Cell:
        """A random cell, if possible none that was seen."""
        known = {cell for cell, _ in self.seen}.union(besides or ())
        for _ in range(self.constants.tries):
            cell = self.within(self.cells.draw(self.generator))
            if cell not in known:
                break
        return cell


class NaoSearch(Sampling):
    """Sampling by that strategy."""

    Options = NaoOptions

    def __init__(self, setup: Setup[NaoOptions]) -> None:
        cells, generator = Cells(setup.net.groups), torch.Generator().manual_seed(setup.seed)

        def within(cell: Cell) -> Cell:
            return cells.within(setup.budget, cell)

        super().__init__(setup, Nao(cells, setup.options, generator, within))
