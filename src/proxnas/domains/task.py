"""What a search is for: images, text, or a module of the user's own.

A task has the data in two streams, the networks for them and their figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.common.types import Batch, Matrices
from proxnas.core.supernet import Supernet
from proxnas.methods.base import Stream
from proxnas.runs.metrics import Validation

if TYPE_CHECKING:
    from proxnas.runs.folder import Run


class Task(Protocol):
    """One domain; the loop, the methods and the run folder know none."""

    net: Supernet

    @property
    def train(self) -> Stream:
        """For w."""

    @property
    def valid(self) -> Stream:
        """For A."""

    def evaluate(self, batches: int | None = None) -> Validation:
        """The network in use on the whole part for A, or on its first batches."""

    def final_network(self, genotype: Genotype) -> nn.Module:
        """The network that would be trained, without memory behind it: for counting."""

    def bare_network(self, genotype: Genotype) -> nn.Module:
        """The selected network alone, normalised like the search network."""

    def loss(self, network: nn.Module, batch: Batch, of_weights: bool = True) -> Tensor:
        """Of a bare network; with gradients of its weights, or only of its input."""

    def multiply_adds(self, network: nn.Module) -> int:
        """Of one image or one word."""

    def score(self, measured: Validation) -> float:
        """What methods that evaluate whole cells maximise."""

    def seconds(self, network: nn.Module) -> float:
        """Of a final network for one image or one word on the device: the median of some runs."""

    def total_seconds(self, A_bar: Matrices) -> float:
        """Of the final network that A_bar selects: measured, or by a table."""

    def entries(self, of: str) -> Matrices:
        """Group -> (E, K): what each entry of A_bar adds to the params, flops or latency of the
        final network."""

    def candidate_costs(self, of: str) -> dict[str, Tensor]:
        """Group -> p_k (K,): flops of operation k in the search network, or its latency in the
        final one (where there is one), the mean over its places."""

    def figures(self, part: str, measured: Validation) -> dict[str, float]:
        """A row's entries for `train` or `valid`."""

    def keep(self, run: Run) -> None:
        """What a run writes once, at its start."""

    def describe(self) -> dict[str, Any]:
        """What is read and how large the networks are, for --dry-run."""
