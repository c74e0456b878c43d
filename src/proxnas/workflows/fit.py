"""From data to a tested, exported model: a search, a training and an export in one folder, each
resumable. What differs between images and text is behind `Fitting` of the domain.

RUN/search and RUN/train are ordinary runs; what they were asked for stands in their own
config.json, so that a resumption takes the epochs that were chosen at first, whatever a new
measurement would say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.common.errors import AboutOptions
from proxnas.common.options import Options, changed
from proxnas.domains.fitting import FitOptions
from proxnas.runs.deadline import Deadline
from proxnas.runs.lengthening import store
from proxnas.runs.options import RunConfig, stored
from proxnas.searching.options import SearchOptions
from proxnas.searching.running import build_search
from proxnas.workflows.fit_parts import domain_of_fit, prepare_search, prepare_training
from proxnas.workflows.fit_time import SEARCH_SHARE, fit_to_time, plan_both, time_for
from proxnas.workflows.jobs import length_in_time, run_search
from proxnas.workflows.train import run_training

if TYPE_CHECKING:
    from proxnas.searching.job import Search

Say = Callable[[str], None]
Part = TypeVar("Part", bound=Options)
AUTO = "auto"
SCHEMA = 1
"""Of result.json of a fit."""


def fit_in(config: FitOptions, folder: Path, say: Say) -> dict[str, Any]:
    """Search, train, test, export; from where the folder stands. Returns what result.json holds."""
    from proxnas.common.environment import describe, pick_device
    from proxnas.runs.folder import open_run, write_atomically

    start = time.monotonic()
    asked, config = config, in_named_space(config)
    fitting = domain_of_fit(config).fitting
    # the deadline runs from here on: what is read and built below is part of the time
    for_search = time_for(config, SEARCH_SHARE)
    new = config.force or not (folder / "search" / "config.json").exists()
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one
    built = prepare_search(config) if new else None
    with open_run(folder, config.resume, config.force) as run:
        if config.force:
            clear_parts(folder)
        store(asked, "fit", run)
        if run.finished:
            return run.result(("exported", "model_card", "search", "train", *fitting.needed))
        run.write_json("environment.json", describe(pick_device(config.device)))
        # a finished search returns what it has found before, and the training takes up where it
        # stood
        found = _search(config, folder / "search", built, for_search, say)
        genotype = read_genotype(folder / "search")
        write_atomically(run / "genotype.json", genotype.to_json())
        # by its own seconds or by the clock of this call: a search of an earlier call took time too
        for_training = time_for(config, spent=max(found["seconds"], time.monotonic() - start))
        trained = _train(config, genotype, folder / "train", for_training, say)
        result = fit_result(config, found, trained)
        files = _deliver(config, folder, found, say)
        # warnings of the parts, then those of the files: both are said in one line
        doubts = [text for text in (result.get("warning"), files.pop("warning", "")) if text]
        result |= files | ({"warning": "; ".join(doubts)} if doubts else {})
        run.write_json("result.json", result)
        return result


def in_named_space(config: FitOptions) -> FitOptions:
    """With the space that `auto` stands for."""
    # of images only: a fit on text has no such options
    for flag in ("finish", "flip_test"):
        if getattr(config, flag, False):
            raise AboutOptions(f"{{{flag}}}: is for {{space}} auto and resnet, without {{epochs}}")
    if config.space != AUTO:
        return config
    return replace(config, space=domain_of_fit(config).fitting.auto_space)


def clear_parts(folder: Path) -> None:
    """Both at once, or a later --resume would find parts of the earlier run finished."""
    from proxnas.runs.folder import open_run

    for part in (folder / "search", folder / "train"):
        with open_run(part, force=True):
            pass


def _search(
    config: FitOptions, folder: Path, built: Search | None, deadline: Deadline, say: Say
) -> dict[str, Any]:
    if (folder / "config.json").exists():
        return run_search(
            again(config, stored(folder, "search", SearchOptions)), folder, deadline=deadline
        )
    built = built or prepare_search(config)
    asked = built.config
    if config.minutes and not config.search_epochs:
        # how many epochs there is time for is known only now, by a few steps on this machine
        length, seconds = length_in_time(built, deadline.left())
        asked = changed(asked, **length)
        say(f"search: {length['epochs']} epochs of about {seconds:.1f} s")
        built = build_search(asked, built.data)  # the probe has made steps: begin anew
    return run_search(again(config, asked), folder, built, deadline)


def _train(
    config: FitOptions, genotype: Genotype, folder: Path, deadline: Deadline, say: Say
) -> dict[str, Any]:
    domain = domain_of_fit(config)
    if (folder / "config.json").exists():
        known = stored(folder, "train", domain.train_options)
        return run_training(again(config, known), genotype, folder, deadline=deadline)
    built = prepare_training(config, genotype)
    if config.minutes and not config.epochs:
        built, seconds = fit_to_time(config, built, genotype, deadline)
        size = domain.fitting.size_line(built.config)
        line = f"training: {built.config.epochs} epochs of about {seconds:.1f} s"
        say(f"{line}, {size}" if size else line)
    return run_training(again(config, built.config), genotype, folder, built, deadline)


def again(config: RunConfig, inner: Part) -> Part:
    """The configuration of a part as this call runs it."""
    # what may differ from call to call; everything else stays as the part was begun with
    call = {name: getattr(config, name) for name in ("quiet", "device", "threads", "processes")}
    return changed(inner, resume=True, force=False, **call)


def fit_result(
    config: FitOptions, found: dict[str, Any], trained: dict[str, Any]
) -> dict[str, Any]:
    """What result.json says of search and training: `epochs` are those of the training."""
    # told by the search, or by the fit itself
    of_training = {"schema", "cell", "method", "space", "data", "seed", "warning"}
    result: dict[str, Any] = {"schema": SCHEMA}
    for name in ("method", "space", "data", "seed", "converged", "budget"):
        result[name] = found[name]
    result |= {name: value for name, value in trained.items() if name not in of_training}
    result |= {"search_epochs": found["epochs"], "train_epochs": trained["epochs"]}
    result |= {"seconds": found["seconds"] + trained["seconds"], "minutes": config.minutes or None}
    for name, part in (("search", found), ("train", trained)):
        kept = ("epochs", "seconds", "valid_accuracy", "valid_perplexity", "warning", "stopped")
        result[name] = {key: part[key] for key in kept if key in part}
    if warning := _both_warnings(found, trained):
        result["warning"] = warning
    return result


def _both_warnings(found: dict[str, Any], trained: dict[str, Any]) -> str:
    """What search and training warn of; about the data both say the same."""
    of_search = found.get("warning", "").split("; ")
    of_training = trained.get("warning", "").split("; ")
    said = [line for line in of_training if line]
    for line in of_search:
        if line and line not in of_training:
            said.append(f"search: {line}")
    return "; ".join(said)


def _deliver(config: FitOptions, folder: Path, found: dict[str, Any], say: Say) -> dict[str, Any]:
    """Writes the files of the model into the folder of the fit."""
    from proxnas.domains.trained import load_model

    domain = domain_of_fit(config)
    training = stored(folder / "train", "train", domain.train_options)
    return domain.fitting.deliver(config, training, load_model(folder), folder, found, say)


def plan_fit(config: FitOptions) -> dict[str, Any]:
    """The figures of `--dry-run`: the search's, and the training of the cell that a search would
    begin with."""
    from proxnas.workflows.plan import measure_training, plan_search

    config = in_named_space(config)
    search = prepare_search(config)
    genotype = search.genotype()
    figures = plan_search(search)
    training = prepare_training(config, genotype)
    if config.minutes and not config.epochs:
        deadline = time_for(config, 1 - SEARCH_SHARE)
        training, _ = fit_to_time(config, training, genotype, deadline)
    return plan_both(config, figures, training.config, *measure_training(training))
