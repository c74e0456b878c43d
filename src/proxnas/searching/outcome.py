"""A search run to its end, and what comes out of it: result.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxnas.cells.kinds import CUSTOM
from proxnas.cells.table import look_up
from proxnas.common.metrics_row import MetricsRow, figures_in, total_seconds
from proxnas.core.selection import without_weights
from proxnas.core.size.complexity import parameters
from proxnas.methods.base import Doubting
from proxnas.methods.options import SamplesCells
from proxnas.runs.deadline import MINUTES, Deadline
from proxnas.runs.folder import Run
from proxnas.runs.loggers import Progress
from proxnas.runs.loop import run_epochs
from proxnas.searching.job import Search

SCHEMA = 1
"""Of result.json of a search."""
OPTIONAL = ("beyond_the_paper", "latency", "table", "wiring", "stopped")
"""Fields that result.json has only where there is something to say."""
SPELT = ("figures", "warnings")
"""Fields that result.json has in another form."""


@dataclass(frozen=True)
class SearchResult:
    """What result.json holds after a search."""

    method: str
    space: str
    data: str
    seed: int
    genotype: Mapping[str, Any]
    params: int
    flops: int
    figures: Mapping[str, float]
    """valid_accuracy or valid_perplexity, ...: by the last epoch."""
    epochs: int
    seconds: float
    converged: bool
    budget: Mapping[str, Any] | None
    beyond_the_paper: str = ""
    latency: float | None = None
    table: Mapping[str, Any] | None = None
    wiring: Mapping[str, Any] | None = None
    """Whether short trainings before it found nodes better that read the cell's inputs only."""
    stopped: str = ""
    """What ended it before its epochs were done."""
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """One flat object; what is empty is left out."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name == "figures":
                found |= value
            elif name not in SPELT and (value or name not in OPTIONAL):
                found[name] = value
        if self.warnings:
            found["warning"] = "; ".join(self.warnings)
        return found


Loop = Callable[[Search, Run, Progress, Deadline], list[MetricsRow]]


def search(
    this: Search,
    run: Run,
    progress: Progress,
    loop: Loop = run_epochs,
    deadline: Deadline | None = None,
    last: bool = True,
) -> dict[str, Any]:
    """Runs a search to its end, from where its folder stands; returns what result.json holds, which
    is written unless something is still to come (`last`)."""
    this.task.keep(run)
    if not (run / "space.json").exists():
        run.write_json("space.json", this.describe_space())
    deadline = deadline or Deadline()
    rows = loop(this, run, progress, deadline)
    result = summary(this, rows, stopped=MINUTES if deadline.cut else "").to_json()
    if last:
        run.write_json("result.json", result)
    return result


def summary(this: Search, rows: list[MetricsRow], stopped: str = "") -> SearchResult:
    """What came out of a search that is done, given the rows of its epochs."""
    genotype = this.genotype()
    network = this.final_network(genotype)
    return SearchResult(
        method=this.config.method,
        space=this.config.space,
        data=this.config.data,
        seed=this.config.seed,
        genotype=json.loads(genotype.to_json()),
        params=parameters(network),
        flops=this.task.multiply_adds(network),
        figures=figures_in(rows[-1], "valid_", "supernet_"),
        epochs=this.epochs_done,
        seconds=total_seconds(rows) + (this.wiring["seconds"] if this.wiring else 0.0),
        converged=this.converged,
        budget=this.budget.to_json() if this.budget else None,
        beyond_the_paper=this.config.beyond(),
        latency=this.seconds,
        table=look_up(Path(this.config.table), genotype) if this.config.table else None,
        wiring=this.wiring,
        stopped=stopped,
        warnings=tuple(_warnings(this)),
    )


def _warnings(this: Search) -> Iterator[str]:
    yield from this.data.warnings
    if isinstance(this.method, Doubting):
        yield from this.method.doubts()
    yield from _doubts_of_the_cell(this)
    yield from _doubts_of_the_options(this)


def _doubts_of_the_cell(this: Search) -> Iterator[str]:
    """That it has nothing to train, or is slower than was asked."""
    # candidates of a user's own module tell nothing by their names
    poor = this.space.name != CUSTOM and without_weights(this.returned(), this.net.groups)
    # asked for: an empty cell may be what it takes
    small = this.config.weight_of_R() or this.budget
    if poor and not small:
        yield (
            f"no operation with weights in {' and '.join(poor)}: only skip connections and pooling,"
            " which often means that the search collapsed; try more epochs, another seed or"
            " max_skip 2"
        )
    if this.budget and this.seconds and this.seconds > this.budget.limit:
        yield (
            f"max_latency {this.config.max_latency}: {1e3 * this.seconds:.3g} ms were measured at"
            " the end"
        )


def _doubts_of_the_options(this: Search) -> Iterator[str]:
    """Those that did less than was asked of them."""
    own = this.config.method_options
    # a cell is trained for a step at least
    if isinstance(own, SamplesCells) and this.steps_done < own.evaluations:
        asked = own.evaluations
        yield (
            f"evaluations {asked}: only {this.steps_done} cells were evaluated, because"
            f" {this.epochs_done} epochs have no more steps: give epochs"
            f" {-(-asked // len(this.train))} or more, or a smaller batch_size"
        )
    eta = this.config.weight_of_R()
    if eta and not any(cost.any() for cost in (this.setup.costs or {}).values()):
        yield f"eta {eta} did nothing: by cost {this.config.cost_of_R()} all candidates are free"
