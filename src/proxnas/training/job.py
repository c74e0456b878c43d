"""A training from scratch as a job: run it to its end, test the best weights, keep model and
result. Whatever the network is and the data are, it is written once, here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from proxnas.cells.designs import Architecture
from proxnas.common.metrics_row import MetricsRow, total_seconds
from proxnas.common.types import State
from proxnas.report.reading import read_object
from proxnas.runs.deadline import MINUTES, Deadline
from proxnas.runs.fingerprint import Fingerprint
from proxnas.runs.folder import Run, write_atomically
from proxnas.runs.job import Job
from proxnas.runs.loggers import Progress
from proxnas.runs.loop import run_epochs
from proxnas.training.model_file import FILE
from proxnas.training.options import TrainOptions

SCHEMA = 1
"""Of result.json of a training."""


class Model(Protocol):
    """A trained network and what belongs to it."""

    @property
    def network(self) -> nn.Module: ...

    @property
    def genotype(self) -> Architecture | None:
        """None: a network that no genotype describes."""

    @property
    def info(self) -> Mapping[str, Any]:
        """What is known of it: data, figures, params, flops, ...: JSON values."""

    def save(self, path: Path) -> None:
        """Writes it whole or not at all."""


@dataclass(frozen=True)
class Tested:
    """What a training has come to."""

    model: Model
    params: int
    flops: int
    """Multiply-adds."""
    figures: Mapping[str, float | int | None]
    """Name in result.json -> figure of the domain: valid_accuracy, test_perplexity, ..."""
    warnings: tuple[str, ...] = ()
    """What is doubtful about it, or odd about its data."""


class Training(Job, Protocol):
    """What a domain builds for `train`: a job of the loop, and what only trainings have."""

    best: State
    """The weights to keep, and of which epoch they are."""

    @property
    def network(self) -> nn.Module: ...

    @property
    def config(self) -> TrainOptions: ...

    @property
    def architecture(self) -> Architecture | None: ...

    @property
    def data(self) -> Any:
        """What the domain has read for it."""

    @property
    def flops(self) -> int:
        """Multiply-adds of the network."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the data."""

    def validate(self) -> object:
        """What is kept, on the part to choose the best weights by; None: there is none."""

    def keep(self, run: Run) -> None:
        """What the domain needs in the run folder from the start, besides the genotype."""

    def describe(self) -> dict[str, Any]:
        """What is read and how large the network is, for --dry-run."""

    def test(self) -> Tested:
        """The best weights on the test part."""


@dataclass(frozen=True)
class TrainResult:
    """What result.json holds after a training."""

    method: str | None
    """What found the cell, if a run did."""
    cell: str
    space: str | None
    data: str
    seed: int
    genotype: Mapping[str, Any] | None
    params: int
    flops: int
    best_epoch: int
    epochs: int
    seconds: float
    figures: Mapping[str, float | int | None]
    stopped: str = ""
    """What ended it before its epochs were done."""
    warnings: tuple[str, ...] = field(default=())
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """One flat object; what is empty is left out."""
        values = {name: value for name, value in vars(self).items() if name not in SPELT}
        values |= self.figures
        if self.stopped:
            values["stopped"] = self.stopped
        if self.warnings:
            values["warning"] = "; ".join(self.warnings)
        return values


SPELT = ("figures", "stopped", "warnings")
"""Fields that result.json has in another form."""


def train(
    this: Training, run: Run | None, progress: Progress, deadline: Deadline | None = None
) -> tuple[TrainResult, Model]:
    """Trains to the end, from where the folder stands, and tests the best weights. Without a folder
    nothing is written."""
    if run is not None:
        if this.architecture is not None:
            write_atomically(run / "genotype.json", this.architecture.to_json())
        this.keep(run)
    deadline = deadline or Deadline()
    rows = run_epochs(this, run, progress, deadline)
    # after the last epoch, by the weights that validated best: the test part decides nothing
    tested = this.test()
    result = _result(this, run, rows, tested, MINUTES if deadline.cut else "")
    if run is not None:
        # before result.json, which says that everything is there
        tested.model.save(run / FILE)
        run.write_json("result.json", result.to_json())
    return result, tested.model


def _result(
    this: Training, run: Run | None, rows: list[MetricsRow], tested: Tested, stopped: str
) -> TrainResult:
    architecture = this.architecture
    return TrainResult(
        method=method_of(this.config.cell, run),
        cell=this.config.cell,
        space=architecture.space if architecture else None,
        data=this.config.data,
        seed=this.config.seed,
        genotype=json.loads(architecture.to_json()) if architecture else None,
        params=tested.params,
        flops=tested.flops,
        best_epoch=this.best["epoch"],
        epochs=this.epochs_done,
        seconds=total_seconds(rows),
        figures=tested.figures,
        stopped=stopped,
        warnings=tested.warnings,
    )


def method_of(cell: str, run: Run | None) -> str | None:
    """What found the cell, if it is the cell of a run; in a fit it is named from the run folder."""
    if not cell:
        return None
    # a relative cell is one from here, or from the run folder
    places = [Path(cell)] if run is None else [Path(cell), run / cell]
    for place in places:
        found = read_object(place / "config.json")
        if "method" in found:
            return str(found["method"])
    return None
