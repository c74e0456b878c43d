"""What every search method is, what it is built from, and the weight step that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from proxnas.cells.genotype import Genotype
from proxnas.common.clock import Clock
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.selection import one_hot
from proxnas.core.size.budget import Budget
from proxnas.core.supernet import Supernet, correct
from proxnas.methods.cells import Cell, Cells
from proxnas.methods.optimizers import WeightOptimizer, WeightOptions
from proxnas.methods.options import MethodOptions
from proxnas.runs.consensus import mean, mean_matrices, mean_of
from proxnas.runs.metrics import Metrics, Validation

__all__ = ["Method", "Setup", "Stream", "correct", "weight_step"]


class Stream(Protocol):
    """An endless source of batches that can go on where it stood; its length is the batches of an
    epoch."""

    def next(self) -> Batch: ...

    def __len__(self) -> int: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


def accuracy(measured: Validation) -> float:
    """The score of an image classifier."""
    return measured.figure


class Measure(Protocol):
    """Loss and accuracy of the network in use on everything, or on the first batches, which are
    always the same."""

    def __call__(self, batches: int | None = None) -> Validation: ...


class Method(Protocol):
    """One search, built from a `Setup`; differences between methods live in their constructors,
    never in the loop."""

    Options: ClassVar[Any]
    """The class, one of `MethodOptions`, of what it is told; it has the method's traits."""
    clock: Clock

    def step(self) -> Metrics:
        """One iteration: what is done for one batch of training images."""

    def architecture(self) -> tuple[Matrices, Matrices]:
        """(A, A_bar): the continuous and the discrete architecture as they stand."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


@runtime_checkable
class Judged(Protocol):
    """A method that knows how good the architecture is that would be returned: its weights may be
    gone."""

    def validation(self) -> Validation: ...

    def judge(self, A_bar: Matrices) -> Validation:
        """How good another one is that is returned in its place; changes nothing that is kept."""


@runtime_checkable
class Mixing(Protocol):
    """A method that trains a weighted sum of candidates, not the cell that it returns."""

    def use_mixture(self) -> None:
        """Set the network to that sum as it stands."""


@runtime_checkable
class Preferring(Protocol):
    """A method that derives its cell not from A itself: logits mean nothing across rows."""

    def preferences(self) -> Matrices:
        """What it compares entries by, within a row and across rows: for whoever must take another
        cell."""


@runtime_checkable
class Occasional(Protocol):
    """A method that now and then does work besides its steps, which a measurement must not miss."""

    def occasional(self, steps: int, epochs: int) -> tuple[Callable[[], object], float]:
        """One piece of it, and how many pieces fall to a step in a search of `epochs` epochs of
        `steps` steps."""


@runtime_checkable
class Restoring(Protocol):
    """A method that trains several architectures one after the other, and not the returned one
    last."""

    def restore(self) -> None:
        """Give the network the weights that the returned architecture was judged by."""


@runtime_checkable
class Doubting(Protocol):
    """A method that knows when what it returns rests on nothing."""

    def doubts(self) -> list[str]:
        """Warnings for its user."""


@runtime_checkable
class Priced(Protocol):
    """A method that weighs size against loss."""

    @property
    def eta(self) -> float:
        """The weight of R(A) as it stands: a limit changes it during the search."""


OptionsOfMethod = TypeVar("OptionsOfMethod", bound=MethodOptions, covariant=True)


@dataclass(frozen=True)
class Setup(Generic[OptionsOfMethod]):
    """What a method over a supernet is built from."""

    net: Supernet
    train: Stream
    valid: Stream
    options: OptionsOfMethod
    """What the method is told."""
    weights: WeightOptions
    clock: Clock
    evaluate: Measure
    """Of the network in use on the half for A."""
    seed: int = 0
    score: Callable[[Validation], float] = accuracy
    """What sampling methods maximise."""
    score_training: Callable[[float], float] = lambda loss: 0.0
    """What the mean loss of the last steps of a short training adds to that."""
    judge: Callable[[Genotype], float] | None = None
    """Who says how good a cell is (from 0 to 1) in place of training it: for sampling methods."""
    genotype: Callable[[Matrices], Genotype] | None = None
    """The cell of an A_bar, for the judge."""
    keep_weights: bool = False
    """Weights cannot be drawn again and will be asked for: who trains one cell after the other
    keeps them."""
    start: Matrices | None = None
    """What is known of A before the search; NaN where nothing is."""
    costs: dict[str, Tensor] | None = None
    """Group -> p_k / p_bar (K,) of R(A); None: by parameters."""
    budget: Budget | None = None
    """A limit on the final network, to select within."""
    proposals: Callable[[Cells, Cell], list[Cell]] | None = None
    """What `local` tries around a cell, the first first; None: its neighbours, in random order."""

    def begin(self, A: Matrices) -> Matrices:
        """The first A: as drawn, but for the entries that are known."""
        start = self.start or {}
        return {
            name: torch.where(start[name].isnan(), a, start[name]) if name in start else a
            for name, a in A.items()
        }


def weight_step(
    net: Supernet,
    batch: Batch,
    optimizer: WeightOptimizer,
    clock: Clock,
    part: float = 1.0,
    last: bool = True,
) -> tuple[Tensor, Tensor]:
    """(loss, correct answers) on a batch, and w moved by one step through the operations in use.

    A step can have parts on several architectures: w then moves with the last, by all their
    gradients.
    """
    with clock("forward"):
        loss, output = net.loss(batch)
    with clock("backward"):
        # parts before the last only add their gradients up
        if last:
            optimizer.step(part * loss, net.objective.share(batch), net.objective.examples(batch))
        else:
            optimizer.accumulate(part * loss)
    return net.objective.measure(loss, output, batch)


def relaxed_gradient(
    net: Supernet,
    A: Matrices,
    weigh: Callable[[Matrices], Matrices],
    batch: Batch,
    weights: Sequence[Tensor] = (),
) -> tuple[Matrices, Sequence[Tensor | None]]:
    """dL/dA by plain autograd through the factors weigh(A) of the candidates, and dL/dw for the
    weights asked for."""
    # the same numbers on no graph: A itself is moved in place and must not be a leaf
    leaves = {name: a.detach().requires_grad_() for name, a in A.items()}
    net.use(weigh(leaves), weighted=True)
    loss, _ = net.loss(batch, bool(weights))
    # first those of A, group by group, then those of w
    gradients = net.gradient(loss, [*leaves.values(), *weights])
    n = net.objective.examples(batch)
    return mean_matrices(by_name(A, gradients), n, net.device), mean(gradients[len(A) :], n)


@torch.no_grad()
def mean_loss(net: Supernet, batches: Sequence[Batch]) -> float:
    """The mean loss of the network in use on some batches; the host reads it once."""
    # (batches,) on the device: nothing waits for it on the way
    losses = torch.stack([net.loss(batch)[0] for batch in batches])
    return float(mean_of(losses, net.objective.examples(batches[0])).mean())


def random_cell(net: Supernet, generator: torch.Generator, budget: Budget | None) -> Matrices:
    """A uniformly random A_bar; with a limit the nearest within it of the weights that it was drawn
    by."""
    A = {
        name: torch.rand(group.shape, generator=generator, dtype=torch.float64)
        for name, group in net.groups.items()
    }
    # the largest of uniform numbers: by symmetry no candidate and no edge is ahead of others
    A_bar = {name: one_hot(a, net.groups[name]) for name, a in A.items()}
    return budget.project(A, A_bar) if budget else A_bar


def by_name(A: Matrices, gradients: Sequence[Tensor | None]) -> Matrices:
    """The first gradients under the names of A; zero where the loss does not depend on it."""
    return {
        name: torch.zeros_like(a) if g is None else g
        for (name, a), g in zip(A.items(), gradients, strict=False)
    }
