"""One step by several processes: gradients of the whole batch, and one will.

Every process holds all weights and the whole architecture, and works on its part of each batch. All
of them then take the same step, because each gradient is exchanged before it is used:

    g = sum_r n_r g_r / sum_r n_r        n_r examples of process r, g_r the gradient of its mean
                                         loss

which is the gradient on the whole batch. Of the weights only those are exchanged that this step has
used: all processes select the same operations, and every exchange says so (`BITS`). It also says
who was asked to stop, so that all stop after the same step. A process that is alone exchanges
nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from proxnas.common.errors import AboutOptions
from proxnas.common.interrupt import STOPPING
from proxnas.common.launch import here
from proxnas.common.types import Matrices, State, tensors_in
from proxnas.runs.messages import exchange, gather, team, total, where

BITS = 16
"""Bits of the hash of which weights take part, each a number of its own: a sum is 0 or the number
of processes."""
DRIFT = 1e-4
"""Most that the sizes of all numbers of a run may differ between processes; unlike machines round
unlike."""


def mean(
    tensors: Sequence[Tensor | None], examples: int, device: torch.device | None = None
) -> list[Tensor | None]:
    """The gradients on the whole batch, given those on this process's examples; what is None stays
    None."""
    present = [x for x in tensors if x is not None]
    if here().alone or not present:
        return list(tensors)
    found = iter(_means(present, examples, where(present[0], device), ()))
    return [None if x is None else next(found) for x in tensors]


def mean_of(figures: Tensor, examples: int) -> Tensor:
    """The same of figures that are means over this process's examples."""
    return next(x for x in mean([figures], examples) if x is not None)


def mean_matrices(matrices: Matrices, examples: int, device: torch.device) -> Matrices:
    """The same of a gradient of A, which is on the host whatever the device."""
    found = mean(list(matrices.values()), examples, device)
    return {name: g for name, g in zip(matrices, found, strict=True) if g is not None}


def mean_gradients(
    weights: Sequence[Tensor], buffers: Sequence[Tensor], loss: Tensor, examples: int
) -> Tensor:
    """The gradients that are there become those of the whole batch, and so do the buffers (batch
    statistics); returns the loss on the whole batch. A weight without a gradient was used by no
    process, and is not exchanged."""
    if here().alone:
        return loss
    values = [*(w.grad for w in weights if w.grad is not None), *buffers]
    # each bit is summed over the processes: the sum is 0 or their number only if all agree
    crc = zlib.crc32(bytes(w.grad is not None for w in weights))
    bits = [float(crc >> bit & 1) for bit in range(BITS)]
    notes = [*_wishes(*team().wish), *bits]
    *found, whole, noted = _means([*values, loss], examples, where(loss), notes)
    team().notes.append(noted)
    if values:
        # into the gradients and buffers where they stand
        torch._foreach_copy_(values, found)
    return whole


def _means(
    tensors: Sequence[Tensor], examples: int, device: torch.device, notes: Sequence[float]
) -> list[Tensor]:
    """The means over all examples of all processes, then the plain sums of the notes; by one
    message."""
    dtype = tensors[0].dtype
    # all in one message and one type: values times n_r, then n_r, then the notes
    tail = torch.tensor([examples, *notes], dtype=dtype, device=device)
    buffer = torch.cat([*(x.detach().reshape(-1).to(device, dtype) for x in tensors), tail])
    buffer[: -len(tail)] *= examples
    *parts, count, noted = exchange(buffer).split([*(x.numel() for x in tensors), 1, len(notes)])
    return [
        *(part.div_(count).view(x.shape).to(x) for part, x in zip(parts, tensors, strict=True)),
        noted,
    ]


def _wishes(signum: int | None, late: bool) -> list[float]:
    return [*(float(signum == known) for known in STOPPING), float(late)]


def agree_to_stop(signum: int | None, late: bool) -> tuple[int | None, bool]:
    """(the signal to stop by, whether to write a checkpoint) after a step, the same in all
    processes.

    A wish goes along with the next exchange of weights. On an accelerator the latest is left for
    the next time, like the verdicts of the guard: the host does not wait for it.
    """
    if here().alone:
        return signum, late
    team().wish, notes = (signum, late), team().notes
    asked, due = None, False
    while notes and len(notes) > (notes[-1].device.type != "cpu"):
        heard = notes.popleft().tolist()
        # the last that were put in: wishes first, bits after them
        sums = heard[-BITS:]
        if any(x not in (0, here().size) for x in sums):
            raise AboutOptions(
                "the processes of this job select different operations: give all of them the same"
                " command, data and versions, and start again with {resume}"
            )
        asked, due = _heard(heard) or asked, due or heard[len(STOPPING)] > 0
    return asked, due


def _heard(counts: Iterable[float]) -> int | None:
    return next((known for known, count in zip(STOPPING, counts, strict=False) if count), None)


def ask_to_stop(signum: int | None) -> int | None:
    """A signal that any process has been sent, asked for at once."""
    return signum if here().alone else _heard(total(torch.tensor(_wishes(signum, False))).tolist())


def check_alike(state: State) -> None:
    """An InputError unless all processes have come to the same weights and architecture."""
    if here().alone:
        return
    sizes = gather(torch.tensor(_size(state), dtype=torch.float64)).tolist()
    if not all(abs(size - sizes[0]) <= DRIFT * abs(sizes[0]) for size in sizes):
        raise AboutOptions(
            f"the processes of this job came to different weights (|.| = {sizes[:8]}): give all of"
            " them the same command, data and versions, and start again with {resume}"
        )


def _size(state: State) -> float:
    """The sum of the absolute values of all numbers of its tensors."""
    size = 0.0
    for tensor in tensors_in(state):
        if tensor.is_floating_point():
            size += float(tensor.detach().abs().sum())
    return size
