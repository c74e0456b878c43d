"""Random search: cells drawn uniformly, each trained from the same initial weights for an equal share of the epochs,
the best by validation loss kept (the baseline of Liu et al. 2019, which trained 24 cells)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from proxnas.methods.base import Metrics, Setup, WeightOptimizer, weight_step
from proxnas.selection import changed, random_selection
from proxnas.types import Matrices, State


class Random:
    """Trains `cells` random cells one after the other within the epochs of one search."""

    def __init__(self, setup: Setup) -> None:
        self.net, self.train, self.valid, self.clock = setup.net, setup.train, setup.valid, setup.clock
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.initial = {name: x.detach().clone() for name, x in self.net.module.state_dict().items()}
        weights, cells = setup.weights, setup.architecture.random_cells
        self.steps_per_cell = max(1, weights.epochs * len(self.train) // cells)
        # the cosine runs over the share of one cell
        steps_per_epoch = math.ceil(self.steps_per_cell / weights.epochs)
        self.w_optimizer = WeightOptimizer(self.net, weights, steps_per_epoch)
        self.A_bar = self._draw()
        self.best = self.A_bar
        self.best_loss = math.inf

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
        loss = float(self._validation_loss())
        if loss < self.best_loss:
            self.best, self.best_loss = self.A_bar, loss
        self.A_bar = self._draw()
        self.net.module.load_state_dict(self.initial)
        self.w_optimizer.restart()

    @torch.no_grad()
    def _validation_loss(self) -> Tensor:
        losses = [self.net.loss(self.valid.next())[0] for _ in range(len(self.valid))]
        return torch.stack(losses).mean()

    def _draw(self) -> Matrices:
        return {name: random_selection(group, self.generator) for name, group in self.net.groups.items()}

    def use_current(self) -> None:
        self.net.use(self.A_bar)

    def architecture(self) -> tuple[Matrices, Matrices]:
        """The best cell so far, as both A and A_bar: random search has no continuous architecture."""
        return self.best, self.best

    def state_dict(self) -> State:
        return {
            "A_bar": self.A_bar,
            "best": self.best,
            "best_loss": self.best_loss,
            "generator": self.generator.get_state(),
            "w_optimizer": self.w_optimizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.A_bar, self.best, self.best_loss = state["A_bar"], state["best"], state["best_loss"]
        self.generator.set_state(state["generator"])
        self.w_optimizer.load_state_dict(state["w_optimizer"])
