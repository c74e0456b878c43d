"""What a pass by the clock does with the kinds of its blocks: runs others for a step, tries a swap,
and compares the network that it came to with the plain one."""

# E edges (rows), K candidates of a group; one candidate a row is selected

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proxnas.common.types import Batch, Matrices
from proxnas.core.size.budget import Budget
from proxnas.core.supernet import Supernet
from proxnas.core.swaps import batch_statistics, losses, propose, swapped
from proxnas.domains.images.spaces.resnet import middle


def exchange_some(A_bar: Matrices, chance: float, generator: torch.Generator) -> Matrices:
    """A_bar with another kind in some rows, each with that chance."""
    exchanged = {name: matrix.clone() for name, matrix in A_bar.items()}
    for matrix in exchanged.values():
        rows, kinds = matrix.shape
        for e in range(rows):
            if float(torch.rand((), generator=generator)) < chance:
                matrix[e] = 0.0
                # any kind is as likely, the present one among them
                matrix[e, int(torch.randint(kinds, (), generator=generator))] = 1.0
    return exchanged


def try_swap(
    net: Supernet,
    A_bar: Matrices,
    score: Sequence[Batch],
    judge: Sequence[Batch],
    budget: Budget | None,
) -> tuple[Matrices, list[list[Any]]]:
    """A_bar after the most promising swap, if that wins and is within the limit; and what is told
    of it, a row: group, row, old, new, gain, its error, whether it was made."""
    swap = propose(net, A_bar, score, judge)
    if swap is None:
        return A_bar, []
    after = swapped(A_bar, swap.row, swap.new)
    made = swap.wins and (budget is None or budget.meets(after))
    # a swap that was not made is told too: its gain and error are results
    told = [swap.row.group, swap.row.edge, swap.old, swap.new, swap.gain, swap.error, made]
    return after if made else A_bar, [told]


def compare(net: Supernet, A_bar: Matrices, batches: Sequence[Batch]) -> tuple[float, float]:
    """(how much lower the loss of A_bar is than that of the plain network, standard error)."""
    with batch_statistics(net.module):
        # (N,) each, of the same images: their difference has little noise
        plain = losses(net, middle(), batches)
        found = losses(net, A_bar, batches)
    gain = float((plain - found).mean())
    # standard error of a mean of N differences
    return gain, float((plain - found).std()) / len(plain) ** 0.5
