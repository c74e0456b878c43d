"""The proximal steps of NASP (Proposition 1, Alg. 2), on rows of A: shape (..., candidates).

Decided where the paper is silent:
- ties: the entry with the highest `priority` wins; without a `priority` the first index.
- a row without a positive entry (for `prox_c1`: all zero): the set is not closed there and no
  minimiser exists, only an infimum that a value -> 0+ approaches. The largest entry is chosen and
  switched on fully (value 1), as the public code does, because an edge that outputs zero would
  starve the node behind it.
- NaN is an error: an argmax over NaN would choose silently.
"""

from __future__ import annotations

import torch
from torch import Tensor


def prox_c1(a: Tensor, priority: Tensor | None = None) -> Tensor:
    """argmin_b 1/2 |b - a|^2 subject to |b|_0 = 1 (C1): the entry largest in magnitude stays, the
    others become 0.

    On [0, 1], where NASP keeps A, that is the largest entry.
    """
    # keeping entry i costs 1/2 sum_{k != i} a_k^2: least where |a_i| is largest
    winner = one_hot_argmax(a.abs(), priority)
    return torch.where(winner, _switched_on(a, a != 0), 0.0)


def prox_c2(a: Tensor) -> Tensor:
    """argmin_b 1/2 |b - a|^2 subject to 0 <= b <= 1 (C2, below Eq. 11)."""
    # the box takes each entry for itself, so no row has to be looked at as a whole
    return _checked(a).clamp(0.0, 1.0)


def prox_c(a: Tensor, priority: Tensor | None = None) -> Tensor:
    """argmin_b 1/2 |b - a|^2 subject to |b|_0 = 1 and 0 <= b <= 1 (C = C1 and C2).

    For support i the objective is |a|^2/2 - (a_i c - c^2/2) with c = clip(a_i): it falls as a_i
    grows, so the largest entry wins *before* clipping. Proposition 1 as printed,
    prox_C1(prox_C2(a)), loses the order of entries over 1.
    """
    # over 1 clipping makes entries equal: the winner is known only before it
    winner = one_hot_argmax(a, priority)
    return torch.where(winner, _switched_on(a.clamp(0.0, 1.0), a > 0), 0.0)


def one_hot_argmax(a: Tensor, priority: Tensor | None = None) -> Tensor:
    """A boolean matrix with one True a row: at the largest entry; among equals by `priority`, else
    the first."""
    # (..., candidates): several True a row in a tie
    best = _checked(a) == a.amax(-1, keepdim=True)
    order = torch.ones_like(a) if priority is None else priority
    # argmax returns the first index among equals, and every priority is > -inf
    index = torch.where(best, order, -torch.inf).argmax(-1, keepdim=True)
    return torch.zeros_like(best).scatter_(-1, index, True)


def _switched_on(a: Tensor, usable: Tensor) -> Tensor:
    """The entries of a, but 1 where they cannot be kept."""
    return torch.where(usable, a, 1.0)


def _checked(a: Tensor) -> Tensor:
    if a.ndim == 0 or a.shape[-1] == 0:
        raise ValueError(f"a row of A needs at least one candidate, the shape is {tuple(a.shape)}")
    if a.isnan().any():
        raise ValueError("A holds NaN: the architecture gradient was not finite")
    return a
