"""The second-order gradient of DARTS (Eq. updatealpha), for any method with a first-order one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from proxnas.common.types import Batch, Matrices
from proxnas.core.supernet import Supernet
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.runs.consensus import mean


class UnrolledStep:
    """The second-order gradient of DARTS (Eq. updatealpha) around any first-order one.

    w' = w - xi (momentum buffer + dL_train/dw + decay w),   v = dL_val(w')/dw'
    dA = dL_val(w')/dA - xi [dL_train(w + Rv)/dA - dL_train(w - Rv)/dA] / 2R,   R = 0.01 / |v|

    With `clip_unrolled` dL_train/dw and v are clipped like the gradient of a weight step; the
    coefficient of the former then stands before the bracket too.
    """

    def __init__(self, net: Supernet, optimizer: WeightOptimizer) -> None:
        self.net = net
        self.optimizer = optimizer

    def __call__(self, gradient: ArchitectureGradient, train: Batch, valid: Batch) -> Matrices:
        weights = self.optimizer.weights
        xi = self.optimizer.learning_rate * self.net.objective.share(train)
        # put back bit by bit after each move: adding and taking away again would round
        kept = [w.detach().clone() for w in weights]
        direction, clipped = self._direction(train)
        # w' = w - xi direction
        _add(weights, direction, -xi)
        dA, v = gradient(valid, weights)
        _restore(weights, kept)
        self._clip(v)
        R = 0.01 / norm(v)
        # the product of the second derivative with v, by a central difference along v
        _add(weights, v, R)
        plus, _ = gradient(train, ())
        _restore(weights, kept)
        _add(weights, v, -R)
        minus, _ = gradient(train, ())
        _restore(weights, kept)
        return {name: dA[name] - xi * clipped * (plus[name] - minus[name]) / (2 * R) for name in dA}

    def _clip(self, gradients: Sequence[Tensor | None]) -> float:
        """The factor that they were made smaller by."""
        if not self.optimizer.options.clip_unrolled:
            return 1.0
        factor = min(1.0, self.optimizer.options.clip / norm(gradients))
        torch._foreach_mul_([g for g in gradients if g is not None], factor)
        return factor

    def _direction(self, train: Batch) -> tuple[list[Tensor | None], float]:
        """momentum * buffer + dL_train/dw + decay * w, for the weights that the architecture in use
        reaches; and the factor by which dL_train/dw was clipped."""
        o, weights = self.optimizer.options, self.optimizer.weights
        loss, _ = self.net.loss(train)
        gradients = mean(
            torch.autograd.grad(loss, weights, allow_unused=True),
            self.net.objective.examples(train),
        )
        clipped = self._clip(gradients)
        moves: list[Tensor | None] = [
            None if g is None else self._with_momentum(w, g.add(w.detach(), alpha=o.weight_decay))
            for w, g in zip(weights, gradients, strict=True)
        ]
        return moves, clipped

    def _with_momentum(self, w: Tensor, direction: Tensor) -> Tensor:
        buffer = self.optimizer.momentum_of(w)
        if buffer is None:
            return direction
        return direction.add_(buffer, alpha=self.optimizer.options.momentum)


class ArchitectureGradient(Protocol):
    """dF/dA on a batch at the weights as they stand, and dF/dw for the weights asked for."""

    def __call__(
        self, batch: Batch, weights: Sequence[Tensor]
    ) -> tuple[Matrices, Sequence[Tensor | None]]: ...


def norm(tensors: Sequence[Tensor | None]) -> float:
    """The Euclidean norm of all of them together; the host reads it once."""
    present = [x for x in tensors if x is not None]
    return max(float(torch.stack(torch._foreach_norm(present)).norm()), 1e-12)


@torch.no_grad()
def _add(weights: Sequence[Tensor], direction: Sequence[Tensor | None], scale: float) -> None:
    pairs = [(w, d) for w, d in zip(weights, direction, strict=True) if d is not None]
    torch._foreach_add_([w for w, _ in pairs], [d for _, d in pairs], alpha=scale)


@torch.no_grad()
def _restore(weights: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    torch._foreach_copy_(list(weights), list(kept))
