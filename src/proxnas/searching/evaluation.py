"""One cell of a search evaluated by itself, in a folder of its own: what the workers of sampling
methods do.

The same training that the search would give the cell: the same initial weights, the same batches,
the same cosine. It can be stopped and goes on like any run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from proxnas import __version__
from proxnas.common.cores import Asked
from proxnas.common.errors import AboutOptions, escape
from proxnas.common.metrics_row import MetricsRow, total_seconds
from proxnas.common.options import changed
from proxnas.common.seeds import stable_seed
from proxnas.common.stored import read_json
from proxnas.common.types import State
from proxnas.methods.cells import Cell, stored
from proxnas.methods.evaluators import ByTraining
from proxnas.methods.sampling import Sampling
from proxnas.runs.folder import CELL, Run
from proxnas.runs.job import Totals, check_finite
from proxnas.runs.loggers import Progress
from proxnas.runs.loop import run_epochs
from proxnas.runs.metrics import Metrics, Row, Validation
from proxnas.runs.options import stored as stored_config
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.running import build_search, without_start

UNLIMITED: dict[str, Any] = {"max_params": "", "max_flops": "", "max_latency": ""}
"""The cell is within the limits already."""


class EvaluationJob:
    """A training of one cell, as a job of the loop."""

    def __init__(self, search: Search, number: int, cell: Cell) -> None:
        method = search.method
        assert isinstance(method, Sampling) and isinstance(method.evaluator, ByTraining)
        self.search, self.evaluator, self.A_bar = search, method.evaluator, method.cells.A_bar(cell)
        self.steps = self.evaluator.steps_per_cell
        # rounded up: the last epoch may be a part of one
        epochs = -(-self.steps // len(search.train))
        self.config = changed(search.config, epochs=epochs)
        self.device, self.guard = search.device, search.guard
        self.measured: Validation | None = None
        self.totals, self.all = Totals(self.device), Totals(self.device)
        self.epochs_done = 0
        # what a training draws goes by the number of the cell, not by the worker that has it
        torch.manual_seed(stable_seed(self.config.seed, "evaluation", number))

    def __len__(self) -> int:
        """Steps of an epoch; the last may have fewer."""
        return min(len(self.search.train), self.steps - self.epochs_done * len(self.search.train))

    def done(self) -> bool:
        return self.epochs_done >= self.config.epochs

    def step(self) -> Metrics:
        work = self.evaluator.step(self.A_bar)
        self.measured = work.measured
        metrics = Metrics(work.loss, work.correct, work.images, 0)
        self.all.add(metrics)
        return metrics

    def row(self, start: float) -> Row:
        """Training figures of an epoch; the last has the validation too."""
        train = Validation(*self.totals.means())
        check_finite(train.loss + (self.measured.loss if self.measured else 0.0))
        figures = self.search.task.figures
        valid = figures("valid", self.measured) if self.measured else {}
        return Row(
            self.epochs_done + 1,
            self.all.steps,
            figures("train", train) | valid,
            self.search.clock.take_since(start),
        )

    def write(self, run: Run) -> None:
        """Nothing stands beside the checkpoint."""

    def state_dict(self) -> State:
        return {
            "weights": self.search.net.module.state_dict(),
            "evaluator": self.evaluator.state_dict(),
            "train": self.search.train.state_dict(),
            "totals": self.totals.state_dict(),
            "all": self.all.state_dict(),
            "measured": None if self.measured is None else list(self.measured),
            "epochs_done": self.epochs_done,
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.search.net.module.load_state_dict(state["weights"])
        self.evaluator.load_state_dict(state["evaluator"])
        self.search.train.load_state_dict(state["train"])
        self.totals.load_state_dict(state["totals"])
        self.all.load_state_dict(state["all"])
        self.measured = None if state["measured"] is None else Validation(*state["measured"])
        self.epochs_done = state["epochs_done"]
        torch.set_rng_state(state["random"])

    def result(self, rows: list[MetricsRow]) -> dict[str, Any]:
        """What the search needs to know."""
        assert self.measured is not None, "after the last step"
        loss, accuracy = self.all.means()
        train = {
            "loss": loss,
            "accuracy": accuracy,
            "images": self.all.count,
            "steps": self.all.steps,
        }
        seconds = total_seconds(rows)
        return {"valid": self.measured.to_json(), "train": train, "seconds": seconds}


def evaluate(
    folder: Path, run: Run, device: str, threads: Asked, progress: Progress
) -> dict[str, Any]:
    """Evaluates the cell that the folder names, from where it stands; returns what result.json
    holds."""
    number, cell = read_cell(folder)
    # RUN/evaluations/NUMBER: the options are those of RUN
    config = stored_config(folder.parent.parent, "search", SearchOptions)
    config = changed(without_start(config), device=device, threads=threads, **UNLIMITED)
    job = EvaluationJob(build_search(config), number, cell)
    stamp = {
        "proxnas": __version__,
        "command": "evaluate",
        "number": number,
        "epochs": job.config.epochs,
    }
    run.write_json("config.json", stamp)
    result = job.result(run_epochs(job, run, progress))
    run.write_json("result.json", result)
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):  # there may be thousands of cells
        (run / name).unlink(missing_ok=True)
    return result


def read_cell(folder: Path) -> tuple[int, Cell]:
    """The number and the cell that are to be evaluated in a folder."""
    path = folder / CELL
    try:
        given = read_json(path)
        return int(given["number"]), stored(given["cell"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        line = escape(f"{path}: not a cell to evaluate ({error})")
        raise AboutOptions(f"{line}: give {{run}} RUN/evaluations/NUMBER of a search") from error
