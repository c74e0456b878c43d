"""What moves A: how it starts, the steps it takes, and what the methods are told about them. What
trains w is in optimizers.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from proxnas.common.errors import InputError
from proxnas.common.types import Matrices, State
from proxnas.runs.divergence import Diverged


@dataclass(frozen=True)
class ArchitectureOptions:
    """How A starts and moves; where paper and public code differ, `--preset` chooses."""

    optimizer: str = "adam"
    """adam, sgd, or scaled: one common scale for all entries (`STEPS`)."""
    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.5, 0.999)
    weight_decay: float = 0.0
    noise: float = 1e-3
    """Standard deviation of the normal noise around the initial 0.5; without it all rows tie."""
    value: str = "one"
    """Value of the selected entry of A_bar: `one`, or `a_k` as in the paper."""
    ties: str = "last"
    """Equal entries (and rows all zero): `first` index but `none`, or the `last` selected, else
    random by seed."""
    eta: float = 0.0
    """Weight of the size regulariser R."""
    eta_cells: str = "all"
    """Cells that R counts: `all`, or the `normal` cell only as in the public code."""
    eta_at: str = "A_bar"
    """Where R is taken: at `A_bar`, or at `A`."""
    order: int = 1
    """1: gradient at w. 2: DARTS' second-order gradient."""
    warmup: float = 0.0
    """Epochs at the start in which only w is trained."""
    every: int = 1
    """Update A in every so many-th step."""
    score_batch: float = 1.0
    """Share of the validation batch that unselected candidates are scored on."""
    score_nodes: float = 1.0
    """Chance of a node to be scored in a step."""
    explore: float = 0.0
    """Scale of the Gumbel noise on A when a step selects, falling to 0 over the search."""
    look_ahead: int = 0
    """Least steps between two looks ahead (four an epoch at most) at what training a candidate
    promises; 0: none."""
    horizon: float = 1.0
    """How many steps of its training a candidate is credited with."""
    random_cells: int = 100
    """How many cells `random-ws` draws and judges."""
    evaluations: int = 8
    """How many cells a sampling method evaluates."""
    population: int = 0
    """Cells that `evolution` keeps; 0: 100, or a quarter of fewer than 400 evaluations."""
    tournament: int = 0
    """Of them, drawn to find a parent; 0: a quarter."""
    tau: tuple[float, float] = (1.0, 0.1)
    """Temperature at the start and at the end (snas, gdas, asap)."""
    resource: float = 0.0
    """Weight of SNAS' expected resource cost."""
    fixed_reduction: bool = False
    """GDAS with its reduction cell fixed."""
    unsampled: str = "zero"
    """Gradient of GDAS' unsampled entries: `zero`, or the `sum` of the public NAS-Bench-201
    code."""
    controller_steps: int = 30
    """Updates of ENAS' controller after each epoch."""

    def due(self, t: int, steps_per_epoch: int) -> bool:
        """Whether step t updates A."""
        return t >= self.warmup * steps_per_epoch and t % self.every == 0

    def check_due(self, steps_per_epoch: int, epochs: int) -> None:
        """An InputError if no step updates A: what is returned would be the noise that it starts
        as."""
        first, steps = (
            self.every * math.ceil(self.warmup * steps_per_epoch / self.every),
            steps_per_epoch * epochs,
        )
        if first >= steps:
            every = f" --arch-every {self.every}" if self.every > 1 else ""
            raise InputError(
                f"--warmup {self.warmup:g}{every}: in none of the {steps} steps of --epochs"
                f" {epochs} would A move: give less, or more --epochs"
            )


def diverged() -> Diverged:
    """What to say when the architecture can no longer be moved."""
    return Diverged("the architecture gradient")


class ArchitectureOptimizer:
    """Adam on A, which it owns; the gradient is given, not computed by autograd."""

    def __init__(self, A: Matrices, options: ArchitectureOptions) -> None:
        self.A = A
        self.optimizer: torch.optim.Optimizer | ScaledDescent = STEPS[options.optimizer](
            list(A.values()), options
        )

    def step(self, dA: Matrices) -> None:
        if not all(g.isfinite().all() for g in dA.values()):
            raise diverged()
        for name, A in self.A.items():
            A.grad = dA[name]
        self.optimizer.step()

    def state_dict(self) -> State:
        return {"A": self.A, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State) -> None:
        for name, A in self.A.items():
            A.copy_(state["A"][name])
        self.optimizer.load_state_dict(state["optimizer"])


class ScaledDescent:
    """Gradient descent divided by the root mean square of all entries together.

    Adam gives each entry a scale of its own and so moves a faint but steady score as far as a
    strong one; A is meant to rank by strength.
    """

    MEMORY = 0.99

    def __init__(self, A: list[Tensor], options: ArchitectureOptions) -> None:
        self.A, self.options = A, options
        self.mean_square, self.t = 0.0, 0

    def step(self) -> None:
        gradients = [a.grad + self.options.weight_decay * a for a in self.A if a.grad is not None]
        square = float(torch.cat([g.flatten() for g in gradients]).square().mean())
        self.mean_square = self.MEMORY * self.mean_square + (1 - self.MEMORY) * square
        self.t += 1
        scale = math.sqrt(self.mean_square / (1 - self.MEMORY**self.t)) or 1.0
        for a, g in zip(self.A, gradients, strict=True):
            a.sub_(g, alpha=self.options.learning_rate / scale)

    def state_dict(self) -> State:
        return {"mean_square": self.mean_square, "t": self.t}

    def load_state_dict(self, state: State) -> None:
        self.mean_square, self.t = state["mean_square"], state["t"]


def _adam(A: list[Tensor], o: ArchitectureOptions) -> torch.optim.Optimizer:
    return torch.optim.Adam(A, o.learning_rate, o.betas, weight_decay=o.weight_decay)


def _sgd(A: list[Tensor], o: ArchitectureOptions) -> torch.optim.Optimizer:
    return torch.optim.SGD(A, o.learning_rate, weight_decay=o.weight_decay)


STEPS: dict[
    str, Callable[[list[Tensor], ArchitectureOptions], torch.optim.Optimizer | ScaledDescent]
] = {
    "adam": _adam,
    "sgd": _sgd,
    "scaled": ScaledDescent,
}
"""How A moves, by name."""
