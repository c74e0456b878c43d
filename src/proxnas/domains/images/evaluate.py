"""How good a network is on a part of the data: loss, accuracy, and who is taken for whom."""

# K classes; confusion is (K, K): row = true class, column = answer

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from proxnas.domains.images.data.stream import ImageBatches
from proxnas.runs.messages import total

BATCH = (
    128  # fixed: the same batches give the same answers to the bit, in training as in a later test
)
TOP = 5
NOISE = 2.0
"""Standard errors by which an accuracy may differ by chance."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures of one pass over a part."""

    loss: float
    top5: float
    """Share of images whose class is among the five most probable."""
    confusion: Tensor

    @cached_property
    def images(self) -> int:
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        return int(self.confusion.trace()) / self.images

    @property
    def majority(self) -> float:
        """The accuracy of whoever always answers the most frequent class of the part."""
        return int(self.confusion.sum(1).max()) / self.images

    def beats_majority(self) -> bool:
        """Whether it is more accurate than that by more than chance makes: two standard errors of a
        share."""
        error = math.sqrt(self.majority * (1 - self.majority) / self.images)
        return self.accuracy > self.majority + NOISE * error

    def per_class(self) -> list[float | None]:
        """Accuracy of each class; None for one without images."""
        rows = zip(self.confusion.diagonal().tolist(), self.confusion.sum(1).tolist(), strict=True)
        return [right / images if images else None for right, images in rows]


@torch.no_grad()
def evaluate(
    network: nn.Module, part: ImageBatches, classes: int, precision: torch.dtype
) -> Evaluation:
    """The network on a whole part; it is in evaluation mode within, and afterwards as it was."""
    before = network.training
    network.eval()
    # (2,) a batch: loss, images with their class among the best; read by the host at the end
    sums = [torch.zeros(2, device=part.device)]
    confusion = torch.zeros(classes * classes, dtype=torch.int64, device=part.device)
    for x, y in part.evaluation_batches(BATCH):
        with torch.autocast(part.device.type, precision, enabled=precision != torch.float32):
            logits = network(x)
        logits = logits.float()
        confusion += torch.bincount(y * classes + logits.argmax(-1), minlength=classes * classes)
        loss = nn.functional.cross_entropy(logits, y, reduction="sum")
        among = (logits.topk(min(TOP, classes)).indices == y[:, None]).sum()
        sums.append(torch.stack([loss, among.to(loss.dtype)]))
    network.train(before)
    confusion = total(confusion).view(classes, classes).cpu()
    loss_mean, top5 = (total(torch.stack(sums).cpu().double().sum(0)) / confusion.sum()).tolist()
    return Evaluation(loss_mean, top5, confusion)
