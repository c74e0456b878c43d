"""Genetic CNN (Xie, Yuille, 'Genetic CNN', ICCV 2017: GeNet): a genetic algorithm over codes of
fixed length, in stages.

    N random individuals are evaluated; then in every generation
    selection   N are drawn with replacement, with chances in proportion to r - min r, where r is
                the score of an individual and the minimum that of its generation
    crossover   two that stand next to each other exchange, with chance p_C, each of their stages
                with chance q_C
    mutation    of one that was not crossed, with chance p_M, every decision changes with chance q_M
    evaluation

A stage is what exchanges as a whole, so that what belongs together stays together: there a stage of
the network, here a group of the space (a kind of cell, a stage), or a node where there is one group
only. A decision is a bit there; here another candidate, or another input of a node that chooses.

A cell is trained from the same weights on the same batches each time, so one that is known has its
score already (theirs is evaluated again, and the scores are averaged).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from proxnas.common.options import COUNT_OR_NONE
from proxnas.common.types import State
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells, changed, stored, uniform
from proxnas.methods.options import CELLS, CountsSkips, SamplesCells
from proxnas.methods.sampling import Sampling

TRIES = 10
"""Generations that are bred to find one with a cell that is not known yet."""

Member = tuple[Cell, float]


@dataclass(frozen=True)
class GenetOptions(CountsSkips, SamplesCells):
    """A genetic algorithm: roulette selection, crossover of stages, mutation."""

    public: ClassVar[str] = "GeNet"

    evaluations: Annotated[int, CELLS] = 24
    """Cells to evaluate, each trained for an equal share of the epochs."""
    population: Annotated[int, COUNT_OR_NONE] = 0
    """Cells of a generation; 0: 20, or a quarter of fewer than 80 evaluations."""


@dataclass(frozen=True)
class Constants:
    """The paper's for CIFAR-10."""

    population: int = 20
    crossing: float = 0.2
    """p_C: chance of a pair to be crossed ..."""
    exchanging: float = 0.2
    """... q_C: and of each stage to be exchanged then."""
    mutating: float = 0.8
    """p_M: chance of the others to be mutated ..."""
    changing: float = 0.05
    """... q_M: and of each decision to change then."""


class Genetic:
    """A generation after the other; the next begins when all of one are known."""

    in_order = True

    def __init__(self, cells: Cells, constants: Constants, generator: torch.Generator) -> None:
        self.cells, self.constants, self.generator = cells, constants, generator
        self.stages = _stages(cells)
        self.waiting: list[Cell] = []
        """Of this generation, still to be evaluated."""
        self.out = 0
        """Asked for and not told yet."""
        self.generation: list[Member] = []
        """Those of it that are known."""
        self.scores: dict[Cell, float] = {}
        """Of all cells so far."""

    def ready(self) -> bool:
        return bool(self.waiting) or not self.out

    def ask(self) -> Cell:
        """The next of the generation, or the first of a new one."""
        if not self.waiting:
            self._begin()
        self.out += 1
        return self.waiting.pop(0)

    def tell(self, cell: Cell, score: float) -> None:
        self.out -= 1
        self.scores[cell] = score
        self.generation.append((cell, score))

    def _begin(self) -> None:
        """A new generation: random at first, else bred until one of it is not known yet."""
        if not self.generation:
            drawn = (self._draw() for _ in range(self.constants.population))
            self.waiting = list(dict.fromkeys(drawn))
            return
        for _ in range(TRIES):
            bred = self.bred(self.generation)
            self.waiting = list(dict.fromkeys(c for c in bred if c not in self.scores))
            # of this generation the known ones count at once, the others when they are told
            self.generation = [(c, self.scores[c]) for c in bred if c in self.scores]
            if self.waiting:
                return
        self.waiting = [self._draw()]

    def bred(self, generation: list[Member]) -> list[Cell]:
        """Selection, crossover and mutation."""
        parents = self.selected(generation)
        children: list[Cell] = []
        for one, other in zip(parents[::2], parents[1::2], strict=False):
            if self._chance(self.constants.crossing):
                children += self.crossed(one, other)
            else:
                children += [self._perhaps_mutated(one), self._perhaps_mutated(other)]
        # the last of an odd number has nobody beside it
        if len(parents) % 2:
            children.append(self._perhaps_mutated(parents[-1]))
        pairs = zip(children, parents, strict=True)
        # beyond the limit of skip connections a child gives way to the parent in its place
        return [child if self.cells.allows(child) else parent for child, parent in pairs]

    def selected(self, generation: list[Member]) -> list[Cell]:
        """N of them by a roulette whose weights are the scores above the worst."""
        scores = torch.tensor([score for _, score in generation], dtype=torch.float64)
        # the worst of a generation has no chance at all
        weights = scores - scores.min()
        if not bool(weights.sum() > 0):  # all alike
            weights = torch.ones_like(weights)
        number = self.constants.population
        drawn = torch.multinomial(weights, number, replacement=True, generator=self.generator)
        return [generation[i][0] for i in drawn.tolist()]

    def crossed(self, one: Cell, other: Cell) -> list[Cell]:
        """Both with some of their stages exchanged."""
        first, second = list(one), list(other)
        for stage in self.stages:
            if self._chance(self.constants.exchanging):
                for n in stage:
                    first[n], second[n] = second[n], first[n]
        return [tuple(first), tuple(second)]

    def _perhaps_mutated(self, cell: Cell) -> Cell:
        return self.mutated(cell) if self._chance(self.constants.mutating) else cell

    def mutated(self, cell: Cell) -> Cell:
        """Every decision changed by chance."""
        for n, place in enumerate(self.cells.places):
            for i in range(len(cell[n])):
                if self._chance(self.constants.changing):
                    others = place.replacements(cell[n], i) + place.rewirings(cell[n], i)
                    if others:
                        cell = changed(cell, n, i, others[uniform(len(others), self.generator)])
        return cell

    def _draw(self) -> Cell:
        return self.cells.draw(self.generator)

    def _chance(self, p: float) -> bool:
        return float(torch.rand((), generator=self.generator)) < p

    def state_dict(self) -> State:
        return {
            "waiting": self.waiting,
            "out": self.out,
            "generation": self.generation,
            "scores": list(self.scores.items()),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.waiting = [stored(cell) for cell in state["waiting"]]
        self.out = state["out"]
        self.generation = [(stored(cell), score) for cell, score in state["generation"]]
        self.scores = {stored(cell): score for cell, score in state["scores"]}
        self.generator.set_state(state["generator"])


def _stages(cells: Cells) -> list[list[int]]:
    """The numbers of the nodes that are exchanged together."""
    names = [place.group for place in cells.places]
    groups = list(dict.fromkeys(names))
    if len(groups) == 1:
        return [[n] for n in range(len(names))]
    return [[n for n, name in enumerate(names) if name == group] for group in groups]


class GenetSearch(Sampling):
    """Sampling by that strategy."""

    Options = GenetOptions

    def __init__(self, setup: Setup[GenetOptions]) -> None:
        o, generator = setup.options, torch.Generator().manual_seed(setup.seed)
        number = o.population or max(2, min(Constants.population, o.evaluations // 4))
        strategy = Genetic(Cells(setup.net.groups), Constants(number), generator)
        super().__init__(setup, strategy)
