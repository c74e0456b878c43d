"""SNAS (Xie et al., 'SNAS: Stochastic Neural Architecture Search', ICLR 2019).

One sample Z of the concrete distribution a batch weighs all candidates, and w and A descend one and
the same loss, on the same batch, by one backward pass (there is no validation loss):

    Z = softmax((A + G) / tau),  G Gumbel noise,  tau falls linearly from 1 towards 0.03 over the
                                 steps
    L = cross entropy(Z) + resource * sum over edges and candidates of Z cost
    w by SGD, A by Adam with its gradient clipped to norm 10;  A starts at N(1, 0.01^2)

The cost of a candidate is the log form of the public code: the mean of the logarithms of its
parameters, multiply-adds and memory access, values below 1 counting as 1. It is counted from the
modules at the places where they stand.

E edges, K candidates; A and costs are (E, K) for each group.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from proxnas.common.options import NOT_NEGATIVE, POSITIVE
from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Source
from proxnas.core.selection import changed, keep_inputs
from proxnas.core.size.complexity import parameters
from proxnas.core.size.costs import multiply_adds_at, on_meta, places, sums
from proxnas.core.supernet import Supernet
from proxnas.methods.base import Setup
from proxnas.methods.gumbel import concrete, gumbel, hard
from proxnas.methods.learner import Learns, clipped, joint_step, linear
from proxnas.methods.options import Anneals, CountsSkips, DescendsA
from proxnas.runs.metrics import Metrics


@dataclass(frozen=True)
class SnasOptions(CountsSkips, Anneals, DescendsA):
    """A relaxed sample of all candidates; w and A descend the training loss together."""

    public: ClassVar[str] = "SNAS"
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0}
    for_images: ClassVar[tuple[str, ...]] = (*CountsSkips.for_images, "resource")

    arch_noise: Annotated[float, NOT_NEGATIVE] = 0.01
    """Standard deviation of the noise in the initial A."""
    arch_decay: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Weight decay of A."""
    tau_end: Annotated[float, POSITIVE] = 0.03
    """Temperature towards the last step."""
    resource: Annotated[float, NOT_NEGATIVE] = 0.0
    """Weight of the expected cost in the loss; its authors' example: 0.0015."""


@dataclass(frozen=True)
class Constants:
    """What the public code fixes."""

    mean: float = 1.0
    """Mean of the initial A."""
    clip: float = 10.0
    """Largest norm of the gradient of A."""


class Snas(Learns[SnasOptions]):
    """A stochastic, single-level search."""

    Options = SnasOptions

    def __init__(self, setup: Setup[SnasOptions], constants: Constants | None = None) -> None:
        self.constants = constants or Constants()
        super().__init__(setup, self.constants.mean)
        self.costs: Matrices = {}
        self.A_bar = self.derive()

    @property
    def tau(self) -> float:
        """Linear over the steps; the end is approached, not reached, as in the public code."""
        return linear(*self.options.tau, self.learner.progress)

    def step(self) -> Metrics:
        """A sample, one backward pass, two optimizers."""
        batch, before, tau = self.train.next(), self.A_bar, self.tau
        A = {name: a.detach().requires_grad_() for name, a in self.learner.A.items()}
        # kept: the cost below is taken at the same sample
        noise = {name: gumbel(a.shape, self.learner.generator) for name, a in A.items()}
        self.net.use({name: concrete(a, noise[name], tau) for name, a in A.items()}, weighted=True)
        loss, right, gradients = joint_step(
            self.net, batch, self.learner.w_optimizer, self.clock, list(A.values())
        )
        # without them the step overflowed in float16, and A rests as w does
        if gradients is not None:
            with self.clock("arch"):
                dA = dict(zip(A, gradients, strict=True))
                if self.options.resource:
                    dR = self.resource_gradient(A, noise, tau, batch)
                    dA = {name: g + dR[name] for name, g in dA.items()}
                self.learner.A_optimizer.step(clipped(dA, self.constants.clip))
                self.A_bar = self.derive()
        return Metrics(loss, right, len(batch.y), changed(before, self.A_bar))

    def resource_gradient(self, A: Matrices, noise: Matrices, tau: float, batch: Batch) -> Matrices:
        """d/dA of resource * sum Z cost at the sample that was used (reparametrised)."""
        if not self.costs:
            self.costs = log_costs(self.net, self.A_bar, batch.x)
        # the sample again, on a graph of its own: that of the loss is gone
        cost = torch.stack(
            [(concrete(a, noise[name], tau) * self.costs[name]).sum() for name, a in A.items()]
        ).sum()
        gradients = torch.autograd.grad(self.options.resource * cost, list(A.values()))
        return dict(zip(A, gradients, strict=True))

    def derive(self) -> Matrices:
        """The likeliest candidate of each row, `none` included; of the present ones each node keeps
        the strongest."""
        kept = {
            name: keep_inputs(p, hard(p), self.net.groups[name])
            for name, p in self.preferences().items()
        }
        return {name: (A_bar != 0).double() for name, A_bar in kept.items()}


EXAMPLES = 2
"""One example would leave batch statistics undefined where an image is a single pixel."""


def log_costs(net: Supernet, A_bar: Matrices, x: Tensor) -> Matrices:
    """Mean of log parameters, log multiply-adds and log memory access an example, over the places
    of each row.

    Values below 1 count as 1, so what costs nothing has cost 0; so has `none`.
    """
    net.use(A_bar)
    total, number = sums(net, places(net, x[:EXAMPLES]), _log_cost)
    return {name: matrix / number[name].clamp(min=1) for name, matrix in total.items()}


def _log_cost(candidate: nn.Module, source: Source) -> float:
    size = parameters(candidate)
    args, kwargs = tree_map(on_meta, (source.args, dict(source.kwargs)))
    with torch.no_grad():
        output = copy.deepcopy(candidate).to("meta")(*args, **kwargs)
    tensors = [x for x in (*args, *kwargs.values(), output) if isinstance(x, Tensor)]
    moved = sum(x.numel() for x in tensors) / EXAMPLES
    # memory access of an example: what is read and written, and every weight once
    counted = (size, multiply_adds_at(candidate, source) / EXAMPLES, moved + size)
    return sum(math.log(max(1.0, value)) for value in counted) / 3
