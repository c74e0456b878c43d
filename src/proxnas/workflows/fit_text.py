"""From a text to a tested, exported language model that writes: search, training and export in one
folder.

RUN/search and RUN/train are ordinary runs, each resumable, as in fit.py.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.common.config_file import read_values
from proxnas.common.environment import describe, pick_device
from proxnas.common.options import changed
from proxnas.domains.text.data.text import Text, load
from proxnas.domains.text.options import TEXT_PROTOCOLS, TextTrainOptions, text_options
from proxnas.domains.text.training import TextTraining
from proxnas.runs.deadline import Deadline
from proxnas.runs.folder import open_run, write_atomically
from proxnas.runs.lengthening import store
from proxnas.runs.stored_options import stored
from proxnas.searching.defaults import resolve
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.running import build_search
from proxnas.training.few_steps import windows_for
from proxnas.workflows import fit_words
from proxnas.workflows.fit import (
    MOST_TRAINING,
    SEARCH_SHARE,
    again,
    asked_for,
    budget_flags,
    clear_parts,
    delivered,
    fit_result,
    plan_both,
    search_epochs,
    time_for,
)
from proxnas.workflows.fit_options import TextFitConfig
from proxnas.workflows.jobs import fitting, run_search
from proxnas.workflows.plan import plan_search
from proxnas.workflows.plan_train import measure_training
from proxnas.workflows.train import build_training, run_training

Say = Callable[[str], None]
Sized = TypeVar("Sized", SearchOptions, TextTrainOptions)
SAME = (
    "data",
    "seed",
    "device",
    "threads",
    "deterministic",
    "quiet",
    "tokens",
    "max_words",
    "min_count",
    "train_tokens",
)
"""Flags that search and training share."""


def search_config(config: TextFitConfig) -> SearchOptions:
    """The search of a fit; sizes as the protocol says or the flag."""
    with fit_words.training(TextFitConfig):
        training = train_config(config)  # a bad value is named now, not after the search
    flags: dict[str, Any] = {
        "space": config.space,
        "method": config.method,
        "protocol": "quick" if config.protocol == "quick" else "ptb",
        "final_units": training.units,
    }
    chosen = {
        "epochs": config.search_epochs,
        "batch_size": config.batch_size,
        "bptt": config.bptt,
    } | budget_flags(config)
    shared = {name: getattr(config, name) for name in SAME if name not in ("data", "quiet")}
    flags |= {name: value for name, value in (chosen | shared).items() if value or name == "seed"}
    flags |= {"data": config.data, "quiet": config.quiet}
    file = read_values(Path(config.search_config), SearchOptions) if config.search_config else {}
    return resolve(flags, file)


def train_config(config: TextFitConfig) -> TextTrainOptions:
    """The training of a fit; sizes as the protocol says or the flag."""
    values = TEXT_PROTOCOLS[config.protocol]() | {"protocol": config.protocol}
    if config.train_config:
        values |= read_values(Path(config.train_config), TextTrainOptions)
    chosen = ("epochs", "batch_size", "bptt", "units")
    values |= {name: getattr(config, name) for name in chosen if getattr(config, name)}
    return TextTrainOptions(
        **(values | {name: getattr(config, name) for name in SAME} | {"cell": "../search"})
    )


def prepare_search(config: TextFitConfig, text: Text) -> Search:
    """The search of a fit, built; its columns and windows are fitted to the text where nobody asked
    for others."""
    with fit_words.searching(TextFitConfig):
        asked = search_config(config)
        tokens = min(len(text.train), len(text.valid))  # for w and for A
        return build_search(_fitted(config, asked, config.search_config, tokens), text)


def prepare_training(config: TextFitConfig, text: Text) -> TextTrainOptions:
    """The training of a fit, fitted in the same way."""
    with fit_words.training(TextFitConfig):
        asked = _fitted(config, train_config(config), config.train_config, len(text.train))
        TextTraining(asked, text, None)  # what it would refuse is refused now
    return asked


def _fitted(config: TextFitConfig, asked: Sized, file: str, tokens: int) -> Sized:
    fixed = asked_for(config, "batch_size", file), asked_for(config, "bptt", file)
    batch_size, bptt = windows_for(tokens, asked.batch_size, asked.bptt, fixed)
    return changed(asked, batch_size=batch_size, bptt=bptt)


def fit_text(config: TextFitConfig, folder: Path, say: Say) -> dict[str, Any]:
    """Search, train, test, export; from where the folder stands. Returns what result.json holds."""
    start = time.monotonic()
    for_search = time_for(config, SEARCH_SHARE)
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one
    text = load(config.data, text_options(config))
    built, training = prepare_search(config, text), prepare_training(config, text)
    with open_run(folder, config.resume, config.force) as run:
        if config.force:
            clear_parts(folder)
        store(config, "fit", run)
        if run.finished:
            return run.result(
                ("exported", "model_card", "search", "train", "export_difference", "sample")
            )
        run.write_json("environment.json", describe(pick_device(config.device)))
        found = _search(config, built, folder / "search", for_search, say)
        genotype = read_genotype(folder / "search")
        write_atomically(run / "genotype.json", genotype.to_json())
        for_training = time_for(config, spent=max(found["seconds"], time.monotonic() - start))
        trained = _train(config, training, genotype, folder, for_training, say)
        result = fit_result(config, found, trained) | _deliver(config, folder, found, say)
        run.write_json("result.json", result)
        return result


def _search(
    config: TextFitConfig, built: Search, folder: Path, deadline: Deadline, say: Say
) -> dict[str, Any]:
    if (folder / "config.json").exists():
        known = stored(folder, "search", SearchOptions)
        return run_search(again(config, known), folder, deadline=deadline)
    if config.minutes and not config.search_epochs:
        epochs, seconds = search_epochs(built, deadline)
        say(f"search: {epochs} epochs of about {seconds:.1f} s")
        asked = changed(built.config, epochs=epochs)
        built = build_search(asked, built.data)  # the probe has made steps: begin anew
    return run_search(again(config, built.config), folder, built, deadline)


def _train(
    config: TextFitConfig,
    asked: TextTrainOptions,
    genotype: Genotype,
    folder: Path,
    deadline: Deadline,
    say: Say,
) -> dict[str, Any]:
    asked = dataclasses.replace(asked, cell=str(folder / "search"))
    if config.minutes and not config.epochs and not (folder / "train" / "config.json").exists():
        seconds, _ = measure_training(build_training(asked, genotype))
        epochs = fitting(deadline.left(), seconds, MOST_TRAINING * asked.epochs)
        say(f"training: {epochs} epochs of about {seconds:.1f} s")
        asked = dataclasses.replace(asked, epochs=epochs)
    part = _part(config, folder / "train", "train", asked)
    return run_training(part, genotype, folder / "train", deadline=deadline)


def plan_fit_text(config: TextFitConfig) -> dict[str, Any]:
    """The figures of `--dry-run`: the search's, and the training of the cell that a search would
    begin with."""
    text = load(config.data, text_options(config))
    search, asked = prepare_search(config, text), prepare_training(config, text)
    figures = plan_search(search)
    training = TextTraining(asked, text, search.genotype())
    return plan_both(config, figures, asked.epochs, *measure_training(training))


def _part(config: TextFitConfig, folder: Path, command: str, asked: Any) -> Any:
    """The configuration of a part: the one that is stored, if it was begun before."""
    known = stored(folder, command, type(asked)) if (folder / "config.json").exists() else asked
    return again(config, known)


def _deliver(
    config: TextFitConfig, folder: Path, found: dict[str, Any], say: Say
) -> dict[str, Any]:
    """Writes the exported step, checked, and the model card; lets the model write."""
    from proxnas.domains.trained import load_model

    model = load_model(folder)
    exported = model.deliver(folder, found=found, tell=say)
    return delivered(exported) | {
        "export_difference": max(exported.differences.values()),
        "sample": model.generate(config.prompt, config.words, config.temperature, config.seed),
    }
