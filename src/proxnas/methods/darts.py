"""DARTS (Liu et al., 'DARTS: Differentiable Architecture Search', ICLR 2019): Alg. 1 of the paper.

Every edge is a mixture of all its candidates, sum_k softmax(A)_k O_k(x) (Eq. softmax); A descends
the validation loss by its first- or second-order gradient (Eq. updatealpha); w is trained through
all candidates; the cell is derived from A at the end.

E edges, K candidates; A is (E, K) for each group and stays on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from proxnas.common.errors import OptionError
from proxnas.common.options import NOT_NEGATIVE
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.selection import changed, one_hot
from proxnas.methods.architecture import ArchitectureOptimizer
from proxnas.methods.base import Setup, relaxed_gradient, weight_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import Alternates, CountsSkips, DescendsA, Traits
from proxnas.methods.unrolled import UnrolledStep
from proxnas.runs.metrics import Metrics


@dataclass(frozen=True)
class DartsOptions(CountsSkips, Alternates, DescendsA):
    """A mixture of all candidates."""

    traits: ClassVar[Traits] = Traits(starts_from_A=True, any_length=True)
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0}

    arch_decay: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Weight decay of A."""


@dataclass(frozen=True)
class FirstOrderOptions(DartsOptions):
    """DARTS of first order: the gradient of A at w."""

    public: ClassVar[str] = "DARTS1st"


@dataclass(frozen=True)
class SecondOrderOptions(DartsOptions):
    """DARTS of second order: the gradient of A at w after a step."""

    public: ClassVar[str] = "DARTS2nd"


def DARTS(order: Literal[1, 2] = 1, **options: Any) -> DartsOptions:
    """The options of DARTS by the order of its gradient."""
    classes = {1: FirstOrderOptions, 2: SecondOrderOptions}
    if order not in classes:
        raise OptionError("order", order, "give one of 1, 2")
    return classes[order](**options)


class Darts:
    """The mixture search over a supernet and two streams; order 1 or 2."""

    Options: ClassVar[type[DartsOptions]] = DartsOptions

    def __init__(self, setup: Setup[DartsOptions], order: int) -> None:
        self.net, self.train = setup.net, setup.train
        self.valid, self.clock = setup.valid, setup.clock
        self.order = order
        self.options, self.epochs = options, epochs = setup.options, setup.weights.epochs
        options.check_due(len(self.train), epochs)
        generator = torch.Generator().manual_seed(setup.seed)
        drawn = {
            name: options.arch_noise
            * torch.randn(group.shape, generator=generator, dtype=torch.float64)
            for name, group in self.net.groups.items()
        }
        self.A = setup.begin(drawn)
        self.A_bar = self.derive()
        self.A_optimizer = ArchitectureOptimizer(self.A, options)
        self.w_optimizer = WeightOptimizer(self.net, setup.weights, len(self.train))
        self.unrolled = UnrolledStep(self.net, self.w_optimizer)

    def step(self) -> Metrics:
        """One pass of Alg. 1, lines 3-4."""
        train, before = self.train.next(), self.A_bar
        if self.options.due(self.w_optimizer.t, len(self.train), self.epochs):
            with self.clock("arch"):
                # 3: by the second-order approximation, or the first
                self.A_optimizer.step(self.gradient(train))
                self.A_bar = self.derive()
        self.use_mixture()
        # 4: with all operations
        loss, right = weight_step(self.net, train, self.w_optimizer, self.clock)
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def gradient(self, train: Batch) -> Matrices:
        """dL_val/dA on a fresh validation batch, at w or at the unrolled w'."""
        valid = self.valid.next()
        self.use_mixture()
        return self.unrolled(self._at, train, valid) if self.order == 2 else self._at(valid, ())[0]

    def _at(
        self, batch: Batch, weights: Sequence[Tensor]
    ) -> tuple[Matrices, Sequence[Tensor | None]]:
        """dL/dA through the mixture, and dL/dw for the weights asked for."""
        return relaxed_gradient(self.net, self.A, mixture, batch, weights)

    def derive(self) -> Matrices:
        """The discrete architecture of A: not the one that is trained (DARTS is not complete)."""
        return {name: one_hot(p, self.net.groups[name]) for name, p in self.preferences().items()}

    def preferences(self) -> Matrices:
        return mixture(self.A)

    def use_mixture(self) -> None:
        self.net.use(mixture(self.A), weighted=True)

    def architecture(self) -> tuple[Matrices, Matrices]:
        return self.A, self.A_bar

    def state_dict(self) -> State:
        return {"A": self.A_optimizer.state_dict(), "w": self.w_optimizer.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.A_optimizer.load_state_dict(state["A"])
        self.w_optimizer.load_state_dict(state["w"])
        self.A_bar = self.derive()


def mixture(A: Matrices) -> Matrices:
    """The factors softmax(A) of all candidates."""
    return {name: a.softmax(-1) for name, a in A.items()}


class FirstOrder(Darts):
    """The gradient at w: no unrolled step."""

    Options = FirstOrderOptions

    def __init__(self, setup: Setup[DartsOptions]) -> None:
        super().__init__(setup, order=1)


class SecondOrder(Darts):
    """The gradient at w' with the finite-difference term."""

    Options = SecondOrderOptions

    def __init__(self, setup: Setup[DartsOptions]) -> None:
        super().__init__(setup, order=2)
