"""What the methods keep that move A and w by gradients, and the schedules that they share.

E edges, K candidates; A is (E, K) for each group and stays on the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from proxnas.common.clock import Clock
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.selection import one_hot
from proxnas.core.supernet import Supernet
from proxnas.methods.architecture import ArchitectureOptimizer
from proxnas.methods.base import Setup, weight_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import DescendsA
from proxnas.runs.consensus import mean

OwnOptions = TypeVar("OwnOptions", bound=DescendsA)


class Learner:
    """A around a mean, w, their optimizers, and the generator of whatever is drawn."""

    def __init__(self, setup: Setup[DescendsA], mean: float = 0.0, nesterov: bool = False) -> None:
        self.generator = torch.Generator().manual_seed(setup.seed)
        drawn = {
            name: mean + setup.options.arch_noise * self.normal(group.shape)
            for name, group in setup.net.groups.items()
        }
        # what is known of A stands in place of what was drawn
        self.A = setup.begin(drawn)
        self.A_optimizer = ArchitectureOptimizer(self.A, setup.options)
        weights = replace(setup.weights, nesterov=nesterov)
        self.w_optimizer = WeightOptimizer(setup.net, weights, len(setup.train))

    def normal(self, shape: tuple[int, int]) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    @property
    def progress(self) -> float:
        """The share of all steps that is done."""
        return self.w_optimizer.progress

    def state_dict(self) -> State:
        return {
            "A": self.A_optimizer.state_dict(),
            "w": self.w_optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.A_optimizer.load_state_dict(state["A"])
        self.w_optimizer.load_state_dict(state["w"])
        self.generator.set_state(state["generator"])


class Learns(Generic[OwnOptions]):
    """What methods have in common that move a `Learner`, and whose A_bar follows from its A."""

    A_bar: Matrices

    def __init__(self, setup: Setup[OwnOptions], mean: float = 0.0, nesterov: bool = False) -> None:
        self.net, self.clock = setup.net, setup.clock
        self.train, self.valid = setup.train, setup.valid
        self.options, self.epochs = setup.options, setup.weights.epochs
        self.learner = Learner(setup, mean, nesterov)

    def derive(self) -> Matrices:
        """The discrete architecture of A, by the common rule."""
        return {name: one_hot(p, self.net.groups[name]) for name, p in self.preferences().items()}

    def preferences(self) -> Matrices:
        """What entries are compared by: how likely each candidate is drawn."""
        return {name: A.softmax(-1) for name, A in self.learner.A.items()}

    def architecture(self) -> tuple[Matrices, Matrices]:
        return self.learner.A, self.A_bar

    def state_dict(self) -> State:
        return self.learner.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.learner.load_state_dict(state)
        self.A_bar = self.derive()


def joint_step(
    net: Supernet, batch: Batch, optimizer: WeightOptimizer, clock: Clock, leaves: Sequence[Tensor]
) -> tuple[Tensor, Tensor, list[Tensor] | None]:
    """A weight step whose one backward pass also reaches `leaves`: (loss, right answers, their
    gradients).

    In float16 a step can overflow: w is then left as it is, and the gradients are None for the same
    reason.
    """
    # the scaler sees to the weights alone, and may change its factor in the step
    scale = optimizer.scaler.get_scale()
    loss, right = weight_step(net, batch, optimizer, clock)
    parts = [torch.zeros_like(x) if x.grad is None else x.grad / scale for x in leaves]
    gradients = [g for g in mean(parts, net.objective.examples(batch), net.device) if g is not None]
    if optimizer.scaler.is_enabled() and not all(g.isfinite().all() for g in gradients):
        return loss, right, None
    return loss, right, gradients


def clipped(dA: Matrices, most: float) -> Matrices:
    """The gradients scaled down together to a norm of at most so much."""
    # one norm over all groups: their proportions stay
    norm = torch.stack([g.norm() for g in dA.values()]).norm()
    return {name: g * (most / norm).clamp(max=1.0) for name, g in dA.items()}


def linear(start: float, end: float, progress: float) -> float:
    """From start to end in equal steps."""
    return start + (end - start) * progress


def geometric(start: float, end: float, progress: float) -> float:
    """From start to end by equal factors."""
    return start * math.exp(math.log(end / start) * progress)
