"""DARTS- (Chu, Wang, Zhang, Lu, Wei, Yan, 'DARTS-: Robustly Stepping out of Performance Collapse
Without Indicators', ICLR 2021).

Skip connections win in DARTS because they help any network to train. An auxiliary one on every
edge takes that over, and fades:

    x_j = sum_i ( sum_k softmax(A)_k O_k(x_i) + beta skip(x_i) ),   beta falls linearly from 1 to 0

Its own paper gives the auxiliary connection weights of its own where the map is halved; here it is
the candidate itself, with beta added to its factor; edges without such a candidate have none, and
where no edge has, this is DARTS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from proxnas.common.options import NOT_NEGATIVE
from proxnas.common.types import Matrices
from proxnas.core.groups import SKIP, Group
from proxnas.methods.base import Setup
from proxnas.methods.darts import DartsOptions
from proxnas.methods.mixture import MixtureSearch, Relaxation
from proxnas.methods.options import Traits

PASSING = (SKIP, "identity")
"""Candidates that hand on what they read; recurrent cells call theirs identity."""


@dataclass(frozen=True)
class DartsMinusOptions(DartsOptions):
    """DARTS with an auxiliary skip connection that fades."""

    public: ClassVar[str] = "DARTSMinus"
    traits: ClassVar[Traits] = Traits(starts_from_A=True)

    beta: Annotated[float, NOT_NEGATIVE] = 1.0
    """Factor of the auxiliary skip connections in the first step; it falls to 0."""


class Fading(Relaxation):
    """softmax(A), and beta more for skip connections."""

    def __init__(self, groups: Mapping[str, Group], beta: float) -> None:
        self.beta = beta
        self.skips: Matrices = {}
        for name, group in groups.items():
            passes = [candidate in PASSING for candidate in group.candidates]
            self.skips[name] = torch.tensor(passes, dtype=torch.float64)

    def weigh(self, A: Matrices, progress: float, generator: torch.Generator | None) -> Matrices:
        beta = self.beta * (1 - progress)
        # (E, K) + (K,): every edge has the same auxiliary connection
        return {name: a.softmax(-1) + beta * self.skips[name] for name, a in A.items()}


class DartsMinus(MixtureSearch):
    """DARTS whose skip connections have an advantage that fades."""

    Options = DartsMinusOptions

    def __init__(self, setup: Setup[DartsMinusOptions]) -> None:
        super().__init__(setup, Fading(setup.net.groups, setup.options.beta))
