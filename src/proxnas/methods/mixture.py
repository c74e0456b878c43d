"""Searches that train w and A by turns through a weighted sum of all candidates, as DARTS does, but
weigh the candidates in another way.

How A becomes factors, what is added to the loss and by what a cell is derived is a `Relaxation`;
the turns are the same for all.

E edges, K candidates; A is (E, K) for each group and stays on the host.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from proxnas.common.types import Batch, Matrices
from proxnas.core.selection import changed
from proxnas.methods.base import Setup, relaxed_gradient, weight_step
from proxnas.methods.learner import Learns
from proxnas.runs.metrics import Metrics


class Relaxation(Protocol):
    """How A weighs candidates; `progress` is the share of all steps that is done."""

    def weigh(self, A: Matrices, progress: float, generator: torch.Generator | None) -> Matrices:
        """The factors of all candidates, which a gradient can pass; without a generator nothing is
        drawn."""

    def penalty(self, A: Matrices) -> Tensor | None:
        """What the loss of A has besides that of the network."""
        return None

    def preferences(self, A: Matrices) -> Matrices:
        """What the cell is derived by: the factors at the end, nothing drawn."""
        return self.weigh(A, 1.0, None)


class MixtureSearch(Learns[Any]):
    """DARTS of first order with a relaxation of its own."""

    def __init__(self, setup: Setup[Any], relaxation: Relaxation) -> None:
        super().__init__(setup)
        self.options.check_due(len(self.train), self.epochs)
        self.relaxation = relaxation
        self.A_bar = self.derive()

    def step(self) -> Metrics:
        """A on a validation batch, then w on a training batch."""
        train, before = self.train.next(), self.A_bar
        if self.options.due(self.learner.w_optimizer.t, len(self.train), self.epochs):
            with self.clock("arch"):
                self.learner.A_optimizer.step(self.gradient(train))
                self.A_bar = self.derive()
        # weighed anew: A has moved, and factors that are drawn are drawn again
        self.net.use(self._weigh(self.learner.A), weighted=True)
        loss, right = weight_step(self.net, train, self.learner.w_optimizer, self.clock)
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def gradient(self, train: Batch) -> Matrices:
        """d/dA of the validation loss and the penalty; `train`: the batch that w moves on."""
        A = self.learner.A
        dA, _ = relaxed_gradient(self.net, A, self._weigh, self.valid.next())
        # in a graph of its own: that of the loss is gone
        leaves = {name: a.detach().requires_grad_() for name, a in A.items()}
        penalty = self.relaxation.penalty(leaves)
        if penalty is None:
            return dA
        slopes = torch.autograd.grad(penalty, list(leaves.values()))
        return {name: dA[name] + slope for name, slope in zip(A, slopes, strict=True)}

    def _weigh(self, A: Matrices) -> Matrices:
        return self.relaxation.weigh(A, self.learner.progress, self.learner.generator)

    def preferences(self) -> Matrices:
        """What it compares entries by."""
        return self.relaxation.preferences(self.learner.A)

    def use_mixture(self) -> None:
        """The mixture as it stands, without anything drawn."""
        factors = self.relaxation.weigh(self.learner.A, self.learner.progress, None)
        self.net.use(factors, weighted=True)
