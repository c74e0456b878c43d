"""NASP, PA and lazy PA (Yao et al., 'Efficient Neural Architecture Search via Proximal Iterations',
AAAI 2020).

One class with two functions swapped: the prox inside `select` (A -> A_bar) and inside `project`
(after the gradient step).

    NASP     A_bar = prox_C1(A),   A <- prox_C2(A - dF/dA_bar)      Alg. 2
    PA       A_bar = prox_C(A),    A <- prox_C(A - dF/dA_bar)       Eq. prox1
    lazy PA  A_bar = prox_C(A),    A <- A - dF/dA_bar               Eq. prox2

What we add to the paper is in additions/ and handed in; without it this is the paper's loop.

E edges, K candidates; A is (E, K) for each group and stays on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from proxnas.common.options import NOT_NEGATIVE, Range
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.prox import prox_c, prox_c1, prox_c2
from proxnas.core.selection import changed
from proxnas.methods.additions import Additions
from proxnas.methods.architecture import ArchitectureOptimizer
from proxnas.methods.assembly import ProximalOptions, assemble
from proxnas.methods.base import Setup, weight_step
from proxnas.methods.discretizer import Discretizer, Prox
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import RATE_OF_A, Traits
from proxnas.methods.penalty import SizePenalty
from proxnas.runs.metrics import Metrics


@dataclass(frozen=True)
class NaspOptions(ProximalOptions):
    """NASP, proximal iterations (Alg. 2 of the paper): one candidate an edge runs, all are
    scored. For images with look-ahead, exploration and more; --preset paper: without."""

    public: ClassVar[str] = "NASP"
    traits: ClassVar[Traits] = replace(ProximalOptions.traits, refines=True)
    defaults: ClassVar[Mapping[str, Any]] = {
        "weight_optimizer": "muon",
        "learning_rate": 0.05,
        "learning_rate_min": 0.005,
    }

    # other defaults than where they are declared, by the study in docs/results.md
    arch_optimizer: Literal["adam", "scaled", "sgd"] = "scaled"
    arch_learning_rate: Annotated[float, RATE_OF_A] = 5e-4
    explore: Annotated[float, NOT_NEGATIVE] = 0.05
    look_ahead: Annotated[int, Range(0)] = 100
    evidence: Annotated[float, NOT_NEGATIVE] = 5.0
    pooling: Annotated[float, Range(0, 1)] = 0.5


@dataclass(frozen=True)
class PaOptions(ProximalOptions):
    """PA, the proximal algorithm (Eq. prox1)."""

    public: ClassVar[str] = "PA"


@dataclass(frozen=True)
class LazyPaOptions(ProximalOptions):
    """Lazy PA, the proximal algorithm with lazy steps (Eq. prox2)."""

    public: ClassVar[str] = "LazyPA"


class Proximal:
    """A search by proximal iterations over a supernet and two streams."""

    Options: ClassVar[type[ProximalOptions]] = ProximalOptions

    def __init__(
        self,
        setup: Setup[ProximalOptions],
        A: Matrices,
        discretize: Discretizer,
        project: Prox,
        w_optimizer: WeightOptimizer,
        additions: Additions,
    ) -> None:
        self.net, self.train, self.valid = setup.net, setup.train, setup.valid
        self.clock, self.options, self.epochs = setup.clock, setup.options, setup.weights.epochs
        self.discretize, self.prox_of_step, self.additions = discretize, project, additions
        self.penalty = SizePenalty(setup, discretize, additions.price)
        # nothing was selected yet: the first selection and projection go by the lots alone
        self.A_bar: Matrices = {}
        self.A = self.project(A)
        self.A_bar = self.select(self.A)
        self.A_optimizer = ArchitectureOptimizer(self.A, self.options, self.options.arch_optimizer)
        self.w_optimizer = w_optimizer

    def step(self) -> Metrics:
        """One pass of Alg. 2, lines 3-6; a step in which A is not due is line 6 alone."""
        # the batch of w comes first: a gradient of second order needs it too
        train, before = self.train.next(), self.A_bar
        if self.options.due(self.w_optimizer.t, len(self.train), self.epochs):
            with self.clock("arch"):
                A_bar = self.select(self.A)  # 3: discrete architecture
                dA = self.gradient(A_bar, train)  # 4: dF/dA_bar, no second order ...
                self.A = self.project(self.descend(dA))  #    ... then prox_C2
                self.A_bar = self.refine()  # 5: refine
        loss, right = self.train_weights(self.A_bar, train)  # 6: through the selected only
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def select(self, A: Matrices) -> Matrices:
        """A -> A_bar; what was selected last stays in a tie."""
        return self.discretize(A, last=self.A_bar)

    def gradient(self, A_bar: Matrices, train: Batch) -> Matrices:
        """dF/dA_bar on a fresh validation batch, F = L_val + eta R."""
        valid, added = self.valid.next(), self.additions
        path = self._run(A_bar)
        # without evidence the loss has no say; R still has one
        if added.evidence and not added.evidence.is_there(valid):
            dA = {name: torch.zeros_like(a) for name, a in self.A.items()}
        else:
            dA = self.gradient_of_loss(train, valid)
        if added.price:
            # before R joins it: the price is paid in the steepness of the loss alone
            added.price.follow(dA)
        noise = added.noise(self.A)
        # dF/dA_bar = dL_val/dA_bar + eta dR/dA
        for name, dR in self.penalty.gradient(self.A, path, self.A_bar, noise).items():
            dA[name] = dA[name] + dR
        return dA

    def gradient_of_loss(self, train: Batch, valid: Batch) -> Matrices:
        """dL_val/dA_bar at the architecture in use, less what training promises."""
        added = self.additions
        if added.second_order:
            dA = added.second_order(self._loss_gradient, train, valid)
        else:
            dA, _ = self._loss_gradient(valid, ())
        if added.look_ahead:
            for name, promised in added.look_ahead.promised(train, valid).items():
                # what training is expected to win counts like a lower gradient
                dA[name] = dA[name] - promised
        return added.pooling.mix(dA) if added.pooling else dA

    def descend(self, dA: Matrices) -> Matrices:
        """One step on A, in place."""
        self.A_optimizer.step(dA)
        return self.A

    def project(self, A: Matrices) -> Matrices:
        """The nearest point where A may live, in place: the optimizer holds A."""
        for name, a in A.items():
            a.copy_(self.prox_of_step(a, self.discretize.priority(name, self.A_bar)))
        return A

    def refine(self) -> Matrices:
        """Line 5: A_bar of the A that has moved; the price of a limit follows what A asks for."""
        A_bar = self.select(self.A)
        if self.additions.price:
            self.additions.price.adapt(self.discretize.unlimited(self.A, last=A_bar))
        return A_bar

    def train_weights(self, A_bar: Matrices, train: Batch) -> tuple[Tensor, Tensor]:
        """(loss, correct answers), and w moved by one step through the selected operations."""
        self._run(A_bar)
        return weight_step(self.net, train, self.w_optimizer, self.clock)

    @property
    def eta(self) -> float:
        """The weight of R as it stands."""
        return self.penalty.eta

    def _run(self, A_bar: Matrices) -> Matrices:
        """From now on the network runs A_bar, or what this step explores in its place; returns
        it."""
        noise = self.additions.noise(self.A)
        # A_bar itself stays: noise changes what is tried, not what would be returned
        path = A_bar if noise is None else self.discretize(self.A, self.A_bar, noise)
        self.net.use(path, weighted=self.options.value == "a_k")
        return path

    def _loss_gradient(
        self, batch: Batch, weights: Sequence[Tensor]
    ) -> tuple[Matrices, Sequence[Tensor | None]]:
        return self.net.architecture_gradient(batch, weights, self.additions.share())

    def occasional(self, steps: int, epochs: int) -> tuple[Callable[[], object], float]:
        """The look ahead, which most steps do without."""
        ahead = self.additions.look_ahead
        if ahead is None:
            return (lambda: None), 0.0
        # what is looked up is not kept: a measurement changes no search
        return lambda: ahead.look(self.train.next(), self.valid.next()), 1 / ahead.pause(steps)

    def doubts(self) -> list[str]:
        """What evidence that was waited for did not show."""
        return self.additions.evidence.doubts() if self.additions.evidence else []

    def architecture(self) -> tuple[Matrices, Matrices]:
        return self.A, self.A_bar

    def state_dict(self) -> State:
        return {
            "A": self.A_optimizer.state_dict(),
            "A_bar": self.A_bar,
            "costs": self.penalty.costs,
            "w": self.w_optimizer.state_dict(),
            **self.additions.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.A_optimizer.load_state_dict(state["A"])
        self.w_optimizer.load_state_dict(state["w"])
        self.A_bar = {name: state["A_bar"][name].clone() for name in self.A}
        self.penalty.costs = state["costs"]  # seconds are not measured alike twice
        self.additions.load_state_dict(state)


class Nasp(Proximal):
    """NASP, Alg. 2."""

    Options = NaspOptions

    def __init__(self, setup: Setup[ProximalOptions]) -> None:
        # the box decides nothing between entries, so no priority is asked for
        super().__init__(setup, *assemble(setup, prox_c1, lambda A, priority: prox_c2(A)))


class Pa(Proximal):
    """The proximal algorithm, Eq. prox1."""

    Options = PaOptions

    def __init__(self, setup: Setup[ProximalOptions]) -> None:
        super().__init__(setup, *assemble(setup, prox_c, prox_c))


class LazyPa(Proximal):
    """The proximal algorithm with lazy steps, Eq. prox2: A is free to leave [0, 1]."""

    Options = LazyPaOptions

    def __init__(self, setup: Setup[ProximalOptions]) -> None:
        super().__init__(setup, *assemble(setup, prox_c, lambda A, priority: A))
