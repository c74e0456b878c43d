"""ASNG-NAS (Akimoto et al., 'Adaptive Stochastic Natural Gradient Method for One-Shot NAS', ICML
2019).

The architecture is a vector of independent categorical variables with probabilities theta, uniform
at the start. Each step trains w on the mean loss of two sampled architectures (training batch),
then judges two more without gradients (validation batch) and moves theta by the natural gradient
with a trust radius that adapts to its signal-to-noise ratio:

    u = +1/mu for the best, -1/mu for the worst, mu = ceil(lambda/4), ties averaged
    G = mean_i (u_i - mean u) (M_i - theta),   M_i the one-hot sample
    v = Fisher^(1/2) G without the last category of each variable:  G_k/sqrt(theta_k)
        + sqrt(theta_k) sum_{l<K} G_l / (theta_K + sqrt(theta_K)),   n = |v|
    delta = 1/Delta,  beta = delta/sqrt(N),  N = sum (K_i - 1)
    theta <- theta + delta G/n, floored at 1/(D (K_i - 1)) and brought back to sum 1
    s <- (1-beta) s + sqrt(beta(2-beta)) v/n,  gamma <- (1-beta)^2 gamma + beta(2-beta)
    Delta <- Delta exp(beta (gamma - |s|^2/alpha)),  alpha = 1.5

The returned cell is the likeliest.

Where a node keeps every edge, each row is a variable over its candidates. Where it keeps n inputs
it has n slots of two variables each: which edge, and which candidate on it (never `none`). Two
slots may choose one edge; if they choose the same candidate too, the node has one input less.

E edges, K candidates; A_bar is (E, K) for each group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from proxnas.common.types import Batch, Matrices, State
from proxnas.core.groups import NONE, Group
from proxnas.core.selection import changed
from proxnas.methods.architecture import diverged
from proxnas.methods.base import Setup, weight_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import TrainsPartly
from proxnas.runs.consensus import mean_of
from proxnas.runs.metrics import Metrics


class Slot(NamedTuple):
    """One choice of an edge among `rows` and of a candidate among `usable`."""

    group: str
    rows: tuple[int, ...]
    usable: tuple[int, ...]


class Variables:
    """The slots of all groups, two variables each; a variable over one category is there and
    decides nothing."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.groups = groups
        self.slots = [slot for name, group in groups.items() for slot in _slots(name, group)]
        self.sizes = [n for slot in self.slots for n in (len(slot.rows), len(slot.usable))]

    def A_bar(self, values: Sequence[int]) -> Matrices:
        """The architecture that the values of all variables select."""
        A_bar = self._zeros()
        for slot, edge, candidate in zip(self.slots, values[::2], values[1::2], strict=True):
            A_bar[slot.group][slot.rows[edge], slot.usable[candidate]] = 1.0
        return A_bar

    def marginals(self, theta: Sequence[Tensor]) -> Matrices:
        """How likely each entry of A_bar is 1, if the variables are independent with probabilities
        theta."""
        absent = {name: 1 + zeros for name, zeros in self._zeros().items()}
        for slot, p_edge, p_candidate in zip(self.slots, theta[::2], theta[1::2], strict=True):
            # (rows, usable); an entry is absent if no slot chooses it: product of 1 - p_slot
            chosen = torch.outer(p_edge, p_candidate)
            absent[slot.group][torch.tensor(slot.rows)[:, None], torch.tensor(slot.usable)] *= (
                1 - chosen
            )
        return {name: 1 - a for name, a in absent.items()}

    def _zeros(self) -> Matrices:
        return {
            name: torch.zeros(group.shape, dtype=torch.float64)
            for name, group in self.groups.items()
        }


def _slots(name: str, group: Group) -> Iterator[Slot]:
    everything = tuple(range(len(group.candidates)))
    if group.max_inputs is None:
        yield from (Slot(name, (e,), everything) for rows in group.nodes for e in rows)
        return
    usable = tuple(k for k in everything if group.candidates[k] != NONE) or everything
    for rows in group.nodes:
        yield from (Slot(name, rows, usable) for _ in range(min(group.max_inputs, len(rows))))


