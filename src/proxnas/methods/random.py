"""Random search: cells drawn uniformly, each trained from the same initial weights for an equal share of the epochs,
the best by validation loss kept (the baseline of Liu et al. 2019, which trained 24 cells)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from proxnas.methods.base import Metrics, Setup, Validation, random_cell, weight_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.selection import changed
from proxnas.types import Matrices, State


class Random:
    """Trains `cells` random cells one after the other within the epochs of one search."""

    def __init__(self, setup: Setup) -> None:
        self.net, self.train, self.clock = setup.net, setup.train, setup.clock
        self.evaluate = setup.evaluate
        self.budget = setup.budget
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.initial = {name: x.detach().clone() for name, x in self.net.module.state_dict().items()}
        weights, cells = setup.weights, setup.architecture.random_cells
        self.steps_per_cell = max(1, weights.epochs * len(self.train) // cells)
        # the cosine runs over the share of one cell, step by step
        self.w_optimizer = WeightOptimizer(self.net, replace(weights, epochs=self.steps_per_cell), steps_per_epoch=1)
        self.A_bar = self._draw()
        self.best = self.A_bar
        self.measured = Validation(math.inf, 0.0)

    def step(self) -> Metrics:
        """One weight step of the cell in training; at the end of its share it is judged and the next one drawn."""
        before = self.best
        self.use_current()
        batch = self.train.next()
        loss, right = weight_step(self.net, batch, self.w_optimizer, self.clock)
        if self.w_optimizer.t == self.steps_per_cell:
            with self.clock("arch"):
                self._judge()
        return Metrics(loss, right, len(batch.y), changed(before, self.best))

    def _judge(self) -> None:
        measured = self.evaluate()
        if measured.loss < self.measured.loss:
            self.best, self.measured = self.A_bar, measured
        self.A_bar = self._draw()
        self.net.module.load_state_dict(self.initial)
        self.w_optimizer.restart()

    def _draw(self) -> Matrices:
        return random_cell(self.net, self.generator, self.budget)

    def use_current(self) -> None:
        self.net.use(self.A_bar)

    def validation(self) -> Validation:
        """As the best cell was judged; before the first is, the one in training."""
        if math.isfinite(self.measured.loss):
            return self.measured
        self.use_current()
        return self.evaluate()

    def architecture(self) -> tuple[Matrices, Matrices]:
        """The best cell so far, as both A and A_bar: random search has no continuous architecture."""
        return self.best, self.best

    def state_dict(self) -> State:
        return {
            "A_bar": self.A_bar,
            "best": self.best,
            "measured": list(self.measured),
            "generator": self.generator.get_state(),
            "w_optimizer": self.w_optimizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.A_bar, self.best, self.measured = state["A_bar"], state["best"], Validation(*state["measured"])
        self.generator.set_state(state["generator"])
        self.w_optimizer.load_state_dict(state["w_optimizer"])
