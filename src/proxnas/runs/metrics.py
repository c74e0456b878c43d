"""What a step reports, and how good a network is on data that did not train it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from torch import Tensor


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
