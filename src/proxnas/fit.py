"""From data to a tested, exported network: a search, a training and an export in one folder, each resumable.

RUN/search and RUN/train are ordinary runs; what they were asked for stands in their own config.json, so that a
resumption takes the epochs that were chosen at first, whatever a new measurement would say.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proxnas.budget_flags import BudgetFlags
from proxnas.config import SearchConfig
from proxnas.errors import InputError
from proxnas.genotype import Genotype, read
from proxnas.jobs import build_search, build_training, fitting, run_search, run_training, store
from proxnas.run_config import RunConfig
from proxnas.settings import parse_search, read_values
from proxnas.text_config import TextFitConfig, TextTrainConfig
from proxnas.train_config import FitConfig, TrainConfig
from proxnas.train_settings import defaults, stored

if TYPE_CHECKING:
    from proxnas.searching import Search

SEARCH_SHARE = 0.4
"""Of the budget that a search may take; the rest, and what it leaves, is for the training."""
RESERVE = 0.08
"""Of the budget that is kept for start, test and export; at least RESERVE_SECONDS."""
RESERVE_SECONDS = 20.0
MOST_TRAINING = 4
"""A budget lengthens a training to at most so many times the epochs of its protocol."""
SEARCH_SIDE = 32
"""Pixels that files of large images are brought to in a search, as is usual: cells found there are good at 224 too."""

Say = Callable[[str], None]
Part = TypeVar("Part", SearchConfig, TrainConfig, TextTrainConfig)


def search_config(config: FitConfig) -> SearchConfig:
    """The search of a fit; its epochs as the protocol says or the flag."""
    limit = config.limit()
    protocol = "cifar" if config.protocol.endswith("imagenet") else config.protocol
    values = _train_values(config, None)
    training = TrainConfig(**values)  # a bad value is named now, not after the search
    if limit and training.stem != "cifar":  # the search counts networks as they are for small images
        raise InputError(
            f"{limit.asked}: is not for networks with the stem {training.stem}: leave it out, or give --eta"
        )
    flags: dict[str, Any] = {
        "space": config.space,
        "method": config.method,
        "protocol": protocol,
        "seed": config.seed,
        "device": config.device,
        "threads": config.threads,
        "final-cells": config.cells or (5 if config.space == "nasbench201" else values["cells"]),
        "final-channels": config.channels or (16 if config.space == "nasbench201" else values["channels"]),
    }
    side = config.image_size or (SEARCH_SIDE if values.get("image_size") else 0)
    chosen = {"epochs": config.search_epochs, "batch-size": config.batch_size, "image-size": side, "eta": config.eta}
    flags |= {name: value for name, value in (chosen | budget_flags(config)).items() if value}
    argv = [config.data, *(f"--{name}={value}" for name, value in flags.items())]
    argv += ["--quiet"] * config.quiet + ["--skip-broken"] * config.skip_broken
    return parse_search(argv + (["--config", config.search_config] if config.search_config else []))


def budget_flags(config: BudgetFlags) -> dict[str, Any]:
    """The limit on the network that is trained: the search has it too."""
    names = [field.name for field in dataclasses.fields(BudgetFlags)]
    return {name.replace("_", "-"): getattr(config, name) for name in names if getattr(config, name) != "auto"}


def train_config(config: FitConfig, genotype: Genotype) -> TrainConfig:
    """The training of a fit; its epochs as the protocol says or the flag."""
    return TrainConfig(**_train_values(config, genotype))


def _train_values(config: FitConfig, genotype: Genotype | None) -> dict[str, Any]:
    values = defaults(config.protocol, config.data, genotype)
    if config.train_config:
        values |= read_values(Path(config.train_config), TrainConfig)
    flags = ("epochs", "batch_size", "cells", "channels", "image_size", "skip_broken")
    values |= {name: getattr(config, name) for name in flags if getattr(config, name)}
    same = {name: getattr(config, name) for name in ("data", "seed", "device", "threads", "deterministic", "quiet")}
    return values | same | {"cell": "../search"}


def fit(config: FitConfig, folder: Path, say: Say) -> dict[str, Any]:
    """Search, train, test, export; from where the folder stands. Returns what result.json holds."""
    from proxnas.environment import describe, pick_device
    from proxnas.run import open_run, write_atomically

    start = time.perf_counter()
    asked = search_config(config)
    new = config.force or not (folder / "search" / "config.json").exists()
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one
    built = build_search(asked) if new else None
    with open_run(folder, config.resume, config.force) as run:
        if config.force:
            clear_parts(folder)
        store(config, "fit", run)
        if run.finished:
            finished: dict[str, Any] = run.read_json("result.json")
            return finished
        run.write_json("environment.json", describe(pick_device(config.device)))
        found = _search(config, asked, folder / "search", built, say)
        genotype = read(folder / "search")
        write_atomically(run / "genotype.json", genotype.to_json())
        spent = max(found["seconds"], time.perf_counter() - start)
        trained = _train(config, genotype, folder / "train", spent, say)
        delivered = _deliver(stored(folder / "train", "train", TrainConfig), folder, found, say)
        result = _result(config, found, trained) | delivered
        run.write_json("result.json", result)
        return result


def clear_parts(folder: Path) -> None:
    """Both at once, or a later --resume would find parts of the earlier run finished."""
    from proxnas.run import open_run

    for part in (folder / "search", folder / "train"):
        with open_run(part, force=True):
            pass


def _search(config: FitConfig, asked: SearchConfig, folder: Path, built: Search | None, say: Say) -> dict[str, Any]:
    from proxnas.plan import measure

    if (folder / "config.json").exists():
        return run_search(again(config, stored(folder, "search", SearchConfig)), folder)
    if config.budget_minutes and not config.search_epochs:
        probe = built or build_search(asked)
        seconds, _ = measure(probe, probe.validation)
        epochs = fitting(SEARCH_SHARE * budget_seconds(config), seconds, asked.epochs)
        asked, built = dataclasses.replace(asked, epochs=epochs), None  # the probe has made steps: begin anew
        say(f"search: {epochs} epochs of about {seconds:.1f} s")
    return run_search(again(config, asked), folder, built)


def _train(config: FitConfig, genotype: Genotype, folder: Path, spent: float, say: Say) -> dict[str, Any]:
    from proxnas.plan_train import measure_training

    if (folder / "config.json").exists():
        return run_training(again(config, stored(folder, "train", TrainConfig)), genotype, folder)
    asked = train_config(config, genotype)
    built = build_training(asked, genotype)
    if config.budget_minutes and not config.epochs:
        seconds, _ = measure_training(built)
        epochs = fitting(budget_seconds(config) - spent, seconds, MOST_TRAINING * asked.epochs)
        asked = dataclasses.replace(asked, epochs=epochs)
        built = build_training(asked, genotype)
        say(f"training: {epochs} epochs of about {seconds:.1f} s")
    return run_training(again(config, asked), genotype, folder, built)


def again(config: RunConfig, inner: Part) -> Part:
    """The configuration of a part as this call runs it."""
    call = {name: getattr(config, name) for name in ("quiet", "device", "threads")}
    return dataclasses.replace(inner, resume=True, force=False, **call)


def budget_seconds(config: FitConfig | TextFitConfig) -> float:
    """Seconds for search and training together."""
    seconds = 60 * config.budget_minutes
    return seconds - max(RESERVE * seconds, RESERVE_SECONDS)


def _result(config: FitConfig, found: dict[str, Any], trained: dict[str, Any]) -> dict[str, Any]:
    parts = {"search": found, "train": trained}
    kept = ("epochs", "seconds", "valid_accuracy", "warning")
    return {
        **{name: found[name] for name in ("method", "space", "data", "seed", "converged", "budget")},
        **{name: value for name, value in trained.items() if name not in ("cell", "method", "space", "data", "seed")},
        "epochs": found["epochs"] + trained["epochs"],
        "seconds": found["seconds"] + trained["seconds"],
        "budget_minutes": config.budget_minutes or None,
        **{name: {key: part[key] for key in kept if key in part} for name, part in parts.items()},
    }


def _deliver(config: TrainConfig, folder: Path, found: dict[str, Any], say: Say) -> dict[str, Any]:
    """Writes the exported network, checked on test images, and the model card; names of files for result.json."""
    import numpy as np

    from proxnas.data.images import load
    from proxnas.deliver import IMAGES, deliver
    from proxnas.model import load_model

    images = np.asarray(load(config.data, config.load_options()).x_test[:IMAGES])
    files = deliver(load_model(folder), images, folder, found, say)
    names = {kind: path.name for kind, path in files.items()}
    return {"onnx": names.get("onnx"), "exported": names.get("onnx") or names["torch"], "model_card": names["card"]}


def plan_fit(config: FitConfig) -> dict[str, Any]:
    """The figures of `--dry-run`: the search's, and the training of the cell that a search would begin with."""
    from proxnas.plan import plan_search
    from proxnas.plan_train import measure_training

    search = build_search(search_config(config))
    genotype = search.genotype()
    figures = plan_search(search)
    asked = train_config(config, genotype)
    return plan_both(config, figures, asked.epochs, *measure_training(build_training(asked, genotype)))


def plan_both(
    config: FitConfig | TextFitConfig, figures: dict[str, Any], train_epochs: int, seconds: float, peak: int
) -> dict[str, Any]:
    """The figures of a search and those of the training after it: its epochs, seconds of one, and peak memory."""
    epochs = figures["epochs"]
    if config.budget_minutes:
        budget = budget_seconds(config)
        epochs = config.search_epochs or fitting(SEARCH_SHARE * budget, figures["seconds_per_epoch"], epochs)
        left = budget - epochs * figures["seconds_per_epoch"]
        train_epochs = config.epochs or fitting(left, seconds, MOST_TRAINING * train_epochs)
    return figures | {
        "epochs": epochs,
        "train_epochs": train_epochs,
        "train_seconds_per_epoch": seconds,
        "minutes": (epochs * figures["seconds_per_epoch"] + train_epochs * seconds) / 60,
        "peak_bytes": max(peak, figures["peak_bytes"]),
    }
