"""ProxylessNAS (Cai, Zhu, Han, 'ProxylessNAS: Direct Neural Architecture Search on Target Task and
Hardware', ICLR 2019).

Gates are binary: one candidate an edge runs. w is trained on a path that is drawn by softmax(A). A
step of A draws two candidates a and b of every edge and moves only these:

    q = softmax over (A_a, A_b);  the path takes one of them by q
    dL/dA_i = sum_{j in a, b} dL/dg_j q_j (delta_ij - q_i),   dL/dg_j = < g, O_j(x) >
    by Adam (betas 0, 0.999); then both are shifted so that the others stay as likely as before

With REINFORCE (`gates reinforce`) a whole path is drawn and dL/dA = -(R - b) d log p / dA, R the
accuracy and b its moving mean: what is not differentiable can be in R. Size comes in as the
expectation sum_k softmax(A)_k cost_k over all edges, times --expected-cost, in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from proxnas.common.options import BELOW_ONE, NOT_NEGATIVE, Range
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.selection import changed
from proxnas.core.size.complexity import parameter_costs
from proxnas.methods.base import Setup, by_name, weight_step
from proxnas.methods.learner import Learns
from proxnas.methods.options import (
    ONE_OR_HALF,
    RATE_OF_A,
    Alternates,
    Beside,
    CountsCost,
    CountsSkips,
    DescendsA,
    TrainsPartly,
    Traits,
)
from proxnas.runs.consensus import mean_matrices, mean_of
from proxnas.runs.metrics import Metrics

OFF = 1e-30
"""Of a gate that is off: it adds nothing to the sum, but its candidate has a gradient."""
BASELINE = 0.9
"""Memory of the moving mean of the rewards."""


@dataclass(frozen=True)
class ProxylessOptions(CountsCost, TrainsPartly, CountsSkips, Alternates, DescendsA):
    """Binary gates: one path a step, two candidates an edge for a step of A."""

    public: ClassVar[str] = "ProxylessNAS"
    traits: ClassVar[Traits] = Traits(starts_from_A=True, past_warmup={"warmup": 0.0})
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0}

    arch_learning_rate: Annotated[float, RATE_OF_A] = 1e-3
    """Rate of the steps of A."""
    arch_beta1: Annotated[float, BELOW_ONE] = 0.0
    """Of Adam on A."""
    warmup: Annotated[float, Range(0, also=ONE_OR_HALF)] = ONE_OR_HALF
    """Epochs at the start in which only w is trained, on paths that are drawn uniformly; -1: one,
    but at most half of the search."""
    gates: Literal["two", "reinforce"] = "two"
    """Gradient of A: by two candidates an edge, or by rewards of whole paths."""
    expected_cost: Annotated[float, NOT_NEGATIVE] = 0.0
    """Weight of the expected cost of the path, in shares of what all candidates cost."""

    def weighs_cost(self, limited: bool) -> bool:
        """A limit is kept by projection, not by a price."""
        return self.expected_cost > 0

    def idle(self, beside: Beside) -> dict[str, str]:
        """The cost without its weight."""
        weighed = self.idle_weight("expected_cost", self.expected_cost, beside)
        return super().idle(beside) | weighed


class Proxyless(Learns[ProxylessOptions]):
    """A search over drawn paths."""

    Options = ProxylessOptions

    def __init__(self, setup: Setup[ProxylessOptions]) -> None:
        super().__init__(setup)
        self.options.check_due(len(self.train), self.epochs)
        costs = parameter_costs(setup.net) if setup.costs is None else setup.costs
        self.costs = costs if self.options.expected_cost else {}
        self.baseline: float | None = None
        self.A_bar = self.derive()

    def step(self) -> Metrics:
        """w on a path, then A on another."""
        train, before = self.train.next(), self.A_bar
        t = self.learner.w_optimizer.t
        self.net.use({name: self._draw(p) for name, p in self.preferences().items()})
        loss, right = weight_step(self.net, train, self.learner.w_optimizer, self.clock)
        if self.options.due(t, len(self.train), self.epochs):
            with self.clock("arch"):
                self._move(self.valid.next())
                self.A_bar = self.derive()
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def _draw(self, p: Tensor) -> Tensor:
        """One candidate an edge, by its probability."""
        k = torch.multinomial(p, 1, generator=self.learner.generator)
        return torch.zeros_like(p).scatter_(-1, k, 1.0)

    def _move(self, batch: Batch) -> None:
        two = self.options.gates == "two"
        pairs = self._draw_pairs() if two else {}
        dA = self.gradient_of_pairs(pairs, batch) if two else self.gradient_of_rewards(batch)
        for name, slope in self.cost_gradient().items():
            dA[name] = dA[name] + slope
        if two:  # nothing but the two candidates of an edge moves
            for name, pair in pairs.items():
                moved = torch.zeros_like(dA[name]).scatter_(-1, pair, 1.0)
                dA[name] = dA[name] * moved
        # the step moves A in place
        before = {name: a.clone() for name, a in self.learner.A.items()}
        self.learner.A_optimizer.step(dA)
        for name, pair in pairs.items():
            keep_the_others(self.learner.A[name], before[name], pair)

    def _draw_pairs(self) -> dict[str, Tensor]:
        """(E, 2): two different candidates of every edge; the only one twice where there is one."""
        found = {}
        for name, p in self.preferences().items():
            number = min(2, p.shape[-1])
            found[name] = torch.multinomial(p, number, generator=self.learner.generator)
        return found

    def gradient_of_pairs(self, pairs: Mapping[str, Tensor], batch: Batch) -> Matrices:
        """dL/dA through the gates of two candidates an edge, one of which is on."""
        A = self.learner.A
        q = {name: A[name].gather(-1, pair).softmax(-1) for name, pair in pairs.items()}
        gates = {}
        for name, pair in pairs.items():
            on = torch.multinomial(q[name], 1, generator=self.learner.generator)
            # three kinds of gates: 1 is on, OFF is run for its gradient, 0 is not run
            off = torch.zeros_like(A[name]).scatter_(-1, pair, OFF)
            gates[name] = off.scatter_(-1, pair.gather(-1, on), 1.0).requires_grad_()
        self.net.use(gates, weighted=True)
        loss, _ = self.net.loss(batch, False)
        slopes = by_name(gates, self.net.gradient(loss, list(gates.values())))
        dg = mean_matrices(slopes, self.net.objective.examples(batch), self.net.device)
        dA = {}
        for name, pair in pairs.items():
            g = dg[name].gather(-1, pair)
            # q_i (g_i - sum_j q_j g_j): the softmax over two, passed backwards
            slope = q[name] * (g - (q[name] * g).sum(-1, keepdim=True))
            dA[name] = torch.zeros_like(A[name]).scatter_(-1, pair, slope)
        return dA

    @torch.no_grad()
    def gradient_of_rewards(self, batch: Batch) -> Matrices:
        """-(R - b) d log p(path) / dA for one path."""
        p = self.preferences()
        path = {name: self._draw(each) for name, each in p.items()}
        self.net.use(path)
        loss, output = self.net.loss(batch)
        _, right = self.net.objective.measure(loss, output, batch)
        examples = self.net.objective.examples(batch)
        reward = float(mean_of(right.double() / batch.y.numel(), examples))
        if self.baseline is None:
            self.baseline = reward
        advantage = reward - self.baseline
        self.baseline = BASELINE * self.baseline + (1 - BASELINE) * reward
        # d log softmax(A)_k / dA = one_hot(k) - p
        return {name: -advantage * (path[name] - p[name]) for name in p}

    def cost_gradient(self) -> Matrices:
        """d/dA of the weight times sum_k softmax(A)_k cost_k."""
        found = {}
        for name, cost in self.costs.items():
            p = self.learner.A[name].softmax(-1)
            expected = (p * cost).sum(-1, keepdim=True)
            # d/dA_k of sum_j p_j c_j = p_k (c_k - sum_j p_j c_j)
            found[name] = self.options.expected_cost * p * (cost - expected)
        return found

    def state_dict(self) -> State:
        return {"learner": super().state_dict(), "baseline": self.baseline, "costs": self.costs}

    def load_state_dict(self, state: State) -> None:
        self.baseline = state["baseline"]
        self.costs = state["costs"]  # seconds are not measured alike twice
        super().load_state_dict(state["learner"])


def keep_the_others(A: Tensor, before: Tensor, pair: Tensor) -> None:
    """Shifts the two entries of each row so that both together are as likely as before."""
    old = before.gather(-1, pair).logsumexp(-1, keepdim=True)
    new = A.gather(-1, pair)
    # exp(A_a) + exp(A_b) is what it was, and so is the share of all others
    A.scatter_(-1, pair, new - (new.logsumexp(-1, keepdim=True) - old))
