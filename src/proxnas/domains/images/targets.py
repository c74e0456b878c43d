"""What is learnt of an image: one class, numbers, or several labels. A kind of target owns its
loss, its figures and its answers. What else differs is looked up by kind: how a network is judged
(evaluate.py), and which simple models it is held against (baselines.py).

N images, T outputs of the network: classes, numbers or labels. y is (N,) of classes, else (N, T) of
float32: numbers as they are, labels as 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.seeds import Array
from proxnas.common.stored import is_figure
from proxnas.domains.images.label_figures import label_figures
from proxnas.training.answers import Answer, Value

if TYPE_CHECKING:
    from torch import Tensor

SHARES = 10
"""Equal shares of images by their first number, each of which every part has its part of."""
CERTAIN = 0.5
"""Probability from which on a label is answered."""


class Target(Protocol):
    """A kind of target; what most have alike is here."""

    kind: str
    metric: str
    """What its main figure is called; more is better."""
    output: str
    """What an exported file calls its answers."""
    task: str
    """What a model does, of so many outputs."""
    searchable: bool
    """Whether blocks are chosen by its loss."""

    def strata(self, y: Array) -> Array:
        """(N,): what is to be in every part alike."""

    def loss(
        self, outputs: Tensor, y: Tensor, weights: Tensor | None, smoothing: float
    ) -> Tensor: ...

    def right(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The sum over images of how right the outputs are."""

    def for_model(self, y: Array, names: Sequence[str], known: Sequence[str]) -> Array:
        """y of data whose outputs are called `names` as a model has it that calls them `known`."""

    def exported(self, outputs: Tensor) -> Tensor:
        """What an exported file puts out."""
        return outputs

    def figures(self, answers: Array, y: Array) -> dict[str, Any]:
        """All of them, by name, of answers as exported; `each`: of each output."""

    def score(self, answers: Array, y: Array) -> float:
        """The main figure, of answers as exported, or of a simple model."""
        return float(self.figures(answers, y)[self.metric])

    def answers(self, outputs: Tensor, names: Sequence[str], top: int) -> list[list[Any]]:
        """Of each image, for people."""

    def sheet(self, y: Array, names: Sequence[str]) -> dict[str, Any]:
        """What is worth knowing of y before it is learnt."""

    def named(self, values: Any) -> Any:
        """Figures under their own name where they were called accuracy."""
        return rename_accuracy(values, self.metric)

    def to_json(self) -> dict[str, Any]:
        """What a model file tells of it."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class Classes(Target):
    """One of several classes."""

    kind = "classes"
    metric = "accuracy"
    output = "logits"
    task = "tells {} classes of images apart"
    searchable = True

    def strata(self, y: Array) -> Array:
        return y

    def loss(self, outputs: Tensor, y: Tensor, weights: Tensor | None, smoothing: float) -> Tensor:
        from torch.nn import functional

        return functional.cross_entropy(outputs, y, weights, label_smoothing=smoothing)

    def right(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.argmax(-1) == y).sum()

    def for_model(self, y: Array, names: Sequence[str], known: Sequence[str]) -> Array:
        found: Array = np.array([known.index(name) for name in names])[y]
        return found

    def figures(self, answers: Array, y: Array) -> dict[str, Any]:
        return {self.metric: self.score(answers, y)}

    def score(self, answers: Array, y: Array) -> float:
        found = answers.argmax(1) if answers.ndim == 2 else answers
        return float(np.mean(found == y))

    def answers(self, outputs: Tensor, names: Sequence[str], top: int) -> list[list[Answer]]:
        best = outputs.softmax(-1).topk(min(top, len(names)))
        rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [[Answer(names[k], p) for p, k in zip(*row, strict=True)] for row in rows]

    def sheet(self, y: Array, names: Sequence[str]) -> dict[str, Any]:
        return balance(np.bincount(y, minlength=len(names)), names)


@dataclass(frozen=True)
class Numbers(Target):
    """One or several numbers; the network answers them less `mean`, by `std`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    kind = "numbers"
    metric = "r2"
    output = "values"
    task = "answers numbers of an image ({})"
    searchable = False

    def strata(self, y: Array) -> Array:
        order = np.argsort(y[:, 0], kind="stable")
        found = np.empty(len(y), np.int64)
        # the rank of each image, in SHARES equal steps: 0 .. SHARES - 1
        found[order] = np.arange(len(y)) * SHARES // len(y)
        return found

    def _scaled(self, y: Tensor) -> Tensor:
        return (y - y.new_tensor(self.mean)) / y.new_tensor(self.std)

    def loss(self, outputs: Tensor, y: Tensor, weights: Tensor | None, smoothing: float) -> Tensor:
        from torch.nn import functional

        return functional.mse_loss(outputs, self._scaled(y))

    def right(self, outputs: Tensor, y: Tensor) -> Tensor:
        """1 less the error, by the spread: its mean is about R2."""
        # y is scaled to a spread of 1, so 1 - square error is about 1 - error / spread
        return (1 - (outputs.detach() - self._scaled(y)).square()).mean(1).sum()

    def figures(self, answers: Array, y: Array) -> dict[str, Any]:
        """R2 and the mean absolute error, of all and of each number."""
        error = ((answers - y) ** 2).mean(0)
        spread = y.var(0)
        # R2 = 1 - mean (answer - y)^2 / var y, (T,); 0 where y is constant and the share is
        # undefined
        r2 = np.where(spread > 0, 1 - error / np.where(spread > 0, spread, 1), 0.0)
        off = np.abs(answers - y).mean(0)
        each = {"r2": r2.tolist(), "mae": off.tolist()}
        return {"r2": float(r2.mean()), "mae": float(off.mean()), "each": each}

    def for_model(self, y: Array, names: Sequence[str], known: Sequence[str]) -> Array:
        if sorted(names) != sorted(known):
            raise InputError(f"the model answers {', '.join(known)}: give data with all of them")
        return y[:, [list(names).index(name) for name in known]]

    def exported(self, outputs: Tensor) -> Tensor:
        return outputs * outputs.new_tensor(self.std) + outputs.new_tensor(self.mean)

    def answers(self, outputs: Tensor, names: Sequence[str], top: int) -> list[list[Value]]:
        rows = self.exported(outputs).tolist()
        return [[Value(*pair) for pair in zip(names, row, strict=True)] for row in rows]

    def sheet(self, y: Array, names: Sequence[str]) -> dict[str, Any]:
        ends = zip(y.min(0).tolist(), y.max(0).tolist(), strict=True)
        return {"ranges": dict(zip(names, map(list, ends), strict=True))}

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "mean": self.mean, "std": self.std}


