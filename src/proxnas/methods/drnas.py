"""DrNAS (Chen, Wang, Cheng, Tang, Hsieh, 'DrNAS: Dirichlet Neural Architecture Search', ICLR 2021).

The factors of an edge are drawn anew in every step, from a Dirichlet distribution that A shapes;
gradients pass the sample by its pathwise derivative:

    theta ~ Dir(elu(A) + 1),   x_j = sum_i sum_k theta_k O_k(x_i)
    A descends L_val(theta), with a decay to A = 0, where Dir is uniform over the simplex
    after a half of the search each edge keeps the better half of its candidates (progressive)

The progressive search of its paper also runs candidates on a part of the channels at first; here
they have all channels throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from proxnas.common.options import NOT_NEGATIVE, SHARE
from proxnas.common.types import Matrices, State
from proxnas.methods.base import Setup
from proxnas.methods.darts import DartsOptions
from proxnas.methods.mixture import MixtureSearch, Relaxation
from proxnas.methods.options import RATE_OF_A, Traits
from proxnas.runs.metrics import Metrics

HALF = 0.5
"""The share of the search after which edges lose candidates."""
LEAST = 1e-6
"""Of a concentration: that of a candidate cannot be 0."""


@dataclass(frozen=True)
class DrNasOptions(DartsOptions):
    """Factors drawn from a Dirichlet distribution; edges lose candidates on the way."""

    public: ClassVar[str] = "DrNAS"
    traits: ClassVar[Traits] = Traits(starts_from_A=True)

    arch_learning_rate: Annotated[float, RATE_OF_A] = 6e-4
    """Rate of the steps of A."""
    arch_decay: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Weight decay of A, to the uniform distribution."""
    keep: Annotated[float, SHARE] = 0.5
    """Share of its candidates that an edge keeps for the second half of the search; 1: all."""


class _Sample(torch.autograd.Function):
    """A draw of a Dirichlet distribution, differentiated along the path of the draw."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, generator: torch.Generator) -> Tensor:
        theta = torch._sample_dirichlet(concentration, generator)
        ctx.save_for_backward(theta, concentration)
        return theta

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (g,) = gradients
        theta, concentration = ctx.saved_tensors
        total = concentration.sum(-1, keepdim=True).expand_as(concentration)
        # as torch.distributions.Dirichlet has it, whose own draw takes no generator
        slope = torch._dirichlet_grad(theta, concentration, total)
        return slope * (g - (theta * g).sum(-1, keepdim=True)), None


class Dirichlet(Relaxation):
    """Factors of the candidates alive: drawn, or their means."""

    def __init__(self, A: Matrices) -> None:
        self.alive = {name: torch.ones_like(a, dtype=torch.bool) for name, a in A.items()}

    def weigh(self, A: Matrices, progress: float, generator: torch.Generator | None) -> Matrices:
        return {name: self._row_by_row(a, self.alive[name], generator) for name, a in A.items()}

    def _row_by_row(self, a: Tensor, alive: Tensor, generator: torch.Generator | None) -> Tensor:
        """All rows keep equally many candidates, so that these make a smaller matrix."""
        # (E, number kept): their columns, row by row
        kept = alive.nonzero()[:, 1].view(len(a), -1)
        concentration = concentrations(a.gather(-1, kept))
        theta = concentration / concentration.sum(-1, keepdim=True)
        if generator is not None:
            theta = _Sample.apply(concentration, generator)  # type: ignore[no-untyped-call]
        return torch.zeros_like(a).scatter(-1, kept, theta)

    def preferences(self, A: Matrices) -> Matrices:
        """The means; what was dropped is worth less than everything else together."""
        means = self.weigh(A, 1.0, None)
        worst = -1.0 - sum(len(a) for a in A.values())
        return {name: torch.where(self.alive[name], p, worst) for name, p in means.items()}

    def drop(self, A: Matrices, keep: float) -> None:
        """From now on each row has the best candidates only."""
        for name, a in A.items():
            number = max(1, math.ceil(keep * a.shape[-1]))
            best = a.topk(number, dim=-1).indices
            self.alive[name] = torch.zeros_like(self.alive[name]).scatter(-1, best, True)


def concentrations(a: Tensor) -> Tensor:
    """elu(A) + 1: positive, and 1 for A = 0."""
    return torch.nn.functional.elu(a) + 1 + LEAST


class DrNas(MixtureSearch):
    """The mixture search over drawn factors."""

    Options = DrNasOptions
    relaxation: Dirichlet

    def __init__(self, setup: Setup[DrNasOptions]) -> None:
        shapes = {name: torch.zeros(group.shape) for name, group in setup.net.groups.items()}
        super().__init__(setup, Dirichlet(shapes))
        self.keep = setup.options.keep

    def step(self) -> Metrics:
        """As any mixture; the first step of the second half drops candidates before."""
        w = self.learner.w_optimizer
        if w.t == math.ceil(HALF * w.steps) and self.keep < 1:
            self.relaxation.drop(self.learner.A, self.keep)
            self.A_bar = self.derive()
        return super().step()

    def state_dict(self) -> State:
        return {"learner": super().state_dict(), "alive": self.relaxation.alive}

    def load_state_dict(self, state: State) -> None:
        # first: the cell that is derived below depends on who is alive
        self.relaxation.alive = {name: alive.clone() for name, alive in state["alive"].items()}
        super().load_state_dict(state["learner"])
