"""How good a network is on a part of the data: loss, accuracy, and who is taken for whom."""

# K classes; confusion is (K, K): row = true class, column = answer

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proxnas.common.seeds import Array
from proxnas.domains.images.data.stream import ImageBatches
from proxnas.domains.images.targets import CLASSES, Target
from proxnas.runs.messages import total

BATCH = (
    128  # fixed: the same batches give the same answers to the bit, in training as in a later test
)
TOP = 5
NOISE = 2.0
"""Standard errors by which an accuracy may differ by chance."""
FEW = 50
"""Test images that may not tell a network that has learnt something from one that has not."""


def step_count(steps: int) -> str:
    """As it is said: 1 step, 2 steps."""
    return f"{steps} step{'s' * (steps != 1)}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures of one pass over a part."""

    loss: float
    top5: float
    """Share of images whose class is among the five most probable."""
    confusion: Tensor
    logits: Tensor | None = None
    """Of each image, where they were to be kept; `y`: its class, `order`: its number in the
    part."""
    y: Tensor | None = None
    order: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

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
        # standard error of a share p of n images: sqrt(p (1 - p) / n)
        error = math.sqrt(self.majority * (1 - self.majority) / self.images)
        return self.accuracy > self.majority + NOISE * error

    def joined(self, others: Sequence[Evaluation]) -> Evaluation:
        """The figures of several parts as of one."""
        each = [self, *others]
        images = sum(one.images for one in each)
        loss, top5 = (
            sum(getattr(one, name) * one.images for one in each) / images
            for name in ("loss", "top5")
        )
        return Evaluation(loss, top5, torch.stack([one.confusion for one in each]).sum(0))

    def tested(self, names: Sequence[str]) -> dict[str, Any]:
        """What a test tells."""
        figures = {
            "accuracy": self.accuracy,
            "per_class": dict(zip(names, self.per_class(), strict=True)),
            "confusion": self.confusion.tolist(),
        }
        return figures | ({"top5": self.top5} if len(names) > TOP else {})

    def more(self) -> dict[str, Any]:
        """Figures of a test besides the main one."""
        return {"majority_accuracy": self.majority}

    def doubts(self, steps: int) -> list[str]:
        """What is said of a network that has learnt nothing."""
        if self.beats_majority():
            return []
        # better, but within two standard errors: with more images they are smaller
        if self.accuracy > self.majority and self.images < FEW:
            why = f"so few images do not tell ({step_count(steps)}): give more of them"
        else:
            why = f"the network has learnt nothing that shows ({step_count(steps)}): give it more"
            why += " time, smaller batches or more images"
        return [
            f"test accuracy {self.accuracy:.4f} is not clearly better than always answering the"
            f" most frequent class, right for {self.majority:.4f} of the {self.images} test images:"
            f" {why}"
        ]

    def per_class(self) -> list[float | None]:
        """Accuracy of each class; None for one without images."""
        rows = zip(self.confusion.diagonal().tolist(), self.confusion.sum(1).tolist(), strict=True)
        return [right / images if images else None for right, images in rows]


