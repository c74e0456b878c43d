"""ENAS (Pham et al., 'Efficient Neural Architecture Search via Parameter Sharing', ICML 2018).

Two phases take turns. For an epoch the shared weights are trained, each batch through one cell
drawn by the controller (an LSTM, controller.py). Then the controller is trained by REINFORCE with a
moving baseline:

    R = accuracy on one validation batch + 1e-4 entropy of the decisions (language models: 80 /
        perplexity + ...)
    b <- b - (1 - 0.99) (b - R)
    gradient of the mean over 10 samples of -(R - b) log p(cell), by Adam (betas 0, 0.999; epsilon
        1e-3), 30 times

After each epoch 10 cells are drawn and judged, on one batch each, after the last on the whole half
for A; the best is the architecture that would be returned. The weights take Nesterov momentum and
four cosines of lengths 1, 2, 4, 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch

from proxnas.common.options import POSITIVE, Range
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.selection import changed
from proxnas.methods.base import Setup, weight_step
from proxnas.methods.controller import Controller, ControllerOptions, recurrent
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import HasRateOfA, TrainsPartly, Traits
from proxnas.runs.consensus import mean_of
from proxnas.runs.metrics import Metrics


@dataclass(frozen=True)
class EnasOptions(TrainsPartly, HasRateOfA):
    """A controller draws cells; it and the shared weights are trained in turn."""

    public: ClassVar[str] = "ENAS"
    traits: ClassVar[Traits] = Traits(comes_to_rest=False)
    defaults: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.05,
        "learning_rate_min": 0.0005,
        "weight_decay": 2e-4,
        "patience": 0,
    }

    arch_learning_rate: Annotated[float, POSITIVE] = 0.0035
    """Rate of the controller's Adam."""
    controller_steps: Annotated[int, Range(1)] = 30
    """Updates of the controller after each epoch, 10 cells each."""


@dataclass(frozen=True)
class Constants:
    """The public micro search, besides the controller's."""

    controller: ControllerOptions = field(default_factory=ControllerOptions)
    aggregate: int = 10
    """Samples whose gradients make one update."""
    baseline: float = 0.99
    entropy: float = 1e-4
    """Weight of the entropy in the reward."""
    perplexity: float | None = None
    """Reward of language models: this over the perplexity; None: accuracy."""
    finalists: int = 10
    """Cells drawn after an epoch, of which the best is kept."""
    cycles: int = 4


def language_model() -> Constants:
    """The corrected public language model."""
    return Constants(recurrent(), baseline=0.999, entropy=1e-5, perplexity=80.0, cycles=1)


class Enas:
    """A controller and shared weights, trained in turn."""

    Options = EnasOptions

    def __init__(self, setup: Setup[EnasOptions], constants: Constants | None = None) -> None:
        self.constants = constants or constants_of(setup)
        self.net, self.train = setup.net, setup.train
        self.valid, self.clock = setup.valid, setup.clock
        self.evaluate, self.updates = setup.evaluate, setup.options.controller_steps
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.controller = Controller(self.net.groups, self.constants.controller, self.generator)
        self.adam = torch.optim.Adam(
            self.controller.parameters(),
            setup.options.arch_learning_rate,
            betas=(0.0, 0.999),
            eps=1e-3,
        )
        self.baseline = 0.0
        weights = replace(setup.weights, nesterov=True, cycles=self.constants.cycles)
        self.w_optimizer = WeightOptimizer(self.net, weights, len(self.train))
        self.steps = weights.epochs * len(self.train)
        # before the controller's first phase a drawn cell is as good as any
        self.drawn = self.best = self.A = self._draw()

    def step(self) -> Metrics:
        """One weight step on a drawn cell; after the last of an epoch the controller's phase."""
        batch, before = self.train.next(), self.drawn
        self.drawn = self._draw()
        self.net.use(self.drawn)
        loss, right = weight_step(self.net, batch, self.w_optimizer, self.clock)
        if self.w_optimizer.t % len(self.train) == 0:
            with self.clock("arch"):
                cells: list[Matrices] = []
                for _ in range(self.updates):
                    cells += self.update()
                self.A = _mean(cells or [self.A])
                self.best = self.choose()
        return Metrics(loss, right, len(batch.y), changed(before, self.drawn))

    def update(self) -> list[Matrices]:
        """One step of REINFORCE; the cells that it drew."""
        traces = [self.controller(self.generator) for _ in range(self.constants.aggregate)]
        for trace in traces:
            # as a number: REINFORCE takes no gradient of R
            reward = (
                self.reward(trace.A_bar, self.valid.next()) + self.constants.entropy * trace.entropy
            )
            # before the advantage: the baseline has seen this reward too
            self.baseline -= (1 - self.constants.baseline) * (self.baseline - reward)
            # one graph at a time: gradients add up until the step
            (-(reward - self.baseline) * trace.log_probability / len(traces)).backward()
        self.adam.step()
        self.adam.zero_grad()
        return [trace.A_bar for trace in traces]

    @torch.no_grad()
    def reward(self, cell: Matrices, batch: Batch) -> float:
        """How good a cell is on a batch, by the shared weights and the statistics of the batch."""
        self.net.use(cell)
        loss, output = self.net.loss(batch)
        right = self.net.objective.measure(loss, output, batch)[1] / len(batch.y)
        figures = mean_of(torch.stack([loss, right.to(loss)]), self.net.objective.examples(batch))
        if self.constants.perplexity is None:
            return float(figures[1])
        return self.constants.perplexity / float(figures[0].exp())

    def choose(self) -> Matrices:
        """The best of a few drawn cells: on a batch, after the last epoch on everything."""
        cells = [self._draw() for _ in range(self.constants.finalists)]
        last = self.w_optimizer.t >= self.steps
        return max(
            cells,
            key=lambda cell: (
                self._on_everything(cell) if last else self.reward(cell, self.valid.next())
            ),
        )

    def _on_everything(self, cell: Matrices) -> float:
        self.net.use(cell)
        return -self.evaluate().loss

    def occasional(self, steps: int, epochs: int) -> tuple[Callable[[], object], float]:
        """One update of the controller, and how often that falls to a step; the finalists are not
        counted."""
        return self.update, self.updates / steps

    def _draw(self) -> Matrices:
        with torch.no_grad():
            A_bar: Matrices = self.controller(self.generator).A_bar
        return A_bar

    def architecture(self) -> tuple[Matrices, Matrices]:
        """A: how often the controller chose each entry in its last phase."""
        return self.A, self.best

    def state_dict(self) -> State:
        return {
            "controller": self.controller.state_dict(),
            "adam": self.adam.state_dict(),
            "baseline": self.baseline,
            "generator": self.generator.get_state(),
            "A": self.A,
            "drawn": self.drawn,
            "best": self.best,
            "w": self.w_optimizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.controller.load_state_dict(state["controller"])
        self.adam.load_state_dict(state["adam"])
        self.baseline = state["baseline"]
        self.generator.set_state(state["generator"])
        self.A, self.drawn, self.best = state["A"], state["drawn"], state["best"]
        self.w_optimizer.load_state_dict(state["w"])


def _mean(cells: list[Matrices]) -> Matrices:
    # (cells, E, K) -> (E, K): the share of the cells that hold an entry
    return {name: torch.stack([cell[name] for cell in cells]).mean(0) for name in cells[0]}


def constants_of(setup: Setup[EnasOptions]) -> Constants:
    """The published ones for cells of images, or for recurrent cells."""
    return language_model() if "recurrent" in setup.net.groups else Constants()
