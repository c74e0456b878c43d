"""The look ahead: candidates are credited with what training them promises.

Why: < g_j , O_k(x_i) > tells what O_k wins when it is added with the weights that it has now. A
skip connection is as good now as it will ever be, a convolution that was hardly ever selected is
not: without this credit untrained convolutions lose to skip connections. The promise is
xi < u_train , u_valid > (core/lookahead.py), which a few looks an epoch tell well enough.
"""

from __future__ import annotations

from proxnas.common.types import Batch, Matrices
from proxnas.core.supernet import Supernet
from proxnas.methods.optimizers import WeightOptimizer

LOOKS_AN_EPOCH = 4
"""More would cost time in searches with small batches and many steps an epoch."""


class LookAhead:
    """What training each candidate is expected to win, looked up now and then."""

    def __init__(self, net: Supernet, w: WeightOptimizer, every: int, horizon: float) -> None:
        """`every`: least steps between two looks; `horizon`: steps of training to credit."""
        self.net, self.w, self.every, self.horizon = net, w, every, horizon
        self.potentials: Matrices = {}
        self.looked = 0

    def promised(self, train: Batch, valid: Batch) -> Matrices:
        """What the loss is expected to fall by, at the architecture in use; group -> (E, K)."""
        pause = self.pause(self.w.steps_per_epoch)
        if not self.potentials or self.w.t >= self.looked + pause:
            self.potentials, self.looked = self.look(train, valid), self.w.t
        # xi in every step anew: what was looked up is the product of the slopes alone
        xi = self.w.pace(self.horizon)
        return {name: xi * potential for name, potential in self.potentials.items()}

    def look(self, train: Batch, valid: Batch) -> Matrices:
        """< u_train , u_valid > of all candidates."""
        return self.net.potentials(train, valid)

    def pause(self, steps_per_epoch: int) -> int:
        """Steps from one look to the next: weights move with the images seen, however they are cut
        in batches."""
        return max(self.every, steps_per_epoch // LOOKS_AN_EPOCH)
