"""Random search with weight sharing (Li & Talwalkar, 'Random Search and Reproducibility for NAS',
UAI 2019).

Every step draws a uniformly random cell and trains the shared weights through it. After the last
step N random cells are judged on the same ten validation batches, the ten best of them on the whole
half for A, and the best of these by loss is returned (the public code judged 1,000). The judging is
part of the last step, so its time is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from proxnas.common.types import Batch, Matrices, State
from proxnas.core.selection import changed
from proxnas.methods.base import Setup, mean_loss, random_cell, weight_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import CELLS, CountsSkips, TrainsPartly, Traits
from proxnas.runs.metrics import Metrics


class DrawsCells:
    """The cell of the last step, the best that is known, and who draws and trains."""

    drawn: Matrices
    best: Matrices
    generator: torch.Generator
    w_optimizer: WeightOptimizer

    def architecture(self) -> tuple[Matrices, Matrices]:
        """The cell that would be returned, as both A and A_bar: there is no continuous
        architecture."""
        return self.best, self.best

    def state_dict(self) -> State:
        return {
            "drawn": self.drawn,
            "best": self.best,
            "generator": self.generator.get_state(),
            "w": self.w_optimizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.drawn, self.best = state["drawn"], state["best"]
        self.generator.set_state(state["generator"])
        self.w_optimizer.load_state_dict(state["w"])


@dataclass(frozen=True)
class RandomWsOptions(TrainsPartly, CountsSkips):
    """Random cells by shared weights, judged at the end."""

    public: ClassVar[str] = "RandomWS"
    traits: ClassVar[Traits] = Traits(comes_to_rest=False)
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0}

    random_cells: Annotated[int, CELLS] = 100
    """Cells that are judged at the end."""


@dataclass(frozen=True)
class Constants:
    """How the cells are judged, as the public code does it."""

    batches: int = 10
    """Validation batches that all cells are judged on."""
    finalists: int = 10
    """Best cells that are judged on the whole half for A."""


class RandomWs(DrawsCells):
    """Uniformly sampled paths; the choice falls at the end."""

    Options = RandomWsOptions

    def __init__(self, setup: Setup[RandomWsOptions], constants: Constants | None = None) -> None:
        self.constants = constants or Constants()
        self.net, self.train = setup.net, setup.train
        self.valid, self.clock = setup.valid, setup.clock
        self.evaluate, self.cells = setup.evaluate, setup.options.random_cells
        self.budget = setup.budget
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.steps = setup.weights.epochs * len(self.train)
        self.w_optimizer = WeightOptimizer(self.net, setup.weights, len(self.train))
        self.drawn = self.best = self._draw()

    def step(self) -> Metrics:
        """One weight step on a random cell; after the last one the judging."""
        batch, before = self.train.next(), self.drawn
        self.drawn = self._draw()
        self.net.use(self.drawn)
        loss, right = weight_step(self.net, batch, self.w_optimizer, self.clock)
        if self.w_optimizer.t == self.steps:
            self.choose_now()
        return Metrics(loss, right, len(batch.y), changed(before, self.drawn))

    def choose_now(self) -> None:
        with self.clock("arch"):
            self.best = self.choose()

    def choose(self) -> Matrices:
        """The best of N random cells by the shared weights."""
        # the same for all cells: what differs between losses is the cells
        batches = [self.valid.next() for _ in range(self.constants.batches)]
        judged = []
        for _ in range(self.cells):
            cell = self._draw()
            judged.append((self.loss(cell, batches), cell))
        finalists = sorted(judged, key=lambda pair: pair[0])[: self.constants.finalists]
        # a few batches are enough to drop most cells, not to choose between the best
        return min((cell for _, cell in finalists), key=self._on_everything)

    def loss(self, cell: Matrices, batches: list[Batch]) -> float:
        """The mean loss of a cell on some batches."""
        self.net.use(cell)
        return mean_loss(self.net, batches)

    def _on_everything(self, cell: Matrices) -> float:
        self.net.use(cell)
        return self.evaluate().loss

    def occasional(self, steps: int, epochs: int) -> tuple[Callable[[], object], float]:
        """Judging one cell on one batch, and how often that falls to a step; the finalists are not
        counted."""
        return (
            lambda: self.loss(self._draw(), [self.valid.next()]),
            self.cells * self.constants.batches / steps / epochs,
        )

    def _draw(self) -> Matrices:
        return random_cell(self.net, self.generator, self.budget)