@dataclass(frozen=True)
class AsngOptions(TrainsPartly):
    """Independent categorical variables, moved by an adaptive natural gradient."""

    public: ClassVar[str] = "ASNG"
    defaults: ClassVar[Mapping[str, Any]] = {"learning_rate_min": 0.0, "patience": 0}


@dataclass(frozen=True)
class Constants:
    """The constants of the public code."""

    samples: int = 2
    """lambda: architectures a step, for w and for theta."""
    alpha: float = 1.5
    """Threshold of the signal-to-noise ratio."""


class NaturalGradient:
    """Minimises a function of categorical variables by adaptive stochastic natural gradient."""

    def __init__(self, sizes: Sequence[int], alpha: float = 1.5) -> None:
        self.theta = [torch.full((K,), 1 / K, dtype=torch.float64) for K in sizes]
        self.alpha, self.Delta, self.gamma = alpha, 1.0, 0.0
        self.N = sum(K - 1 for K in sizes)
        self.D = sum(K > 1 for K in sizes)
        self.s = torch.zeros(self.N, dtype=torch.float64)

    @property
    def delta(self) -> float:
        """The trust radius."""
        return 1 / self.Delta

    def sample(self, generator: torch.Generator) -> list[int]:
        return [int(torch.multinomial(theta, 1, generator=generator)) for theta in self.theta]

    def likeliest(self) -> list[int]:
        return [int(theta.argmax()) for theta in self.theta]

    def update(self, samples: Sequence[Sequence[int]], losses: Sequence[float]) -> None:
        """One step; samples that are equally good, or all alike, say nothing."""
        u = torch.tensor(utilities(losses), dtype=torch.float64)
        u = u - u.mean()
        G = [self._natural_gradient(v, u, samples) for v in range(len(self.theta))]
        if all((g.abs() < 1e-18).all() for g in G):
            return
        # (N,): what the trust radius measures lengths by
        v = torch.cat([fisher_root(theta, g) for theta, g in zip(self.theta, G, strict=True)])
        n, delta = v.norm(), self.delta
        for theta, g in zip(self.theta, G, strict=True):
            theta.copy_(self._restricted(theta + delta * g / n))
        # of directions that are noise |s|^2 is gamma on average; it is more where they agree
        self._adapt(v / n, delta / math.sqrt(self.N))

    def _natural_gradient(self, v: int, u: Tensor, samples: Sequence[Sequence[int]]) -> Tensor:
        """G of the v-th variable: mean_i u_i (M_i - theta)."""
        theta = self.theta[v]
        total = 0 * theta
        for u_i, values in zip(u, samples, strict=True):
            total = total + u_i * (_one_hot(values[v], theta) - theta)
        return total / len(samples)

    def _adapt(self, direction: Tensor, beta: float) -> None:
        self.s = (1 - beta) * self.s + math.sqrt(beta * (2 - beta)) * direction
        self.gamma = (1 - beta) ** 2 * self.gamma + beta * (2 - beta)
        self.Delta *= math.exp(beta * (self.gamma - float(self.s.square().sum()) / self.alpha))

    def _restricted(self, theta: Tensor) -> Tensor:
        K = len(theta)
        if K == 1:
            return torch.ones_like(theta)
        floor = 1 / (self.D * (K - 1))
        # one variable, or two of two categories: the public floor would leave no choice
        if floor >= 1 / K:
            floor = 0.1 / K
        theta = theta.clamp(min=floor)
        # what clamping added is taken from what lies above the floor, in proportion
        theta = theta - (theta.sum() - 1) * (theta - floor) / (theta.sum() - floor * K)
        return theta / theta.sum()

    def state_dict(self) -> State:
        return {"theta": self.theta, "s": self.s, "gamma": self.gamma, "Delta": self.Delta}

    def load_state_dict(self, state: State) -> None:
        self.theta = [theta.clone() for theta in state["theta"]]
        self.s, self.gamma, self.Delta = state["s"].clone(), state["gamma"], state["Delta"]


