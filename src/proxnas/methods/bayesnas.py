"""BayesNAS (Zhou et al., 'BayesNAS: A Bayesian Approach for Neural Architecture Search', ICML
2019).

Every edge e and every candidate k on it has a switch, s_e and s_ek, both 1 at the start; the
candidate is multiplied by s_e s_ek. A Gaussian prior of variance gamma on each switch makes most of
them vanish (automatic relevance). After a time of w alone, w and the switches descend one loss on
the training batches

    L = NLL + lambda_e sum omega_e |s_e| + lambda_k sum omega_ek |s_ek|

and after each epoch the prior is estimated anew from the curvature H of NLL at every switch:

    C = 1 / (1/gamma + H/lambda),   omega = sqrt(1/gamma - C/gamma^2),   gamma = |s| / omega
    gamma_ek <- 1 / (1/gamma_ek + 1/gamma_e)       a candidate is no more relevant than its edge

H is the Fisher information, B E[(dNLL/ds)^2] over batches of B answers drawn from the network
itself. The cell keeps what has the largest gamma; where a node keeps every edge, one whose
candidates all have 1/2 ln(2 pi e gamma) <= 0 becomes `none`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from proxnas.common.options import Range
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.groups import NONE, Group
from proxnas.core.selection import changed, one_hot
from proxnas.methods.architecture import diverged
from proxnas.methods.base import Setup
from proxnas.methods.learner import joint_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import ONE_OR_HALF, CountsSkips, HasNoiseInA, Traits, WarmsUp
from proxnas.runs.metrics import Metrics


@dataclass(frozen=True)
class BayesNasOptions(CountsSkips, WarmsUp, HasNoiseInA):
    """A switch on every edge and candidate, most of which a prior makes vanish."""

    public: ClassVar[str] = "BayesNAS"
    traits: ClassVar[Traits] = Traits(draws_answers=True, past_warmup={"warmup": 0.0})
    defaults: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.1,
        "weight_decay": 1e-4,
        "patience": 0,
    }

    warmup: Annotated[float, Range(0, also=ONE_OR_HALF)] = ONE_OR_HALF
    """Epochs at the start in which only w is trained. 0.5 is half of one; -1: one, but at most
    half of the search."""


@dataclass(frozen=True)
class Constants:
    """The constants of the public code."""

    lambda_edge: float = 0.01
    lambda_candidate: float = 0.01
    curvature_batches: int = 20
    """Validation batches that the curvature is measured on after an epoch."""
    momentum: float = 0.9
    """Of the SGD on the switches, whose rate is that of w and which has no decay."""


IRRELEVANT = 1 / (2 * math.pi * math.e)
"""The variance of a Gaussian without entropy."""


class Prior:
    """The switches of all edges (E, 1) and of all candidates (E, K) of a group, or either of them:
    what is believed."""

    def __init__(self, shape: tuple[int, int], strength: float, noise: Tensor) -> None:
        self.strength = strength
        self.switch = torch.ones(shape, dtype=torch.float64)
        # noise in gamma alone: the switches all start at 1, and ties must be broken
        self.gamma = (1 + noise).clamp(min=0.5)
        self.omega = torch.ones(shape, dtype=torch.float64)

    def penalty_gradient(self) -> Tensor:
        # d/ds of lambda omega |s|
        return self.strength * self.omega * self.switch.sign()

    def update(self, H: Tensor) -> None:
        """gamma and omega from the curvature; what has none is irrelevant."""
        # the posterior variance of the switch
        C = 1 / (1 / self.gamma + H / self.strength)
        self.omega = (1 / self.gamma - C / self.gamma.square()).abs().sqrt()
        self.gamma = torch.where(
            H > 0, self.switch.abs() / self.omega.clamp(min=1e-12), 1e-12
        ).clamp(min=1e-12)

    def state_dict(self) -> State:
        return {"switch": self.switch, "gamma": self.gamma, "omega": self.omega}

    def load_state_dict(self, state: State) -> None:
        self.switch.copy_(state["switch"])  # the optimizer holds it
        self.gamma, self.omega = state["gamma"].clone(), state["omega"].clone()


class BayesNas:
    """A single-level search by sparse Bayesian learning."""

    Options = BayesNasOptions

    def __init__(self, setup: Setup[BayesNasOptions], constants: Constants | None = None) -> None:
        self.constants = constants = constants or Constants()
        options, epochs = setup.options, setup.weights.epochs
        self.net, self.train = setup.net, setup.train
        self.valid, self.clock = setup.valid, setup.clock
        options.check_moves(len(self.train), epochs)
        self.warmup = options.warmup_epochs(epochs) * len(self.train)
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.edges = {
            n: self._prior((g.shape[0], 1), constants.lambda_edge, 0.0)
            for n, g in self.net.groups.items()
        }
        self.candidates = {
            n: self._prior(g.shape, constants.lambda_candidate, options.arch_noise)
            for n, g in self.net.groups.items()
        }
        self.sgd = torch.optim.SGD(
            [prior.switch for prior in self.priors()], lr=0.0, momentum=constants.momentum
        )
        self.w_optimizer = WeightOptimizer(self.net, setup.weights, len(self.train))
        self.A_bar = self.derive()

    def _prior(self, shape: tuple[int, int], strength: float, noise: float) -> Prior:
        normal = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return Prior(shape, strength, noise * normal)

    def priors(self) -> list[Prior]:
        """Of all edges, then of all candidates."""
        return [*self.edges.values(), *self.candidates.values()]

    def step(self) -> Metrics:
        """w, and after the warm-up the switches with it; at the end of an epoch the prior."""
        batch, before = self.train.next(), self.A_bar
        warm = self.w_optimizer.t >= self.warmup
        leaves = [prior.switch.detach().requires_grad_(warm) for prior in self.priors()]
        self._use(leaves)
        # that of this step: after it the optimizer stands at the next
        rate = self.w_optimizer.learning_rate
        loss, right, gradients = joint_step(self.net, batch, self.w_optimizer, self.clock, leaves)
        if warm and gradients is not None:
            with self.clock("arch"):
                self._move(gradients, rate)
        if warm and self.w_optimizer.t % len(self.train) == 0:
            with self.clock("arch"):
                self.believe()
        return Metrics(loss, right, len(batch.y), changed(before, self.A_bar))

    def _use(self, switches: list[Tensor]) -> None:
        edges, candidates = switches[: len(self.edges)], switches[len(self.edges) :]
        # s_e s_ek: (E, 1) * (E, K)
        factors = {
            name: e * k for name, e, k in zip(self.net.groups, edges, candidates, strict=True)
        }
        self.net.use(factors, weighted=True)

    def measure(self, batch: Batch) -> list[Tensor]:
        """B (dNLL/ds)^2 of every switch with answers drawn from the network: given x these are
        independent, so the square of the mean gradient is expected to be the mean information over
        B."""
        leaves = [prior.switch.detach().requires_grad_() for prior in self.priors()]
        self._use(leaves)
        output = self.net(batch.x)
        output = output if self.net.precision == torch.float32 else output.float()
        # (answers, classes) on the host, where the generator is: the same draws on every device
        p = output.detach().softmax(-1).flatten(0, -2).cpu()
        if not p.isfinite().all():
            raise diverged()
        y = torch.multinomial(p, 1, generator=self.generator).view(batch.y.shape).to(batch.y.device)
        gradients = self.net.gradient(self.net.criterion(output, y), leaves)
        return [
            torch.zeros_like(x) if g is None else len(p) * g.square()
            for x, g in zip(leaves, gradients, strict=True)
        ]

    def _move(self, gradients: list[Tensor], rate: float) -> None:
        for prior, g in zip(self.priors(), gradients, strict=True):
            prior.switch.grad = g + prior.penalty_gradient()
        norm = nn.utils.clip_grad_norm_(
            [prior.switch for prior in self.priors()], self.w_optimizer.options.clip
        )
        if not norm.isfinite():
            raise diverged()
        self.sgd.param_groups[0]["lr"] = rate
        self.sgd.step()

    def believe(self) -> None:
        """The prior of every switch from the curvature on validation batches, and the cell that it
        makes."""
        measured = [
            self.measure(self.valid.next()) for _ in range(self.constants.curvature_batches)
        ]
        # turned around: for each prior its curvature on every batch
        for prior, *H in zip(self.priors(), *measured, strict=True):
            prior.update(torch.stack(H).mean(0))
        for name, candidates in self.candidates.items():
            # (E, K) with (E, 1): harmonic, so that it is below both
            candidates.gamma = 1 / (1 / candidates.gamma + 1 / self.edges[name].gamma)
        self.A_bar = self.derive()

    def occasional(self, steps: int, epochs: int) -> tuple[Callable[[], object], float]:
        """The curvature on one batch, and how often that falls to a step."""
        return lambda: self.measure(self.valid.next()), self.constants.curvature_batches / steps

    def derive(self) -> Matrices:
        return {
            name: one_hot(ranked, self.net.groups[name])
            for name, ranked in self.preferences().items()
        }

    def preferences(self) -> Matrices:
        return {
            name: relevance(prior.gamma, self.net.groups[name])
            for name, prior in self.candidates.items()
        }

    def architecture(self) -> tuple[Matrices, Matrices]:
        """A: gamma, the relevance of each candidate."""
        return {name: prior.gamma for name, prior in self.candidates.items()}, self.A_bar

    def state_dict(self) -> State:
        return {
            "priors": [prior.state_dict() for prior in self.priors()],
            "sgd": self.sgd.state_dict(),
            "generator": self.generator.get_state(),
            "w": self.w_optimizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        for prior, kept in zip(self.priors(), state["priors"], strict=True):
            prior.load_state_dict(kept)
        self.sgd.load_state_dict(state["sgd"])
        self.generator.set_state(state["generator"])
        self.w_optimizer.load_state_dict(state["w"])
        self.A_bar = self.derive()


def relevance(gamma: Tensor, group: Group) -> Tensor:
    """By what each row chooses its candidate: gamma, but for `none`, which is taken only where a
    node keeps every edge and all others of the row are irrelevant."""
    if NONE not in group.candidates or len(group.candidates) == 1:
        return gamma
    ranked = gamma.clone()
    ranked[:, group.candidates.index(NONE)] = IRRELEVANT if group.max_inputs is None else 0.0
    return ranked