@dataclass(frozen=True)
class Labels(Target):
    """Any number of labels."""

    kind = "labels"
    metric = "map"
    output = "probabilities"
    task = "answers which of {} labels an image has"
    searchable = False

    def strata(self, y: Array) -> Array:
        # each combination of labels is a stratum; numpy 2.0 gives the inverse as (N, 1)
        return np.unique(y, axis=0, return_inverse=True)[1].reshape(-1)

    def loss(self, outputs: Tensor, y: Tensor, weights: Tensor | None, smoothing: float) -> Tensor:
        from torch.nn import functional

        return functional.binary_cross_entropy_with_logits(outputs, y)

    def right(self, outputs: Tensor, y: Tensor) -> Tensor:
        # a logit above 0 is a probability above one half
        return ((outputs > 0) == (y > CERTAIN)).float().mean(1).sum()

    def figures(self, answers: Array, y: Array) -> dict[str, Any]:
        """Average precision and F1 of each label that occurs, their means, and how often all labels
        of an image are right."""
        return label_figures(y > CERTAIN, answers > CERTAIN, answers)

    def for_model(self, y: Array, names: Sequence[str], known: Sequence[str]) -> Array:
        # labels that the data do not have are absent in all their images
        found = np.zeros((len(y), len(known)), np.float32)
        found[:, [list(known).index(name) for name in names]] = y
        return found

    def exported(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()

    def answers(self, outputs: Tensor, names: Sequence[str], top: int) -> list[list[Answer]]:
        """The labels that are answered, the most probable first; at least the `top` first."""
        found = []
        for row in self.exported(outputs).tolist():
            order = sorted(range(len(names)), key=lambda k: -row[k])
            count = max(min(top, len(names)), sum(p > CERTAIN for p in row))
            found.append([Answer(names[k], row[k]) for k in order[:count]])
        return found

    def sheet(self, y: Array, names: Sequence[str]) -> dict[str, Any]:
        return balance(y.sum(0).astype(np.int64), names)


def balance(counts: Array, names: Sequence[str]) -> dict[str, Any]:
    """The largest and the smallest of several classes or labels."""
    most, least = int(counts.argmax()), int(counts.argmin())
    return {
        "classes": len(names),
        "largest_class": [names[most], int(counts[most])],
        "smallest_class": [names[least], int(counts[least])],
    }


CLASSES = Classes()
KINDS = tuple(cls.kind for cls in (Classes, Numbers, Labels))


def from_json(values: Any, outputs: int) -> Target:
    """The kind that a model file tells; an InputError if it is none."""
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind == "classes":
        return CLASSES
    if kind == "labels":
        return Labels()
    if kind == "numbers":
        scales = [values.get(name) for name in ("mean", "std")]
        if all(
            isinstance(scale, list) and len(scale) == outputs and all(map(is_figure, scale))
            for scale in scales
        ):
            return Numbers(*(tuple(scale) for scale in scales))
    raise InputError("target in its metadata is not as proxnas writes it: the file is damaged")


def require_classes(target: Target, name: str) -> None:
    """An InputError for data that only `fit` by the clock takes."""
    if target.kind != CLASSES.kind:
        raise InputError(
            f"{name}: its targets are {target.kind}, which only proxnas fit with --space auto or"
            " resnet learns: leave other methods, spaces and epochs, and --dry-run, out"
        )


def rename_accuracy(values: Any, metric: str) -> Any:
    """JSON values with test_accuracy called test_r2, and so on, wherever they are."""
    if isinstance(values, list):
        return [rename_accuracy(value, metric) for value in values]
    if not isinstance(values, Mapping):
        return values
    parts = ("train", "valid", "test", "float")
    own = {f"{part}_accuracy": f"{part}_{metric}" for part in parts}
    return {own.get(name, name): rename_accuracy(value, metric) for name, value in values.items()}
