"""What every search method is, what it is built from, and the weight step that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from proxnas.clock import Clock
from proxnas.methods.optimizers import ArchitectureOptions, WeightOptimizer, WeightOptions
from proxnas.supernet import Supernet, correct
from proxnas.types import Batch, Matrices, State

__all__ = ["Method", "Metrics", "Setup", "Stream", "Validation", "correct", "weight_step"]


class Stream(Protocol):
    """An endless, persistent source of batches; its length is the batches of an epoch."""

    def next(self) -> Batch: ...

    def __len__(self) -> int: ...


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


class Method(Protocol):
    """One search; differences between methods live in their constructors, never in the loop."""

    clock: Clock

    def step(self) -> Metrics:
        """One iteration: what is done for one batch of training images."""

    def use_current(self) -> None:
        """Set the network to the architecture as it stands."""

    def validation(self) -> Validation:
        """How good the architecture is that would be returned now."""

    def architecture(self) -> tuple[Matrices, Matrices]:
        """(A, A_bar): the continuous and the discrete architecture as they stand."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


@dataclass(frozen=True)
class Setup:
    """What a method over a supernet is built from."""

    net: Supernet
    train: Stream
    valid: Stream
    architecture: ArchitectureOptions
    weights: WeightOptions
    clock: Clock
    evaluate: Callable[[], Validation]
    """Loss and accuracy of the network in use on the whole half for A."""
    seed: int = 0


def weight_step(net: Supernet, batch: Batch, optimizer: WeightOptimizer, clock: Clock) -> tuple[Tensor, Tensor]:
    """(loss, correct answers) on a batch, and w moved by one step through the operations in use."""
    with clock("forward"):
        loss, output = net.loss(batch)
    with clock("backward"):
        optimizer.step(loss, net.objective.share(batch))
    return net.objective.measure(loss, output, batch)