def fisher_root(theta: Tensor, G: Tensor) -> Tensor:
    """The square root of the Fisher information of one categorical variable, without its last
    category, times G."""
    first, last = theta[:-1], theta[-1]
    return G[:-1] / first.sqrt() + first.sqrt() * G[:-1].sum() / (last + last.sqrt())


def utilities(losses: Sequence[float]) -> list[float]:
    """+1/mu for the mu best, -1/mu for the mu worst, 0 between; equal losses share the mean of
    their places."""
    size = len(losses)
    mu = math.ceil(size / 4)
    # rank 0 is the smallest loss
    by_rank = [1 / mu] * mu + [0.0] * (size - 2 * mu) + [-1 / mu] * mu
    order = sorted(losses)
    places = [[rank for rank, other in enumerate(order) if other == loss] for loss in losses]
    return [sum(by_rank[rank] for rank in ranks) / len(ranks) for ranks in places]


def _one_hot(k: int, like: Tensor) -> Tensor:
    x = torch.zeros_like(like)
    x[k] = 1.0
    return x


class Asng:
    """The search: shared weights, sampled architectures, theta by the natural gradient."""

    Options = AsngOptions

    def __init__(self, setup: Setup[AsngOptions], constants: Constants | None = None) -> None:
        self.constants = constants or Constants()
        self.net, self.train = setup.net, setup.train
        self.valid, self.clock = setup.valid, setup.clock
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.variables = Variables(self.net.groups)
        self.theta = NaturalGradient(self.variables.sizes, self.constants.alpha)
        self.w_optimizer = WeightOptimizer(self.net, setup.weights, len(self.train))
        self.A_bar = self.derive()

    def step(self) -> Metrics:
        """w by the mean loss of sampled architectures, then theta by the ranks of others."""
        train, before = self.train.next(), self.A_bar
        loss, right = self.train_weights(train)
        if self.theta.N:
            with self.clock("arch"):
                self.architecture_step(self.valid.next())
                self.A_bar = self.derive()
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def train_weights(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """One weight step by the mean loss of several architectures; one graph at a time is
        kept."""
        n = self.constants.samples
        results = []
        for i in range(n):
            self.net.use(self.variables.A_bar(self.theta.sample(self.generator)))
            # the gradients of all of them add up; w moves with the last
            results.append(
                weight_step(self.net, batch, self.w_optimizer, self.clock, 1 / n, last=i == n - 1)
            )
        losses, right = zip(*results, strict=True)
        return torch.stack(losses).mean(), torch.stack(right).sum() / n

    @torch.no_grad()
    def architecture_step(self, batch: Batch) -> None:
        samples, losses = [], []
        for _ in range(self.constants.samples):
            samples.append(self.theta.sample(self.generator))
            self.net.use(self.variables.A_bar(samples[-1]))
            losses.append(self.net.loss(batch)[0])
        read = mean_of(torch.stack(losses), self.net.objective.examples(batch)).tolist()
        if not all(map(math.isfinite, read)):
            raise diverged()
        self.theta.update(samples, read)

    def derive(self) -> Matrices:
        return self.variables.A_bar(self.theta.likeliest())

    def architecture(self) -> tuple[Matrices, Matrices]:
        """A: how likely a sample holds each entry."""
        return self.variables.marginals(self.theta.theta), self.A_bar

    def state_dict(self) -> State:
        return {
            "theta": self.theta.state_dict(),
            "w": self.w_optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.theta.load_state_dict(state["theta"])
        self.w_optimizer.load_state_dict(state["w"])
        self.generator.set_state(state["generator"])
        self.A_bar = self.derive()
