"""FairDARTS (Chu, Zhou, Zhang, Li, 'Fair DARTS: Eliminating Unfair Advantages in Differentiable
Architecture Search', ECCV 2020).

Candidates do not compete within an edge: each has a gate of its own, and a loss drives the gates
to 0 or 1.

    x_j = sum_i sum_k sigmoid(A)_k O_k(x_i)
    L = L_val - w / N * sum over the N entries of (sigmoid(A) - 0.5)^2,    w = 10

Where the public code keeps gates above 0.85, at most two inputs a node, the cell is derived here by
the rule of the space: a node has its full number of inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from proxnas.common.options import NOT_NEGATIVE
from proxnas.common.types import Matrices
from proxnas.methods.base import Setup
from proxnas.methods.darts import DartsOptions
from proxnas.methods.mixture import MixtureSearch, Relaxation


@dataclass(frozen=True)
class FairDartsOptions(DartsOptions):
    """A gate for each candidate, driven to 0 or 1."""

    public: ClassVar[str] = "FairDARTS"

    zero_one: Annotated[float, NOT_NEGATIVE] = 10.0
    """Weight of the loss that drives gates to 0 or 1."""


@dataclass(frozen=True)
class Gates(Relaxation):
    """sigmoid(A) of each entry by itself."""

    zero_one: float

    def weigh(self, A: Matrices, progress: float, generator: torch.Generator | None) -> Matrices:
        return {name: a.sigmoid() for name, a in A.items()}

    def penalty(self, A: Matrices) -> Tensor:
        """-w times the mean of (gate - 0.5)^2."""
        # (N,): one mean over all groups, not one for each
        gates = torch.cat([a.sigmoid().flatten() for a in A.values()])
        # least at 0 and at 1, the ends of a gate
        return -self.zero_one * (gates - 0.5).square().mean()


class FairDarts(MixtureSearch):
    """DARTS over gates."""

    Options = FairDartsOptions

    def __init__(self, setup: Setup[FairDartsOptions]) -> None:
        super().__init__(setup, Gates(setup.options.zero_one))
