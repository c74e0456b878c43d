"""ASAP (Noy et al., 'ASAP: Architecture Search, Anneal and Prune', AISTATS 2020).

DARTS' mixture with a temperature that falls, and candidates that are dropped for good as soon as
they are weak:

    x_j = sum_i sum_k softmax(A / T)_k O_k(x_i)  over the candidates k still alive
    T = 1.6 * 0.95^(50 t) after the share t of all steps: the curve of 50 epochs, whatever their
        number is
    while T >= 1: w only;  then each step w on a training batch and A, first order, on a validation
                           batch
    50 times: drop every candidate with softmax(A / T)_k < 0.4 / K, never the best of its edge

When one candidate an edge is left, A has nothing more to say and only w is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from proxnas.common.errors import AboutOptions
from proxnas.common.options import NOT_NEGATIVE, POSITIVE
from proxnas.common.types import Matrices, State
from proxnas.core.selection import changed, one_hot
from proxnas.core.size.nesting import best
from proxnas.methods.base import Setup, relaxed_gradient, weight_step
from proxnas.methods.learner import Learns, geometric
from proxnas.methods.options import Anneals, CountsSkips, DescendsA, Traits
from proxnas.runs.metrics import Metrics


@dataclass(frozen=True)
class AsapOptions(CountsSkips, Anneals, DescendsA):
    """DARTS' mixture with a temperature that falls; weak candidates are dropped for good."""

    public: ClassVar[str] = "ASAP"
    traits: ClassVar[Traits] = Traits(starts_from_A=True, past_warmup={"tau_start": 0.99})
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0}

    arch_decay: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Weight decay of A."""
    tau_start: Annotated[float, POSITIVE] = 1.6
    """Temperature in the first step."""
    tau_end: Annotated[float, POSITIVE] = 1.6 * 0.95**50
    """Temperature towards the last step."""


@dataclass(frozen=True)
class Constants:
    """What the paper fixes besides the temperatures."""

    grace: float = 1.0
    """A moves once the temperature is below this."""
    threshold: float = 0.4
    """Candidates below this share of the uniform weight are dropped."""
    prunings: int = 50
    """How often, evenly spread over the search: at the start of every epoch of the paper's 50."""


class Asap(Learns[AsapOptions]):
    """The mixture search with annealing and pruning."""

    Options = AsapOptions

    def __init__(self, setup: Setup[AsapOptions], constants: Constants | None = None) -> None:
        super().__init__(setup)
        self.constants, self.budget = constants or Constants(), setup.budget
        self._check_moves()
        self.alive = {
            name: torch.ones_like(A, dtype=torch.bool) for name, A in self.learner.A.items()
        }
        self.A_bar = self.derive()

    @property
    def tau(self) -> float:
        """Geometric over the steps."""
        return geometric(*self.options.tau, self.learner.progress)

    def _check_moves(self) -> None:
        """An InputError if the temperature never comes below the grace: A would stay the noise that
        it starts as."""
        (start, end), steps = self.options.tau, self.learner.w_optimizer.steps
        if min(start, geometric(start, end, 1 - 1 / steps)) >= self.constants.grace:
            raise AboutOptions(
                f"{{tau_start}} {start:g} {{tau_end}} {end:g}: asap moves A below a temperature of"
                f" {self.constants.grace:g}, which none of its {steps} steps has: give a lower"
                " {tau_end}, or more {epochs}"
            )

    def step(self) -> Metrics:
        """Now and then the pruning; then w, and A once it is cool enough."""
        # tau of this step, read before the weight step moves the progress on
        train, before, tau = self.train.next(), self.A_bar, self.tau
        if self._prunes():
            self.prune()
        self.use_mixture()
        loss, right = weight_step(self.net, train, self.learner.w_optimizer, self.clock)
        # with one candidate left in every row the softmax is 1, whatever A says
        undecided = any((alive.sum(-1) > 1).any() for alive in self.alive.values())
        if tau < self.constants.grace and undecided:
            with self.clock("arch"):
                dA, _ = relaxed_gradient(
                    self.net, self.learner.A, lambda A: self.mixture(A, tau), self.valid.next()
                )
                self.learner.A_optimizer.step(dA)
                self.A_bar = self.derive()
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def _prunes(self) -> bool:
        """Whether one of the equal parts of the search begins with this step."""
        w, parts = self.learner.w_optimizer, self.constants.prunings
        # whole numbers round down, so that step 0 begins a part too
        return parts * w.t // w.steps > parts * (w.t - 1) // w.steps

    def mixture(self, A: Matrices, tau: float) -> Matrices:
        """The factors of the candidates alive; exactly 0 for the others, which are then not run."""
        return {name: masked_softmax(a / tau, self.alive[name]) for name, a in A.items()}

    def prune(self) -> None:
        """Drop what is below the threshold, but never the best of a row, nor what the cell of
        the moment is made of: so that there is a cell of candidates alive within the limit at
        any time."""
        returned = self.derive()
        if self.budget:
            returned = self.budget.project(self.preferences(), returned)
        for name, p in self.mixture(self.learner.A, self.tau).items():
            weak = (p < self.constants.threshold / p.shape[-1]) & (returned[name] == 0)
            # in rows that are not part of the cell too, the best stays
            weak.scatter_(-1, p.argmax(-1, keepdim=True), False)
            self.alive[name] &= ~weak
        self.A_bar = self.derive()

    def derive(self) -> Matrices:
        """As DARTS; where that would take what was dropped (for `none`, or one skip connection too
        many), the best cell of the others."""
        p = self.preferences()
        A_bar = {name: one_hot(q, self.net.groups[name]) for name, q in p.items()}
        lives = all(self.alive[name][a != 0].all() for name, a in A_bar.items())
        return A_bar if lives else best(p, self.net.groups)

    def preferences(self) -> Matrices:
        """The factors of the mixture; what was dropped is worth less than everything else
        together."""
        # a row is worth at most 1: no gain elsewhere makes up for a candidate that is gone
        worst = -1.0 - sum(len(A) for A in self.learner.A.values())
        factors = self.mixture(self.learner.A, self.tau)
        return {name: torch.where(self.alive[name], p, worst) for name, p in factors.items()}

    def use_mixture(self) -> None:
        self.net.use(self.mixture(self.learner.A, self.tau), weighted=True)

    def state_dict(self) -> State:
        return {"learner": super().state_dict(), "alive": self.alive}

    def load_state_dict(self, state: State) -> None:
        # first: the cell that is derived below depends on who is alive
        self.alive = {name: state["alive"][name].clone() for name in self.alive}
        super().load_state_dict(state["learner"])


def masked_softmax(a: Tensor, alive: Tensor) -> Tensor:
    """softmax over the entries alive."""
    return torch.where(alive, a, -torch.inf).softmax(-1)
