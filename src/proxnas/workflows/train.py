"""A training as a whole, of any domain: options and a folder go in, a trained model comes out.

`proxnas.train` is the way in from Python; the command, `fit` and studies use the steps below it.
"""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from proxnas.domains import TrainableDomain, of_cell, of_options
from proxnas.runs.deadline import Deadline, deadline_of
from proxnas.runs.processes import to_start
from proxnas.training.options import TrainOptions
from proxnas.workflows.jobs import by_processes, fitting, run_job
from proxnas.workflows.train_settings import resolve_training

if TYPE_CHECKING:
    from proxnas.cells.designs import Architecture
    from proxnas.domains.trained import TrainedModel
    from proxnas.runs.folder import Run
    from proxnas.runs.loop import Progress
    from proxnas.training.job import Training

AnyTrainOptions = TypeVar("AnyTrainOptions", bound=TrainOptions)


def train(
    cell: str | os.PathLike[str],
    data: Any,
    *,
    run: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **options: Any,
) -> TrainedModel:
    """Trains the network of a cell from scratch, tests its best weights and hands it over.

    Args:
        cell: a run folder, a genotype JSON file, a NAS-Bench-201 string or zoo:NAME. It decides
            whether images are classified or a language model is made.
        data: as on the command line (digits, pydocs, a path, hf:NAME), or what a reader of proxnas
            has made: `Images`, `Text`.
        run: a folder for config.json, metrics.jsonl, checkpoints, result.json and the model;
            without it nothing is written.
        progress: show how far it is.
        options: as `proxnas train` takes them, with underscores: protocol, epochs, cells, units,
            seed, device, threads, minutes, resume, force, ...
    """
    from proxnas.domains.trained import TrainedModel
    from proxnas.runs.progress import shown
    from proxnas.training.job import train as train_to_end

    domain = of_cell(os.fspath(cell))
    named = data if isinstance(data, str) else str(data.name)
    values = {"cell": os.fspath(cell), "data": named, "quiet": not progress} | options
    asked = resolve_training(domain, values)
    loaded = None if isinstance(data, str) else data
    if run is not None:
        folder = Path(run)
        built = None
        if not (asked.resume and (folder / "config.json").exists()):
            built = build_training(asked, architecture_of(domain, asked, folder), loaded)
        architecture = architecture_of(domain, asked, folder)
        run_training(asked, architecture, folder, built, deadline_of(asked.minutes), loaded)
        from proxnas.domains.trained import load_model

        return load_model(folder, asked.device)
    built = build_training(asked, domain.read_cell(asked.cell), loaded)
    with shown(Console(highlight=False), "train", not progress) as bar:
        result, model = train_to_end(built, None, bar, deadline_of(asked.minutes))
    return TrainedModel(domain, model, None, result.to_json())


def architecture_of(
    domain: TrainableDomain, options: TrainOptions, folder: Path
) -> Architecture | None:
    """What the run that is resumed was begun with, whatever became of CELL, else CELL."""
    kept = folder / "genotype.json"
    return domain.read_cell(kept if options.resume and kept.exists() else options.cell)


def build_training(
    options: TrainOptions, architecture: Architecture | None, data: Any = None
) -> Training:
    """The training that is described, after all input was found good; `data`: what DATA names, if
    it was read."""
    domain = of_options(options)
    loaded = domain.load(options.data if data is None else data, options)
    return domain.training(options, loaded, architecture)


def run_training(
    options: TrainOptions,
    architecture: Architecture | None,
    folder: Path,
    built: Training | None = None,
    deadline: Deadline | None = None,
    data: Any = None,
) -> dict[str, Any]:
    """One training in its folder; a finished one is not run again. Returns what result.json
    holds."""
    if number := to_start(options.processes):
        return by_processes(options, "train", folder, number, architecture)

    def build() -> Training:
        return built or build_training(options, architecture, data)

    return run_job(options, "train", folder, "train", build, partial(_work, deadline=deadline))


def _work(
    this: Training, run: Run, progress: Progress, deadline: Deadline | None
) -> dict[str, Any]:
    from proxnas.training.job import train as train_to_end

    result, _ = train_to_end(this, run, progress, deadline)
    return result.to_json()


def training_fitted_to_minutes(
    options: AnyTrainOptions, architecture: Architecture | None, deadline: Deadline
) -> AnyTrainOptions:
    """With as many epochs as there is time for, by a measurement of a few steps."""
    from proxnas.workflows.plan_train import measure_training

    seconds, _ = measure_training(build_training(options, architecture))
    return dataclasses.replace(options, epochs=fitting(deadline.left(), seconds, options.epochs))
