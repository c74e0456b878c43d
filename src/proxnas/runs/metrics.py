"""What a step reports, and how good a network is on data that did not train it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Metrics(NamedTuple):
    """What one step reports; tensors stay on the device and are read at the end of an epoch."""

    loss: Tensor
    correct: Tensor
    images: int
    changes: int


class Validation(NamedTuple):
    """How good an architecture is on the half of the data for A."""

    loss: float
    accuracy: float
