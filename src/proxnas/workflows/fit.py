"""From data to a tested, exported network: a search, a training and an export in one folder, each
resumable.

RUN/search and RUN/train are ordinary runs; what they were asked for stands in their own
config.json, so that a resumption takes the epochs that were chosen at first, whatever a new
measurement would say.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.common.config_file import read_values
from proxnas.common.errors import InputError
from proxnas.common.options import AboutOptions, Options, changed
from proxnas.domains.images.domain import IMAGES
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.domains.text.options import TextTrainOptions
from proxnas.runs.deadline import Deadline
from proxnas.runs.lengthening import store
from proxnas.runs.options import RunConfig
from proxnas.runs.stored_options import stored
from proxnas.searching.defaults import resolve
from proxnas.searching.limit_options import BudgetFlags
from proxnas.searching.options import SearchOptions
from proxnas.searching.running import build_search
from proxnas.training.few_steps import LEAST_STEPS, SMALLEST_BATCH, batch_for, epochs_for
from proxnas.workflows import fit_words
from proxnas.workflows.fit_minutes import AUTO, fit_minutes, is_one_pass
from proxnas.workflows.fit_options import FitConfig, TextFitConfig
from proxnas.workflows.fit_plan import SPACE, plan_minutes
from proxnas.workflows.jobs import fitting, run_search
from proxnas.workflows.train import run_training

if TYPE_CHECKING:
    from proxnas.domains.images.data.images import Images
    from proxnas.domains.images.training import ImageTraining
    from proxnas.domains.trained import Exported
    from proxnas.searching.job import Search

SEARCH_SHARE = 0.4
"""Of the time that the search may take, its refinement included; the rest, and what it leaves, is
for the training."""
RESERVE = 0.08
"""Of the time that is kept for start, test and export; at least RESERVE_SECONDS."""
RESERVE_SECONDS = 20.0
MOST_TRAINING = 4
"""A training is lengthened to at most so many times the epochs of its protocol."""
SEARCH_SIDE = 32
"""Pixels that files of large images are brought to in a search, as is usual: cells found there are
good at 224 too."""

CELLS = "darts7"
"""The space of --space auto where cells are asked for."""
OWN_SIZES = {"nasbench201": (5, 16), SPACE: (1, 32)}
"""Cells and channels of the network that is trained, in spaces that have their own."""

Say = Callable[[str], None]
Part = TypeVar("Part", SearchOptions, ImageTrainOptions, TextTrainOptions)


def search_config(config: FitConfig) -> SearchOptions:
    """The search of a fit; its epochs as the protocol says or the flag."""
    limit = config.limit()
    protocol = "cifar" if config.protocol.endswith("imagenet") else config.protocol
    values = _train_values(config, None)
    with fit_words.training(FitConfig):
        training = ImageTrainOptions(**values)  # a bad value is named now, not after the search
    if (
        limit and training.stem != "cifar"
    ):  # the search counts networks as they are for small images
        raise AboutOptions(
            f"{limit.asked()}: is not for networks with the stem {training.stem}: leave it out, or"
            " give {eta}"
        )
    cells, channels = OWN_SIZES.get(config.space, (values["cells"], values["channels"]))
    flags: dict[str, Any] = {
        "space": config.space,
        "method": config.method,
        "protocol": protocol,
        "seed": config.seed,
        "device": config.device,
        "threads": config.threads,
        "final_cells": config.cells or cells,
        "final_channels": config.channels or channels,
    }
    side = config.image_size or (SEARCH_SIDE if values.get("image_size") else 0)
    chosen = {
        "epochs": config.search_epochs,
        "batch_size": config.batch_size,
        "image_size": side,
        "eta": config.eta,
    }
    flags |= {name: value for name, value in (chosen | budget_flags(config)).items() if value}
    flags |= {"data": config.data, "quiet": config.quiet, "skip_broken": config.skip_broken}
    file = read_values(Path(config.search_config), SearchOptions) if config.search_config else {}
    return resolve(flags, file)


def budget_flags(config: BudgetFlags) -> dict[str, Any]:
    """The limit on the network that is trained: the search has it too."""
    names = [field.name for field in dataclasses.fields(BudgetFlags)]
    return {name: getattr(config, name) for name in names if getattr(config, name) != "auto"}


def train_config(config: FitConfig, genotype: Genotype) -> ImageTrainOptions:
    """The training of a fit; its epochs as the protocol says or the flag."""
    return ImageTrainOptions(**_train_values(config, genotype))


def _train_values(config: FitConfig, genotype: Genotype | None) -> dict[str, Any]:
    values = IMAGES.train_values(config.protocol, config.data, genotype)
    if config.train_config:
        values |= read_values(Path(config.train_config), ImageTrainOptions)
    flags = ("epochs", "batch_size", "cells", "channels", "image_size", "skip_broken")
    values |= {name: getattr(config, name) for name in flags if getattr(config, name)}
    same = {
        name: getattr(config, name)
        for name in ("data", "seed", "device", "threads", "deterministic", "quiet")
    }
    return values | same | {"cell": "../search"}


def asked_for(config: FitConfig | TextFitConfig, name: str, file: str) -> bool:
    """Whether somebody gave a value, by the flag or in the file of --search-config or
    --train-config."""
    return bool(getattr(config, name)) or (
        file != "" and name in read_values(Path(file), _kind_of(config, file))
    )


def _kind_of(config: FitConfig | TextFitConfig, file: str) -> type[Options]:
    if file == config.search_config:
        return SearchOptions
    return TextTrainOptions if isinstance(config, TextFitConfig) else ImageTrainOptions


def prepare_search(config: FitConfig) -> Search:
    """The search of a fit, built: its batches fitted to the data, and its images to the time, where
    nobody asked for others. What the training after it would refuse is refused here."""
    with fit_words.searching(FitConfig):
        asked = search_config(config)
        asked, images = _quick_images(config, asked)
        if not asked_for(config, "batch_size", config.search_config):
            size = batch_for(_halved(images), asked.epochs, asked.batch_size)
            asked = changed(asked, batch_size=size)
        search = build_search(asked, images)
    with fit_words.training(FitConfig):
        prepare_training(config, search.genotype(), _same(config, asked, images))
    return search


def _quick_images(config: FitConfig, asked: SearchOptions) -> tuple[SearchOptions, Images]:
    """The images that are searched on: files of large ones are brought to SEARCH_SIDE where time is
    short."""
    from proxnas.domains.images.data.images import load

    images = load(asked.data, asked.load_options())
    if config.minutes and not asked.image_size and max(images.shape[1:]) > SEARCH_SIDE:
        smaller = changed(asked, image_size=SEARCH_SIDE)
        try:
            return smaller, load(smaller.data, smaller.load_options())
        except InputError:  # arrays are taken as they are
            return asked, images
    return asked, images


def _halved(images: Images) -> int:
    """How many images the smaller half has that a search is made on."""
    if images.y_valid is not None:
        return min(len(images.y_train), len(images.y_valid))
    return len(images.y_train) // 2


def _same(config: FitConfig, search: SearchOptions, images: Images) -> Images | None:
    """The images of the search, if the training reads them alike."""
    training = ImageTrainOptions(**_train_values(config, None))
    return images if training.load_options() == search.load_options() else None


def build_training(
    options: ImageTrainOptions, genotype: Genotype, images: Images | None = None
) -> ImageTraining:
    """The training that is described; `images`: what DATA names, if it was read."""
    return IMAGES.training(options, IMAGES.load(images or options.data, options), genotype)


def prepare_training(
    config: FitConfig, genotype: Genotype, images: Images | None = None
) -> ImageTraining:
    """The training of a fit, built; its batches, and its epochs, are such that it has steps, where
    nobody asked for others."""
    from proxnas.domains.images.data.images import load
    from proxnas.domains.images.parts import train_parts

    asked = train_config(config, genotype)
    images = images or load(asked.data, asked.load_options())
    count = len(train_parts(images, asked.valid_share)[0][1])
    if not asked_for(config, "batch_size", config.train_config):
        size = batch_for(
            count, asked.epochs, asked.batch_size, max(SMALLEST_BATCH, 2 * asked.accumulate)
        )
        asked = dataclasses.replace(asked, batch_size=size)
    if not asked_for(config, "epochs", config.train_config):
        epochs = epochs_for(count, asked.batch_size, asked.epochs, MOST_TRAINING)
        asked = dataclasses.replace(asked, epochs=epochs)
    return build_training(asked, genotype, images)


def fit_to_time(
    config: FitConfig, usual: ImageTraining, genotype: Genotype, deadline: Deadline
) -> tuple[ImageTrainOptions, float]:
    """The training that makes most of the time, and the seconds of its epochs: the largest
    network and images that LEAST_STEPS steps can be made with, batches as usual if there are
    steps enough."""
    from proxnas.workflows.plan_train import measure_training

    chosen = _largest_in_time(config, usual, genotype, deadline)
    seconds, _ = measure_training(chosen)
    asked, images, count = chosen.config, chosen.images, len(chosen.train.part)
    most = MOST_TRAINING * usual.config.epochs
    if not asked_for(config, "batch_size", config.train_config):
        epochs = fitting(deadline.left(), seconds, most)
        size = batch_for(count, epochs, train_config(config, genotype).batch_size, asked.batch_size)
        if size != asked.batch_size:
            asked = dataclasses.replace(asked, batch_size=size)
            seconds, _ = measure_training(build_training(asked, genotype, images))
    return dataclasses.replace(asked, epochs=fitting(deadline.left(), seconds, most)), seconds


def _largest_in_time(
    config: FitConfig, usual: ImageTraining, genotype: Genotype, deadline: Deadline
) -> ImageTraining:
    """Of the trainings from the usual to the smallest the first that LEAST_STEPS steps are expected
    to be in time for: only the smallest is timed, and the others are taken to be slower as they
    have more multiply-adds."""
    from proxnas.workflows.plan_train import measure_training

    choices = [build_training(*words) for words in _smaller_and_smaller(config, usual, genotype)]
    if len(choices) == 1:
        return choices[0]
    smallest = choices[-1]
    step = measure_training(smallest)[0] / len(smallest)
    for choice in choices[:-1]:
        if LEAST_STEPS * step * choice.flops / smallest.flops <= deadline.left():
            return choice
    asked = smallest.config
    return build_training(asked, genotype, smallest.images)  # anew: it has made steps


def _smaller_and_smaller(
    config: FitConfig, usual: ImageTraining, genotype: Genotype
) -> Iterator[tuple[ImageTrainOptions, Genotype, Images]]:
    """The usual training in the smallest batches, then smaller images, fewer channels, fewer cells:
    what nobody asked for, each besides the one before."""
    from proxnas.domains.images.data.images import load

    asked, images = usual.config, usual.images
    if not asked_for(config, "batch_size", config.train_config):
        asked = dataclasses.replace(asked, batch_size=min(asked.batch_size, SMALLEST_BATCH))
    yield asked, genotype, images
    if asked.stem != "cifar":  # their stems need large images
        return
    if (
        not asked_for(config, "image_size", config.train_config)
        and max(images.shape[1:]) > SEARCH_SIDE
    ):
        smaller = dataclasses.replace(asked, image_size=SEARCH_SIDE)
        try:
            images = load(smaller.data, smaller.load_options())
        except InputError:  # arrays are taken as they are
            smaller = asked
        if smaller != asked:
            asked = smaller
            yield asked, genotype, images
    for name in ("channels", "cells"):
        if not asked_for(config, name, config.train_config):
            asked = dataclasses.replace(asked, **{name: (getattr(asked, name) + 1) // 2})
            yield asked, genotype, images


def fit(config: FitConfig, folder: Path, say: Say, begun: float | None = None) -> dict[str, Any]:
    """Search, train, test, export; from where the folder stands. Returns what result.json holds.

    `begun`: since when, by time.monotonic, the time counts; None: since now.
    """
    if is_one_pass(config):
        return fit_minutes(config, folder, say, begun=begun)
    from proxnas.common.environment import describe, pick_device
    from proxnas.runs.folder import open_run, write_atomically

    start = time.monotonic()
    asked, config = config, in_cells(config)
    for_search = time_for(config, SEARCH_SHARE)
    new = config.force or not (folder / "search" / "config.json").exists()
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one
    built = prepare_search(config) if new else None
    with open_run(folder, config.resume, config.force) as run:
        if config.force:
            clear_parts(folder)
        store(asked, "fit", run)
        if run.finished:
            return run.result(("exported", "model_card", "search", "train"))
        run.write_json("environment.json", describe(pick_device(config.device)))
        found = _search(config, folder / "search", built, for_search, say)
        genotype = read_genotype(folder / "search")
        write_atomically(run / "genotype.json", genotype.to_json())
        for_training = time_for(config, spent=max(found["seconds"], time.monotonic() - start))
        trained = _train(config, genotype, folder / "train", for_training, say)
        files = _deliver(stored(folder / "train", "train", ImageTrainOptions), folder, found, say)
        result = fit_result(config, found, trained)
        doubts = [text for text in (result.get("warning"), files.pop("warning", "")) if text]
        result |= files | ({"warning": "; ".join(doubts)} if doubts else {})
        run.write_json("result.json", result)
        return result


def in_cells(config: FitConfig, auto: str = CELLS) -> FitConfig:
    """A search, then a training, in a space that has a name."""
    if config.finish:
        raise AboutOptions("{finish}: is for {space} auto and resnet, without {epochs}")
    return dataclasses.replace(config, space=auto) if config.space == AUTO else config


def clear_parts(folder: Path) -> None:
    """Both at once, or a later --resume would find parts of the earlier run finished."""
    from proxnas.runs.folder import open_run

    for part in (folder / "search", folder / "train"):
        with open_run(part, force=True):
            pass


def _search(
    config: FitConfig, folder: Path, built: Search | None, deadline: Deadline, say: Say
) -> dict[str, Any]:
    if (folder / "config.json").exists():
        return run_search(
            again(config, stored(folder, "search", SearchOptions)), folder, deadline=deadline
        )
    built = built or prepare_search(config)
    asked = built.config
    if config.minutes and not config.search_epochs:
        epochs, seconds = search_epochs(built, deadline)
        asked = changed(asked, epochs=epochs)
        say(f"search: {epochs} epochs of about {seconds:.1f} s")
        built = build_search(asked, built.data)  # the probe has made steps: begin anew
    return run_search(again(config, asked), folder, built, deadline)


def search_epochs(probe: Search, deadline: Deadline) -> tuple[int, float]:
    """How many epochs there is time for, by a measurement of a few steps, and the seconds of one;
    if something is to be refined after them that has half of the time."""
    from proxnas.workflows.plan import measure

    seconds, _ = measure(probe, probe.figures)
    share = 0.5 if probe.config.refine else 1.0
    return fitting(share * deadline.left(), seconds, probe.config.epochs), seconds


def _train(
    config: FitConfig, genotype: Genotype, folder: Path, deadline: Deadline, say: Say
) -> dict[str, Any]:
    if (folder / "config.json").exists():
        known = stored(folder, "train", ImageTrainOptions)
        return run_training(again(config, known), genotype, folder, deadline=deadline)
    built = prepare_training(config, genotype)
    if config.minutes and not config.epochs:
        asked, seconds = fit_to_time(config, built, genotype, deadline)
        say(f"training: {asked.epochs} epochs of about {seconds:.1f} s, {_size(asked)}")
        built = build_training(
            asked, genotype, built.images if asked.image_size == built.config.image_size else None
        )
    return run_training(again(config, built.config), genotype, folder, built, deadline)


def _size(asked: ImageTrainOptions) -> str:
    side = f"images of {asked.image_size} pixels, " if asked.image_size else ""
    return f"{side}batches of {asked.batch_size}, {asked.cells} cells, {asked.channels} channels"


def again(config: RunConfig, inner: Part) -> Part:
    """The configuration of a part as this call runs it."""
    call = {name: getattr(config, name) for name in ("quiet", "device", "threads", "processes")}
    return changed(inner, resume=True, force=False, **call)


def time_for(config: FitConfig | TextFitConfig, share: float = 1.0, spent: float = 0.0) -> Deadline:
    """A share of the time of search and training, from now on, less what was spent."""
    return Deadline(share * budget_seconds(config) - spent) if config.minutes else Deadline()


def budget_seconds(config: FitConfig | TextFitConfig) -> float:
    """Seconds for search and training together."""
    seconds = 60 * config.minutes
    return seconds - max(RESERVE * seconds, RESERVE_SECONDS)


def fit_result(
    config: FitConfig | TextFitConfig, found: dict[str, Any], trained: dict[str, Any]
) -> dict[str, Any]:
    """What result.json says of search and training: `epochs` are those of the training."""
    of_training = {"schema", "cell", "method", "space", "data", "seed", "warning"}
    result = {
        name: found[name] for name in ("method", "space", "data", "seed", "converged", "budget")
    }
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


def _deliver(
    config: ImageTrainOptions, folder: Path, found: dict[str, Any], say: Say
) -> dict[str, Any]:
    """Writes the exported network, checked on test images, what is made of it, and the model card;
    names of files and figures for result.json."""
    from proxnas.domains.images.data.images import load
    from proxnas.domains.trained import load_model
    from proxnas.workflows.fit_files import write_files

    images = load(config.data, config.load_options())
    files, doubts = write_files(load_model(folder), folder, images, found, say)
    files.pop("latency_ms", None)
    return files | ({"warning": "; ".join(doubts)} if doubts else {})


def delivered(exported: Exported) -> dict[str, Any]:
    """What result.json says of the files."""
    names = {kind: path.name for kind, path in exported.files.items()}
    return {
        "onnx": names.get("onnx"),
        "exported": names.get("onnx") or names["torch"],
        "model_card": names["card"],
    }


def plan_fit(config: FitConfig) -> dict[str, Any]:
    """The figures of `--dry-run`: the search's, and the training of the cell that a search would
    begin with."""
    from proxnas.workflows.plan import plan_search
    from proxnas.workflows.plan_train import measure_training

    if is_one_pass(config):
        return plan_minutes(config, plan_search(prepare_search(in_cells(config, SPACE))))
    config = in_cells(config)
    search = prepare_search(config)
    genotype = search.genotype()
    figures = plan_search(search)
    training = prepare_training(config, genotype)
    if config.minutes and not config.epochs:
        asked, _ = fit_to_time(config, training, genotype, time_for(config, 1 - SEARCH_SHARE))
        training = build_training(asked, genotype)
    return plan_both(config, figures, training.config.epochs, *measure_training(training))


def plan_both(
    config: FitConfig | TextFitConfig,
    figures: dict[str, Any],
    train_epochs: int,
    seconds: float,
    peak: int,
) -> dict[str, Any]:
    """The figures of a search and those of the training after it: its epochs, seconds of one, and
    peak memory."""
    epochs = figures["epochs"]
    if config.minutes:
        budget = budget_seconds(config)
        epochs = config.search_epochs or fitting(
            SEARCH_SHARE * budget, figures["seconds_per_epoch"], epochs
        )
        left = budget - epochs * figures["seconds_per_epoch"]
        train_epochs = config.epochs or fitting(left, seconds, MOST_TRAINING * train_epochs)
    return figures | {
        "epochs": epochs,
        "train_epochs": train_epochs,
        "train_seconds_per_epoch": seconds,
        "minutes": (epochs * figures["seconds_per_epoch"] + train_epochs * seconds) / 60,
        "peak_bytes": max(peak, figures["peak_bytes"]),
    }
