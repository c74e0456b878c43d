"""Reinforcement learning of a controller by PPO (Zoph, Vasudevan, Shlens, Le, 'Learning
Transferable Architectures for Scalable Image Recognition', CVPR 2018: NASNet; Schulman et al.,
'Proximal Policy Optimization Algorithms', 2017).

An LSTM makes the decisions d_1 .. d_D of a cell one after the other (controller.py). The reward R
of a cell is its score, the same for all its decisions. After every n cells:

    b <- 0.95 b + 0.05 R for each of them in turn, the first b being their mean;  advantage  a = R -
        b
    r_t = p_new(d_t) / p_old(d_t)
    maximise  mean_t min(r_t a, clip(r_t, 1 - eps, 1 + eps) a) + beta entropy    by a few steps of
              Adam

p_old stays that of the draw through these steps, so that all of them together stay near it.

N cells of an update, D decisions of a cell.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from proxnas.common.options import POSITIVE
from proxnas.common.types import State
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells
from proxnas.methods.controller import Controller, ControllerOptions, Trace, given
from proxnas.methods.options import CELLS, HasRateOfA, SamplesCells
from proxnas.methods.sampling import Sampling


def nasnet() -> ControllerOptions:
    """One layer of 100 units, weights U(-0.08, 0.08), plain softmax; no candidate is favoured."""
    return ControllerOptions(hidden=100, spread=0.08, tanh=None, tanh_candidates=None, favoured=())


@dataclass(frozen=True)
class ReinforceOptions(HasRateOfA, SamplesCells):
    """A controller draws cells and learns from their scores by PPO."""

    evaluations: Annotated[int, CELLS] = 24
    """Cells to evaluate, each trained for an equal share of the epochs."""
    arch_learning_rate: Annotated[float, POSITIVE] = 3.5e-4
    """Rate of the controller's Adam."""


@dataclass(frozen=True)
class Constants:
    """NASNet's baseline and entropy, PPO's clip and epochs."""

    controller: ControllerOptions = field(default_factory=nasnet)
    learning_rate: float = 3.5e-4
    batch: int = 20
    """Cells of an update."""
    steps: int = 4
    """Steps of Adam on them."""
    clip: float = 0.2
    """How far the probability of a decision may move, as a share of it, before moving it further
    counts for nothing."""
    baseline: float = 0.95
    entropy: float = 1e-5


@dataclass(frozen=True)
class Drawn:
    """A cell that waits for the next update: what was decided, how likely that was, what it was
    worth."""

    decisions: tuple[int, ...]
    logs: tuple[float, ...]
    reward: float


class Reinforce:
    """A controller, and the cells drawn since its last update."""

    in_order = True

    def __init__(self, cells: Cells, options: Constants, generator: torch.Generator) -> None:
        self.cells, self.options, self.generator = cells, options, generator
        self.controller = Controller(cells.groups, options.controller, generator)
        self.adam = torch.optim.Adam(self.controller.parameters(), options.learning_rate)
        self.baseline: float | None = None
        self.asked: list[tuple[tuple[int, ...], tuple[float, ...]]] = []
        self.waiting: list[Drawn] = []

    def ready(self) -> bool:
        """The cells of an update need not wait for each other; the next ones are drawn after it."""
        # told and untold together: all cells of an update come from one controller
        return len(self.waiting) + len(self.asked) < self.options.batch

    @torch.no_grad()
    def ask(self) -> Cell:
        trace: Trace = self.controller(self.generator)
        decisions = tuple(int(index) for index in trace.decisions)
        # p_old goes along: by the time of the update the controller is no longer the one that drew
        self.asked.append((decisions, tuple(trace.log_probabilities[0].tolist())))
        return self.cells.of(trace.A_bar)

    def tell(self, cell: Cell, score: float) -> None:
        self.waiting.append(Drawn(*self.asked.pop(0), score))
        if len(self.waiting) == self.options.batch:
            self.update()

    def update(self) -> None:
        """Some steps of Adam on the clipped objective of the cells that wait."""
        advantages = torch.tensor(self._advantages())
        decisions = torch.tensor([drawn.decisions for drawn in self.waiting])
        old = torch.tensor([drawn.logs for drawn in self.waiting])
        for _ in range(self.options.steps):
            # the same decisions again, for how likely they are by now: (N, D)
            trace = self.controller.decide(given(decisions), len(decisions))
            value = clipped(trace.log_probabilities, old, advantages, self.options.clip)
            self.adam.zero_grad()
            # Adam descends, the objective is to rise
            (-(value + self.options.entropy * trace.entropies.mean())).backward()
            self.adam.step()
        self.adam.zero_grad()
        self.waiting = []

    def _advantages(self) -> list[float]:
        rewards = [drawn.reward for drawn in self.waiting]
        # a first baseline of 0 would call every cell of the first update good
        b = statistics.fmean(rewards) if self.baseline is None else self.baseline
        advantages = []
        for reward in rewards:
            b = self.options.baseline * b + (1 - self.options.baseline) * reward
            advantages.append(reward - b)
        self.baseline = b
        return advantages

    def state_dict(self) -> State:
        return {
            "controller": self.controller.state_dict(),
            "adam": self.adam.state_dict(),
            "baseline": self.baseline,
            "asked": list(self.asked),
            "waiting": [(drawn.decisions, drawn.logs, drawn.reward) for drawn in self.waiting],
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.controller.load_state_dict(state["controller"])
        self.adam.load_state_dict(state["adam"])
        self.baseline, self.asked = state["baseline"], list(state["asked"])
        self.waiting = [Drawn(*drawn) for drawn in state["waiting"]]
        self.generator.set_state(state["generator"])


def clipped(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    """PPO's objective: the mean over cells and decisions (N, D) of min(r a, clip(r, 1 - eps, 1 +
    eps) a)."""
    # (N, D) and (N, 1): every decision of a cell has the advantage of the cell
    r, a = (new - old).exp(), advantages[:, None]
    return torch.minimum(r * a, r.clamp(1 - eps, 1 + eps) * a).mean()


class ReinforceSearch(Sampling):
    """Sampling by that strategy; with few evaluations an update has fewer cells, lest there be
    none."""

    Options = ReinforceOptions

    def __init__(self, setup: Setup[ReinforceOptions]) -> None:
        o, generator = setup.options, torch.Generator().manual_seed(setup.seed)
        batch = max(1, min(Constants.batch, o.evaluations // 5))
        constants = Constants(learning_rate=o.arch_learning_rate, batch=batch)
        super().__init__(setup, Reinforce(Cells(setup.net.groups), constants, generator))
