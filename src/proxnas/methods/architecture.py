"""What moves A: the steps it takes. What trains w is in optimizers.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from proxnas.common.types import Matrices, State
from proxnas.methods.options import DescendsA
from proxnas.runs.divergence import Diverged


def diverged() -> Diverged:
    """What to say when the architecture can no longer be moved."""
    return Diverged("the architecture gradient")


class ArchitectureOptimizer:
    """Moves A, which it owns, by steps of a kind in STEPS; the gradient is given, not computed by
    autograd."""

    def __init__(self, A: Matrices, options: DescendsA, kind: str = "adam") -> None:
        self.A = A
        # A is moved in place: whoever holds these tensors sees every step
        self.optimizer: Steps = STEPS[kind](list(A.values()), options)

    def step(self, dA: Matrices) -> None:
        if not all(g.isfinite().all() for g in dA.values()):
            raise diverged()
        for name, A in self.A.items():
            # as if autograd had put it there
            A.grad = dA[name]
        self.optimizer.step()

    def state_dict(self) -> State:
        return {"A": self.A, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State) -> None:
        for name, A in self.A.items():
            A.copy_(state["A"][name])
        self.optimizer.load_state_dict(state["optimizer"])


class Steepness:
    """The root mean square of all entries of gradients together, over the last hundred steps or
    so."""

    MEMORY = 0.99

    def __init__(self) -> None:
        self.mean_square, self.t = 0.0, 0

    def add(self, gradients: Iterable[Tensor]) -> None:
        """The gradients of one step; those that are 0 everywhere say nothing."""
        square = float(torch.cat([g.flatten() for g in gradients]).square().mean())
        if not square:
            return
        self.mean_square = self.MEMORY * self.mean_square + (1 - self.MEMORY) * square
        self.t += 1

    @property
    def value(self) -> float:
        """0 before the first step."""
        # the mean begins at 0: divided by the weight that it has gathered so far, as in Adam
        return math.sqrt(self.mean_square / (1 - self.MEMORY**self.t)) if self.t else 0.0


class ScaledDescent:
    """Gradient descent divided by the root mean square of all entries together.

    Adam gives each entry a scale of its own and so moves a faint but steady score as far as a
    strong one; A is meant to rank by strength.
    """

    def __init__(self, A: list[Tensor], options: DescendsA) -> None:
        self.A, self.options = A, options
        self.steepness = Steepness()

    def step(self) -> None:
        gradients = [a.grad + self.options.arch_decay * a for a in self.A if a.grad is not None]
        self.steepness.add(gradients)
        # 0 only as long as all gradients were: nothing moves then, whatever the scale
        scale = self.steepness.value or 1.0
        for a, g in zip(self.A, gradients, strict=True):
            a.sub_(g, alpha=self.options.arch_learning_rate / scale)

    def state_dict(self) -> State:
        return {"mean_square": self.steepness.mean_square, "t": self.steepness.t}

    def load_state_dict(self, state: State) -> None:
        self.steepness.mean_square, self.steepness.t = state["mean_square"], state["t"]


def _adam(A: list[Tensor], o: DescendsA) -> torch.optim.Optimizer:
    betas = (o.arch_beta1, o.arch_beta2)
    return torch.optim.Adam(A, o.arch_learning_rate, betas, weight_decay=o.arch_decay)


def _sgd(A: list[Tensor], o: DescendsA) -> torch.optim.Optimizer:
    return torch.optim.SGD(A, o.arch_learning_rate, weight_decay=o.arch_decay)


Steps = torch.optim.Optimizer | ScaledDescent
STEPS: dict[str, Callable[[list[Tensor], DescendsA], Steps]] = {
    "adam": _adam,
    "sgd": _sgd,
    "scaled": ScaledDescent,
}
"""How A moves, by name."""