@dataclass(frozen=True, eq=False)
class Judged:
    """Figures of one pass over a part, of targets that are not classes."""

    loss: float
    metric: str
    answers: Array
    y: Array
    measure: Callable[[Array, Array], dict[str, Any]]

    @property
    def images(self) -> int:
        return len(self.y)

    @cached_property
    def figures(self) -> dict[str, Any]:
        """By name, the main one among them."""
        return self.measure(self.answers, self.y)

    def joined(self, others: Sequence[Judged]) -> Judged:
        """The figures of several parts as of one."""
        each = [self, *others]
        y = np.concatenate([one.y for one in each])
        loss = sum(one.loss * one.images for one in each) / len(y)
        answers = np.concatenate([one.answers for one in each])
        return Judged(loss, self.metric, answers, y, self.measure)

    def tested(self, names: Sequence[str]) -> dict[str, Any]:
        """What a test tells."""
        # figure -> a value an output becomes output -> its figures, by name
        each = self.figures["each"]
        by_name = {
            name: {figure: values[k] for figure, values in each.items()}
            for k, name in enumerate(names)
        }
        return {**self.figures, "metric": self.metric, "each": by_name}

    @property
    def accuracy(self) -> float:
        """The main figure, under the name that it has for classes: see `Target.named`."""
        return float(self.figures[self.metric])

    def more(self) -> dict[str, Any]:
        """Figures of a test besides the main one."""
        return {f"test_{name}": value for name, value in self.figures.items()}

    def doubts(self, steps: int) -> list[str]:
        """What is said of a network that has learnt nothing."""
        if self.metric != "r2" or self.accuracy > 0:
            return []
        return [
            f"test R2 {self.accuracy:.4f} is not better than always answering the mean: the network"
            f" has learnt nothing that shows ({step_count(steps)}): give it more --minutes or"
            " images"
        ]


@torch.no_grad()
def judge(network: nn.Module, part: ImageBatches, target: Target, precision: torch.dtype) -> Judged:
    """The network on a whole part, as `evaluate` has it, by figures of all answers together."""
    before = network.training
    network.eval()
    losses, answers, truth = [], [], []
    for x, y in part.evaluation_batches(BATCH):
        with torch.autocast(part.device.type, precision, enabled=precision != torch.float32):
            outputs = network(x)
        outputs = outputs.float()
        losses.append(float(target.loss(outputs, y, None, 0.0)) * len(y))
        answers.append(target.exported(outputs).cpu())
        truth.append(y.cpu())
    network.train(before)
    found, right = torch.cat(answers).numpy(), torch.cat(truth).numpy()
    return Judged(sum(losses) / len(right), target.metric, found, right, target.figures)


@torch.no_grad()
def evaluate(
    network: nn.Module, part: ImageBatches, classes: int, precision: torch.dtype, keep: bool = False
) -> Evaluation:
    """The network on a whole part; it is in evaluation mode within, and afterwards as it was.

    `keep`: the answer to each image too, by a process that is alone.
    """
    before = network.training
    network.eval()
    # (2,) a batch: loss, images with their class among the best; read by the host at the end
    sums = [torch.zeros(2, device=part.device)]
    kept: list[tuple[Tensor, Tensor]] = []
    confusion = torch.zeros(classes * classes, dtype=torch.int64, device=part.device)
    for x, y in part.evaluation_batches(BATCH):
        with torch.autocast(part.device.type, precision, enabled=precision != torch.float32):
            logits = network(x)
        logits = logits.float()
        if keep:
            kept.append((logits.cpu(), y.cpu()))
        # a pair (true, answer) is the number true * K + answer
        confusion += torch.bincount(y * classes + logits.argmax(-1), minlength=classes * classes)
        loss = nn.functional.cross_entropy(logits, y, reduction="sum")
        among = (logits.topk(min(TOP, classes)).indices == y[:, None]).sum()
        sums.append(torch.stack([loss, among.to(loss.dtype)]))
    network.train(before)
    # over all processes, each of which has seen its share of the batches
    confusion = total(confusion).view(classes, classes).cpu()
    loss_mean, top5 = (total(torch.stack(sums).cpu().double().sum(0)) / confusion.sum()).tolist()
    if not keep:
        return Evaluation(loss_mean, top5, confusion)
    answers, truth = (torch.cat(parts) for parts in zip(*kept, strict=True))
    return Evaluation(loss_mean, top5, confusion, answers, truth, part.evaluation_order())


def evaluation_of(
    target: Target,
    network: nn.Module,
    part: ImageBatches,
    outputs: int,
    precision: torch.dtype,
    keep: bool = False,
) -> Evaluation | Judged:
    """The figures that the kind of target has."""
    if target.kind == CLASSES.kind:
        return evaluate(network, part, outputs, precision, keep)
    return judge(network, part, target, precision)
