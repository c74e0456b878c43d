"""What training a candidate promises: the part of its value that its present weights do not show.

The score < g_j , O_k(x_i) > tells how the loss changes when O_k is added as it is. But a candidate that is selected is
trained: one step on a training batch moves its weights by -xi u_train, where

    u = d < g_j , O_k(x_i) > / dw_k

and lowers the validation loss by another xi < u_train , u_valid >. This is the term that second-order DARTS
(Eq. updatealpha) approximates, taken over the whole way from a_k = 0 to 1: its derivative at 0 alone is 0, for an
unselected candidate has no influence on the loss. Two independent batches, because the square of one noisy gradient
would reward noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from proxnas.choice import Call, Choice, Group, OwnCall, Row, Source
from proxnas.scoring import inner
from proxnas.types import Matrices


class Recorded(NamedTuple):
    """A forward and backward pass of one batch: each node's call and the gradient at its output."""

    tape: Sequence[Call | OwnCall]
    gradients: Sequence[Tensor | None]


def potentials(train: Recorded, valid: Recorded, groups: Mapping[str, Group]) -> Matrices:
    """Sum over calls of < u_train , u_valid > for each row and candidate; 0 for those without weights of their own."""
    found = list(_all(train, valid))
    values = torch.stack([value for _, _, value in found]).tolist() if found else []
    sums = {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in groups.items()}
    for (row, k, _), value in zip(found, values, strict=True):
        sums[row.group][row.edge, k] += value
    return sums


def _all(train: Recorded, valid: Recorded) -> Iterator[tuple[Row, int, Tensor]]:
    for t, v, g_t, g_v in zip(train.tape, valid.tape, train.gradients, valid.gradients, strict=True):
        if g_t is None or g_v is None:  # the loss does not depend on this node
            continue
        if not isinstance(t, Call) or not isinstance(v, Call):  # its candidates have no weights of their own
            continue
        for choice, x_t, x_v in zip(t.choices, t.sources, v.sources, strict=True):
            for k, candidate in enumerate(choice.candidates):
                w = [p for p in candidate.parameters() if p.requires_grad]
                if w and choice.row:
                    u_t, u_v = (_slope(choice, k, x.detached(), g, w) for x, g in ((x_t, g_t), (x_v, g_v)))
                    yield choice.row, k, torch.stack([inner(a, b) for a, b in zip(u_t, u_v, strict=True)]).sum()


def _slope(choice: Choice, k: int, x: Source, g: Tensor, w: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """d < g_j , O_k(x_i) > / dw_k."""
    with torch.enable_grad():
        gradients = torch.autograd.grad(inner(g, choice.run(k, x)), w, allow_unused=True)
    return tuple(torch.zeros_like(p) if u is None else u for u, p in zip(gradients, w, strict=True))
