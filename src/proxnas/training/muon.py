"""Muon: descent along the orthogonalised momentum, for the weights of convolutions.

A weight W of shape (out, in, height, width) is read as a matrix (out, in * height * width). With
its gradient G,

    B <- momentum B + G             U = G + momentum B  (Nesterov)
    W <- sqrt(out) W / |W| - rate * orth(U)

where orth(U) is about the nearest matrix with orthonormal rows (or columns): all directions of the
step are equally long, whatever the gradient prefers. The norm of W is fixed, which the batch norm
behind every convolution allows, so that the rate alone says how far a step turns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""p(s) = a s + b s^3 + c s^5 brings singular values of (0, 1] close to 1 in a few steps."""
TINY = 1e-7


def orthogonalise(matrices: Tensor, steps: int) -> Tensor:
    """About the nearest semi-orthogonal matrices of a batch (count, rows, columns), by
    Newton-Schulz steps.

    p(X) = (a + b G + c G^2) X with the Gram matrix G = X X^T: all steps are taken on G, which is
    small, and X is multiplied once.
    """
    a, b, c = QUINTIC
    tall = matrices.size(-2) > matrices.size(-1)
    # the shorter side first: the Gram matrix is square in it
    X = matrices.mT if tall else matrices
    # no singular value is above the Frobenius norm: all lie in [0, 1] now, where p works
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + TINY)
    gram = X @ X.mT
    product: Tensor | None = None
    for step in range(steps):
        # b G + c G G, and a on the diagonal
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        product = factor if product is None else factor @ product
        if step < steps - 1:
            gram = factor @ gram @ factor  # of the next X; all of them commute
    if product is not None:
        X = product @ X
    turned: Tensor = X.mT if tall else X
    return turned


class Muon(torch.optim.Optimizer):
    """Weights of equal shape are orthogonalised together."""

    def __init__(
        self, weights: Iterable[Tensor], lr: float, momentum: float = 0.6, steps: int = 3
    ) -> None:
        super().__init__(weights, {"lr": lr, "momentum": momentum, "steps": steps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # none is called
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            directions = self._directions(weights, group["momentum"])
            # W <- sqrt(out) W / |W|: the norm that rows of length 1 have
            scales = [
                weight.size(0) ** 0.5 / norm.clamp_min(TINY)
                for weight, norm in zip(weights, torch._foreach_norm(weights), strict=True)
            ]
            torch._foreach_mul_(weights, scales)
            # (out, in * height * width) -> weights of that shape: matrix products for all at once
            by_shape: dict[tuple[int, int], list[int]] = {}
            for i, weight in enumerate(weights):
                by_shape.setdefault((weight.size(0), weight[0].numel()), []).append(i)
            for shape, members in by_shape.items():
                flat = torch.stack([_by_pixel(directions[i]).reshape(shape) for i in members])
                for i, turn in zip(members, orthogonalise(flat, group["steps"]), strict=True):
                    weight = _by_pixel(weights[i])
                    weight.sub_(turn.view(weight.shape), alpha=group["lr"])

    def _directions(self, weights: list[Tensor], momentum: float) -> Sequence[Tensor]:
        """The Nesterov momentum of each weight."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        averages = [self.state[weight]["momentum"] for weight in weights]
        # B <- momentum B + G, then G + momentum B
        torch._foreach_mul_(averages, momentum)
        torch._foreach_add_(averages, gradients)
        return torch._foreach_add(gradients, averages, alpha=momentum)


def _by_pixel(weight: Tensor) -> Tensor:
    """(out, height, width, in), as channels_last keeps it: the order of columns is of no matter,
    and nothing is copied."""
    return weight.permute(0, 2, 3, 1)
