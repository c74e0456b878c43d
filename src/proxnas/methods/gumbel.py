"""Samples of a categorical variable that a gradient can pass (Jang et al. 2017, Maddison et al.
2017).

K candidates in the last dimension; A holds unnormalised log-probabilities.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gumbel(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """-log(-log u), u uniform; drawn again where it is not finite."""
    while True:
        # -log u is exponential, so its logarithm, with the sign turned, is Gumbel
        noise = -torch.empty(shape, dtype=torch.float64).exponential_(generator=generator).log()
        if noise.isfinite().all():
            return noise


def concrete(A: Tensor, noise: Tensor, tau: float) -> Tensor:
    """softmax((A + noise) / tau): a sample of the concrete distribution, one-hot as tau -> 0."""
    return ((A + noise) / tau).softmax(-1)


def hard(p: Tensor) -> Tensor:
    """One-hot at the largest entry of each row."""
    return torch.zeros_like(p).scatter_(-1, p.argmax(-1, keepdim=True), 1.0)
