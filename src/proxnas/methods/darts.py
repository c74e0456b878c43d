"""DARTS (Liu et al., 'DARTS: Differentiable Architecture Search', ICLR 2019): Alg. 1 of the paper.

Every edge is a mixture of all its candidates, sum_k softmax(A)_k O_k(x) (Eq. softmax); A descends
the validation loss by its first- or second-order gradient (Eq. updatealpha); w is trained through
all candidates; the cell is derived from A at the end, and is not the one that is trained (DARTS is
not complete). The turns of lines 3 and 4 are in mixture.py.

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
from proxnas.common.types import Batch, Matrices
from proxnas.methods.base import Setup, relaxed_gradient
from proxnas.methods.mixture import MixtureSearch, Relaxation
from proxnas.methods.options import Alternates, CountsSkips, DescendsA, Traits
from proxnas.methods.unrolled import UnrolledStep


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


class Softmax(Relaxation):
    """The factors softmax(A) (Eq. softmax)."""

    def weigh(self, A: Matrices, progress: float, generator: torch.Generator | None) -> Matrices:
        return {name: a.softmax(-1) for name, a in A.items()}


class Darts(MixtureSearch):
    """The mixture search over a supernet and two streams; order 1 or 2."""

    def __init__(self, setup: Setup[DartsOptions], order: int) -> None:
        super().__init__(setup, Softmax())
        self.order = order
        self.unrolled = UnrolledStep(self.net, self.learner.w_optimizer)

    def gradient(self, train: Batch) -> Matrices:
        """dL_val/dA on a fresh validation batch, at w or at the unrolled w'."""
        if self.order == 1:
            return super().gradient(train)
        valid = self.valid.next()
        # the unrolled step begins with the loss of the architecture in use
        self.use_mixture()
        return self.unrolled(self.first_order, train, valid)

    def first_order(
        self, batch: Batch, weights: Sequence[Tensor]
    ) -> tuple[Matrices, Sequence[Tensor | None]]:
        """dL/dA through the mixture, and dL/dw for the weights asked for."""
        return relaxed_gradient(self.net, self.learner.A, self._weigh, batch, weights)


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
