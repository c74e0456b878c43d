"""How a module of the user's is judged: by a loss and a metric of their own, or as a classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from proxnas.common.errors import InputError
from proxnas.common.types import Batch
from proxnas.core.supernet import Supernet
from proxnas.domains.modules.batches import target_of

Criterion = Callable[[Any, Any], Tensor]
"""(output, target) -> the mean loss of the batch."""
Metric = Callable[[Any, Any], Tensor | float]
"""(output, target) -> a mean over the batch."""
IGNORED = -100
"""A class number that torch's cross-entropy leaves out."""


@dataclass(frozen=True)
class CustomObjective:
    """A loss and a metric of the user's."""

    criterion: Criterion
    metric: Metric | None

    def loss(self, net: Supernet, batch: Batch, weights: bool) -> tuple[Tensor, Any]:
        output = net(batch.x)
        # the loss is of the user: it is computed in full precision, whatever it is made of
        full = output if net.precision == torch.float32 else tree_map(_float, output)
        loss = self.criterion(full, target_of(batch))
        if not isinstance(loss, Tensor) or loss.ndim:
            found = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise InputError(
                f"the loss is {found}, not one number: return the mean over the batch as a tensor"
            )
        return loss, output

    @torch.no_grad()
    def measure(self, loss: Tensor, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        mean = self.metric(output, target_of(batch)) if self.metric else 0.0
        # sums over examples are kept, and a metric is a mean
        return loss.detach(), torch.as_tensor(mean, dtype=torch.float32, device=loss.device) * len(
            batch.y
        )

    def examples(self, batch: Batch) -> int:
        return len(batch.y)

    def share(self, batch: Batch) -> float:
        return 1.0


def classification(output: Any, target: Any) -> Tensor:
    """Cross-entropy, the loss if none is given; an InputError for what it cannot judge."""
    if not isinstance(output, Tensor):
        what = f"{type(output).__name__}, not a tensor"
        part = "output.logits" if hasattr(output, "logits") else "output[...]"
        raise InputError(
            f"the module puts out a {what}: give loss=lambda output, target: cross_entropy({part},"
            " target), or let its forward return the tensor alone"
        )
    if not isinstance(target, Tensor):
        raise InputError(
            f"the target is a {type(target).__name__}, not a tensor of class numbers: give a loss"
            " for it"
        )
    if not target.is_floating_point():
        target = target.long()
        _check_classes(output, target)
    elif target.shape != output.shape:
        kind = str(target.dtype).removeprefix("torch.")
        raise InputError(
            f"the target holds {kind} of shape {tuple(target.shape)} for an output of"
            f" {tuple(output.shape)}: for classes give whole numbers (target.long()), for values to"
            " be predicted a loss such as torch.nn.functional.mse_loss"
        )
    return nn.functional.cross_entropy(output, target)


def _check_classes(output: Tensor, target: Tensor) -> None:
    """Class numbers that the output has; on a GPU to look would mean to wait for it."""
    if target.device.type != "cpu" or output.ndim < 2 or not target.numel():
        return
    classes = target[target != IGNORED]
    if classes.numel() and not 0 <= int(classes.min()) <= int(classes.max()) < output.shape[1]:
        raise InputError(
            f"the target has classes from {int(classes.min())} to {int(classes.max())}, and the"
            f" module puts out {output.shape[1]}: number them from 0, or give the last layer more"
            " outputs"
        )


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The share of right answers; classes in dimension 1, target their numbers or, as floats, their
    probabilities."""
    answer = target.argmax(1) if target.is_floating_point() else target
    return (output.argmax(1) == answer).float().mean()


def _float(x: Any) -> Any:
    return x.float() if isinstance(x, Tensor) and x.is_floating_point() else x


def name_of(metric: Metric) -> str:
    # <lambda> and the like are no name for a column
    name = getattr(metric, "__name__", type(metric).__name__).strip("<>")
    if name.isidentifier() and name not in ("loss", "lambda", "function", "partial"):
        return name
    return "metric"
