"""What a step reports, what an epoch does, and how good a network is on data that did not train
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

from torch import Tensor

from proxnas.common.metrics_row import SCHEMA, MetricsRow


class Metrics(NamedTuple):
    """What one step reports; tensors stay on the device and are read at the end of an epoch."""

    loss: Tensor
    figure: Tensor
    """The sum over the examples of what is told beside the loss: right answers, or the metric of a
    module."""
    examples: int
    """Images, tokens, or items of a module's batch."""
    changes: int
    """Entries of A_bar that changed."""


class Validation(NamedTuple):
    """How good an architecture is on the half of the data for A."""

    loss: float
    figure: float
    """The mean of what is told beside the loss: the accuracy, or the metric of a module."""

    def to_json(self) -> dict[str, float]:
        """As result.json of an evaluation has it, in which the figure is called accuracy."""
        return {"loss": self.loss, "accuracy": self.figure}

    @classmethod
    def from_json(cls, stored: Mapping[str, float]) -> Self:
        """What `to_json` has written."""
        return cls(stored["loss"], stored["accuracy"])


@dataclass(frozen=True)
class Row:
    """A line of metrics.jsonl: what an epoch has come to. None: there is no such thing in this
    job."""

    epoch: int
    step: int
    figures: Mapping[str, float]
    """train_loss, valid_accuracy, ...: as the domain names them."""
    seconds: Mapping[str, float]
    """Part -> seconds. What depends on the clock is here and nowhere else."""
    learning_rate: float | None = None
    averaged: bool | None = None
    """Whether the weights that are kept are an average."""
    changes: int | None = None
    """Entries of A_bar that changed."""
    params: int | None = None
    """Of the final network."""
    eta: float | None = None
    """The weight of R(A) within a limit."""
    A: Mapping[str, Any] | None = None
    """Group -> matrix (E, K)."""
    selected: Mapping[str, Any] | None = None
    """Group -> (edge, candidate) of each entry of A_bar that is not 0."""
    genotype: Mapping[str, Any] | None = None
    rollbacks: int = 0
    """Returns to the last checkpoint so far."""
    schema: int = SCHEMA

    def to_json(self) -> MetricsRow:
        """One flat object, what is alike in all rows last; what there is not is left out."""
        found: dict[str, Any] = {"epoch": self.epoch, "step": self.step, **self.figures}
        for name, value in vars(self).items():
            if name not in SPELT and value is not None:
                found[name] = value
        found |= {"seconds": self.seconds, "rollbacks": self.rollbacks, "schema": self.schema}
        return cast(MetricsRow, found)


SPELT = ("epoch", "step", "figures", "seconds", "rollbacks", "schema")
"""Fields of a row that stand at its ends, or in another form."""
