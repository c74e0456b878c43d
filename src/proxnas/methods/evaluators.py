"""How a cell is evaluated, in one of two ways:

    by training   from the same initial weights and on the same batches, for an equal share of the
                  search's steps, over a whole cosine; then its validation on the half for A, on as
                  many batches at most: judging a short training on everything would take longer
                  than the training. What differs between two cells is then the cells. An epoch is
                  as many training images as for any other method.
    by a judge    any `evaluate: Genotype -> float`, for example a look-up in a table of trained
                  networks; a step is then one evaluation, and losses are reported as 1 - accuracy.

Either can stop after any step and go on as if it had not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from proxnas.cells.genotype import Genotype
from proxnas.common.types import Matrices, State
from proxnas.methods.base import Setup, weight_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import SamplesCells
from proxnas.runs.consensus import mean_of
from proxnas.runs.metrics import Validation

Evaluate = Callable[[Genotype], float]


LATE = 5
"""Of the steps of a short training its last fifth: what it has come to, over many batches."""


class Work(NamedTuple):
    """What one step of an evaluation did; `measured` after the last of a cell."""

    loss: Tensor
    correct: Tensor
    images: int
    measured: Validation | None


class Evaluator(Protocol):
    """Evaluates one cell after the other, step by step."""

    def step(self, A_bar: Matrices) -> Work: ...

    def late_loss(self) -> float:
        """The mean loss of the last steps of the training that has just ended."""

    def measure(self, A_bar: Matrices) -> Validation:
        """How good the cell under way is as it stands."""

    def judge(self, A_bar: Matrices) -> Validation:
        """How good a cell is that nobody asked for; what is under way is left as it is."""

    def keep(self) -> None:
        """Remember what came of the cell just judged: it is the best so far."""

    def restore(self) -> None:
        """Give the network what was remembered."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class ByTraining:
    """Trains each cell anew for an equal share of the search."""

    def __init__(self, setup: Setup[SamplesCells]) -> None:
        self.net, self.train = setup.net, setup.train
        self.clock, self.evaluate = setup.clock, setup.evaluate
        # every cell begins with these weights and this batch
        self.initial, self.keeps = self._copied(), setup.keep_weights
        self.beginning = self.train.state_dict()
        self.kept: dict[str, Tensor] | None = None
        weights, cells = setup.weights, setup.options.evaluations
        self.steps_per_cell = max(1, weights.epochs * len(self.train) // cells)
        self.late_steps, self.late_losses = max(1, self.steps_per_cell // LATE), 0.0
        # the cosine runs over the share of one cell, step by step
        self.w_optimizer = WeightOptimizer(
            self.net, replace(weights, epochs=self.steps_per_cell), steps_per_epoch=1
        )

    def step(self, A_bar: Matrices) -> Work:
        """One weight step, the first of a cell on fresh weights and the first batch; after the last
        it is judged."""
        if self.w_optimizer.t == 0:
            self.net.module.load_state_dict(self.initial)
            self.train.load_state_dict(self.beginning)
            self.late_losses = 0.0
        self.net.use(A_bar)
        batch = self.train.next()
        loss, right = weight_step(self.net, batch, self.w_optimizer, self.clock)
        if self.w_optimizer.t > self.steps_per_cell - self.late_steps:
            # the host waits here anyway: the loss of these steps belongs to the score
            self.late_losses += float(loss)
        done = self.w_optimizer.t == self.steps_per_cell
        return Work(loss, right, len(batch.y), self._finish() if done else None)

    def _finish(self) -> Validation:
        with self.clock("arch"):
            measured = self.evaluate(self.steps_per_cell)
            self.w_optimizer.restart()
        return measured

    def late_loss(self) -> float:
        late = torch.tensor([self.late_losses / self.late_steps], device=self.net.device)
        return float(mean_of(late, 1))  # several processes must agree

    def _copied(self) -> dict[str, Tensor]:
        return {name: x.detach().clone() for name, x in self.net.module.state_dict().items()}

    def keep(self) -> None:
        if self.keeps:
            self.kept = self._copied()

    def restore(self) -> None:
        if self.kept is not None:
            self.net.module.load_state_dict(self.kept)

    def measure(self, A_bar: Matrices) -> Validation:
        self.net.use(A_bar)
        return self.evaluate()

    def judge(self, A_bar: Matrices) -> Validation:
        # what a training changes is put back afterwards
        weights, batches = self._copied(), self.train.state_dict()
        # a state dict refers to the momentum itself, which the training would go on changing
        optimizer = copy.deepcopy(self.w_optimizer.state_dict())
        late = self.late_losses
        seconds = self.clock.take()  # whoever wants to know counts these as its own
        self.w_optimizer.restart()
        measured = None
        while measured is None:
            measured = self.step(A_bar).measured
        self.net.module.load_state_dict(weights)
        self.train.load_state_dict(batches)
        self.w_optimizer.load_state_dict(optimizer)
        self.clock.seconds, self.late_losses = seconds, late
        return measured

    def state_dict(self) -> State:
        state = self.w_optimizer.state_dict() | {"late": self.late_losses}
        return state | {"initial": self.initial, "kept": self.kept} if self.keeps else state

    def load_state_dict(self, state: State) -> None:
        self.w_optimizer.load_state_dict(state)
        self.late_losses = state["late"]
        if self.keeps:
            self.initial, self.kept = state["initial"], state["kept"]


class ByJudge:
    """Asks somebody who knows; nothing is trained."""

    def __init__(self, setup: Setup[SamplesCells], judge: Evaluate) -> None:
        assert setup.genotype is not None, "a judge is asked about genotypes"
        self.ask, self.genotype, self.clock = judge, setup.genotype, setup.clock
        self.device = setup.net.device

    def step(self, A_bar: Matrices) -> Work:
        with self.clock("arch"):
            measured = self.measure(A_bar)
        # (1 - accuracy, accuracy) as if of one image
        loss, right = torch.tensor(measured, device=self.device).unbind(0)
        return Work(loss, right, 1, measured)

    def late_loss(self) -> float:
        """Nothing was trained."""
        return 0.0

    def measure(self, A_bar: Matrices) -> Validation:
        accuracy = self.ask(self.genotype(A_bar))
        return Validation(1 - accuracy, accuracy)

    def judge(self, A_bar: Matrices) -> Validation:
        return self.measure(A_bar)

    def keep(self) -> None:
        """There are no weights."""

    def restore(self) -> None:
        """There are no weights."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing is kept."""
