"""A training as a whole, of any domain: options and a folder go in, a trained model comes out.

`proxnas.train` is the way in from Python; the command, `fit` and studies use the steps below it. At
the end: from a command line to the options of a training, by protocol, file and flags.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from proxnas.common.errors import InputError
from proxnas.common.options import Options, build
from proxnas.common.words import command_line, config_file, with_help
from proxnas.domains import TrainableDomain, of_cell, of_options
from proxnas.runs.deadline import Deadline, deadline_of
from proxnas.runs.options import storable, stored
from proxnas.runs.processes import to_start
from proxnas.training.options import TrainOptions
from proxnas.workflows.about import training_domain
from proxnas.workflows.jobs import fitting

if TYPE_CHECKING:
    from proxnas.cells.designs import Architecture
    from proxnas.domains.trained import TrainedModel
    from proxnas.runs.folder import Run
    from proxnas.runs.loggers import Progress
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
        data: as on the command line (digits, pydocs, a path, hf:NAME). Images may be a pair of
            arrays (x, y), a dict of arrays (x_train, y_train, x_test, ...) or a torch Dataset of
            (image, label) too.
        run: a folder for config.json, metrics.jsonl, checkpoints, result.json and the model;
            without it nothing is written.
        progress: show how far it is.
        options: as `proxnas train` takes them, with underscores: protocol, epochs, cells, units,
            seed, device, threads, minutes, resume, force, ...
    """
    from proxnas.common.environment import pick_device
    from proxnas.domains.trained import load_model
    from proxnas.runs.guest import as_guest

    domain = of_cell(os.fspath(cell))
    data = os.fspath(data) if isinstance(data, os.PathLike) else data
    # config.json can hold a name only; what is in memory goes along
    if isinstance(data, str):
        named, loaded = data, None
    else:
        named, loaded = str(getattr(data, "name", "data")), data
    values = {"cell": os.fspath(cell), "data": named, "quiet": not progress} | options
    folder = None if run is None else Path(run)
    if folder and options.get("resume") and (folder / "config.json").exists():
        values = storable(stored(folder, "train", domain.train_options)) | values
    asked = resolve_training(domain, values)
    with as_guest(pick_device(asked.device)):
        if folder is None:
            return _train_in_memory(domain, asked, loaded)
        train_in_folder(domain, asked, folder, loaded, choose="epochs" not in options)
    return load_model(folder, asked.device)


def _train_in_memory(domain: TrainableDomain, options: TrainOptions, data: Any) -> TrainedModel:
    from proxnas.domains.trained import TrainedModel
    from proxnas.runs.progress import shown
    from proxnas.training.job import train as train_to_end

    built = build_training(options, domain.read_cell(options.cell), data)
    with shown(Console(highlight=False), "train", options.quiet) as bar:
        result, model = train_to_end(built, None, bar, deadline_of(options.minutes))
    return TrainedModel(domain, model, None, result.to_json())


def train_in_folder(
    domain: TrainableDomain, options: TrainOptions, folder: Path, data: Any, choose: bool
) -> dict[str, Any]:
    """A training in its folder, new or resumed; returns what result.json holds.

    `choose`: as many epochs as there are minutes for, if the run is new.
    """
    # what the run that is resumed was begun with, whatever became of CELL, else CELL
    kept = folder / "genotype.json"
    architecture = domain.read_cell(kept if options.resume and kept.exists() else options.cell)
    deadline = deadline_of(options.minutes)
    new = options.force or not (folder / "config.json").exists()
    if new and options.minutes and choose:
        # as many epochs as there is time for, by a measurement of a few steps
        from proxnas.workflows.plan import measure_training

        seconds, _ = measure_training(build_training(options, architecture, data))
        options = dataclasses.replace(
            options, epochs=fitting(deadline.left(), seconds, options.epochs)
        )
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one,
    # and is told first
    built = None
    if new or not options.resume:
        built = build_training(options, architecture, data)
    return run_training(options, architecture, folder, built, deadline, data)


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
    from proxnas.runs.jobs import by_processes, run_job

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


PROG = "proxnas train"


def resolve_training(domain: TrainableDomain, values: dict[str, Any]) -> TrainOptions:
    """The options of a training with these values, the others as its protocol, its data and its
    cell say."""
    cls = domain.train_options
    return _settle(domain, build(cls, values), values, partial(build, cls))


def parse_train(argv: list[str]) -> TrainOptions:
    """The options of a command line; whose they are its cell says."""
    return with_help(argv, PROG, partial(_resolve, training_domain(argv)))


def _resolve(domain: TrainableDomain, argv: list[str]) -> TrainOptions:
    cls = domain.train_options
    file = config_file(argv, cls)
    named = command_line(cls, PROG, argv, file)  # the words that choose the layers
    return _settle(domain, named, file, lambda values: command_line(cls, PROG, argv, values))


def _settle(
    domain: TrainableDomain,
    named: TrainOptions,
    given: dict[str, Any],
    make: Callable[[dict[str, Any]], TrainOptions],
) -> TrainOptions:
    """The options that `make` makes of what the protocol, the data and the cell say that are
    `named`, with the values given over them."""
    # of a run that goes on every value is known: its cell may be gone
    architecture = domain.read_cell(named.cell) if named.cell and not named.resume else None
    layers = domain.train_values(named.protocol, named.data, architecture)
    # what protocol, data and cell say lies below what was given
    options = make(layers | {name: value for name, value in given.items() if name != "protocol"})
    domain.check_training(options, architecture)
    return options


def need(config: Options, *names: str) -> None:
    """An InputError unless the words that have no flag are all there."""
    for name in names:
        if not getattr(config, name):
            raise InputError(
                f"{name.upper().removesuffix('S')} is missing: --help shows how it is given"
            )
