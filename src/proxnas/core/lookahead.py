"""What training a candidate promises: the part of its value that its present weights do not show.

The score < g_j , O_k(x_i) > tells how the loss changes when O_k is added as it is. But a candidate
that is selected is trained: one step on a training batch moves its weights by -xi u_train, where

    u = d < g_j , O_k(x_i) > / dw_k

and lowers the validation loss by another xi < u_train , u_valid >. This is the term that
second-order DARTS (Eq. updatealpha) approximates, taken over the whole way from a_k = 0 to 1: its
derivative at 0 alone is 0, for an unselected candidate has no influence on the loss. Two
independent batches, because the square of one noisy gradient would reward noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from proxnas.common.types import Matrices
from proxnas.core.choice import Call, Choice, OwnCall, Source
from proxnas.core.groups import Group, Row
from proxnas.core.scoring import inner


class Recorded(NamedTuple):
    """A forward and backward pass of one batch: each node's call and the gradient at its output."""

    tape: Sequence[Call | OwnCall]
    gradients: Sequence[Tensor | None]


Place = tuple[int, int, int]
"""Call on the tape, edge of the node, candidate."""


def slopes(recorded: Recorded) -> dict[Place, tuple[Tensor, ...]]:
    """u for each candidate with weights of its own, where the loss depends on its node."""
    return {
        (*place, k): _slope(choice, k, x, g, w)
        for place, choice, k, x, g, w in _trainable(recorded)
    }


def potentials(
    u_train: Mapping[Place, Sequence[Tensor]], valid: Recorded, groups: Mapping[str, Group]
) -> Matrices:
    """Sum over calls of < u_train , u_valid > for each row and candidate; the host reads them once.

    The slopes of `train` are kept rather than its tape: they are as large as the weights, not as
    the batch.
    """
    found: list[tuple[Row, int, Tensor]] = []
    for place, choice, k, x, g, w in _trainable(valid):
        # both passes ran one architecture, so a place on one tape is the same place on the other
        if (*place, k) in u_train and choice.row:
            pairs = zip(u_train[*place, k], _slope(choice, k, x, g, w), strict=True)
            found.append((choice.row, k, torch.stack([inner(a, b) for a, b in pairs]).sum()))
    values = torch.stack([value for _, _, value in found]).tolist() if found else []
    sums = {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in groups.items()}
    for (row, k, _), value in zip(found, values, strict=True):
        sums[row.group][row.edge, k] += value
    return sums


def _trainable(
    recorded: Recorded,
) -> Iterator[tuple[tuple[int, int], Choice, int, Source, Tensor, Sequence[Tensor]]]:
    """(call, edge), Choice, k, what it read, g_j, w_k."""
    for number, (call, g) in enumerate(zip(recorded.tape, recorded.gradients, strict=True)):
        # modules that score their rows by themselves have candidates without weights of their own
        if g is None or not isinstance(call, Call):
            continue
        for e, (choice, source) in enumerate(zip(call.choices, call.sources, strict=True)):
            for k, candidate in enumerate(choice.candidates):
                if w := [p for p in candidate.parameters() if p.requires_grad]:
                    # detached: u is taken in w_k alone, nothing flows on to what made x_i
                    yield (number, e), choice, k, source.detached(), g, w


def _slope(choice: Choice, k: int, x: Source, g: Tensor, w: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """d < g_j , O_k(x_i) > / dw_k."""
    with torch.enable_grad():
        # g_j is a constant here: what the rest of the network makes of x_j, to first order
        gradients = torch.autograd.grad(inner(g, choice.run(k, x)), w, allow_unused=True)
    return tuple(torch.zeros_like(p) if u is None else u for u, p in zip(gradients, w, strict=True))
