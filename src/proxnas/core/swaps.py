"""One block exchanged for another kind, if that wins by more than its noise.

The gradient of A says of all candidates at once what each would change to first order. The most
promising one is then tried: both networks answer the same images, and the mean difference of their
losses must be clear of zero. So a network that is trained already is changed only for a reason.
"""

# E edges (rows), K candidates of a group; one candidate a row is selected

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proxnas.common.types import Batch, Matrices
from proxnas.core.groups import Row
from proxnas.core.supernet import Supernet

CLEAR = 2.0
"""Standard errors by which a swap has to win."""


@dataclass(frozen=True)
class Swap:
    """What was tried, and what came of it."""

    row: Row
    old: int
    new: int
    gain: float
    """Mean loss before, less after, on the same images; positive: it won."""
    error: float
    """Its standard error."""

    @property
    def wins(self) -> bool:
        """By more than its noise."""
        return self.gain > CLEAR * self.error


def propose(
    net: Supernet, A_bar: Matrices, score: Sequence[Batch], judge: Sequence[Batch]
) -> Swap | None:
    """The swap that the gradient on `score` promises most of, tried on `judge`; None: it promises
    nothing of any."""
    # found on other batches than it is judged on: the luckiest of many is no fair sample
    best = _most_promising(net, A_bar, score)
    if best is None:
        return None
    row, old, new = best
    with batch_statistics(net.module):
        # image by image (N,): what both find hard cancels, so the error is that of the difference
        difference = losses(net, A_bar, judge) - losses(net, swapped(A_bar, row, new), judge)
    net.use(A_bar)
    error = float(difference.std()) / math.sqrt(len(difference))
    return Swap(row, old, new, float(difference.mean()), error)


def swapped(A_bar: Matrices, row: Row, new: int) -> Matrices:
    """A_bar with another candidate in a row."""
    changed = {name: matrix.clone() for name, matrix in A_bar.items()}
    changed[row.group][row.edge] = 0.0
    changed[row.group][row.edge, new] = 1.0
    return changed


def _most_promising(
    net: Supernet, A_bar: Matrices, batches: Sequence[Batch]
) -> tuple[Row, int, int] | None:
    """(row, selected candidate, other) whose exchange lowers the loss most to first order."""
    net.use(A_bar)
    total = {name: torch.zeros_like(matrix) for name, matrix in A_bar.items()}
    with batch_statistics(net.module):
        for batch in batches:
            dA, _ = net.architecture_gradient(batch)
            for name, matrix in dA.items():
                total[name] += matrix.to(total[name])
    best, least = None, 0.0
    for name, matrix in total.items():
        for e, scores in enumerate(matrix):
            old = int(A_bar[name][e].argmax())
            # to first order L falls by dA[old] - dA[new] when the entry moves from old to new
            change, new = (scores - scores[old]).min(0)
            if float(change) < least:
                best, least = (Row(name, e), old, int(new)), float(change)
    return best


@torch.no_grad()
def losses(net: Supernet, A_bar: Matrices, batches: Sequence[Batch]) -> Tensor:
    """The loss of every image, with A_bar."""
    net.use(A_bar)
    found = [
        nn.functional.cross_entropy(net(batch.x).float(), batch.y, reduction="none")
        for batch in batches
    ]
    return torch.cat(found).double().cpu()


@contextmanager
def batch_statistics(module: nn.Module) -> Iterator[None]:
    """Within, batch norms normalise by the batch and keep nothing of it: a candidate that ran less
    often has poorer averages, for which it must not be blamed."""
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    before = module.training, [norm.momentum for norm in norms]
    module.train()
    for norm in norms:
        # running <- (1 - 0) running + 0 batch: the averages stay as they are
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before[1], strict=True):
            norm.momentum = momentum
        module.train(before[0])
