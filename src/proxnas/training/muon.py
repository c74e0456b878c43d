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

from collections.abc import Iterable
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
    X = matrices.mT if tall else matrices
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + TINY)
    gram = X @ X.mT
    identity = torch.eye(gram.size(-1), dtype=gram.dtype, device=gram.device)
    product = identity
    for _ in range(steps):
        factor = a * identity + b * gram + c * (gram @ gram)
        product = factor @ product
        gram = factor @ gram @ factor  # of the next X; all of them commute
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
            by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
            for weight in group["params"]:
                gradient = weight.grad
                if gradient is not None:
                    shape = weight.size(0), weight[0].numel()
                    by_shape.setdefault(shape, []).append(
                        (weight, self._direction(weight, gradient, group["momentum"]))
                    )
            for shape, members in by_shape.items():
                flat = torch.stack([direction.reshape(shape) for _, direction in members])
                for (weight, _), turn in zip(
                    members, orthogonalise(flat, group["steps"]), strict=True
                ):
                    weight.mul_(shape[0] ** 0.5 / weight.norm().clamp_min(TINY))
                    weight.sub_(turn.view(weight.shape), alpha=group["lr"])

    def _direction(self, weight: Tensor, gradient: Tensor, momentum: float) -> Tensor:
        """The Nesterov momentum of a weight."""
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        average: Tensor = state["momentum"].mul_(momentum).add_(gradient)
        return gradient + momentum * average
