"""Runs as a whole: a configuration and a folder go in, a result comes out. For commands, which may chain several."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from proxnas import __version__
from proxnas.config import SearchConfig
from proxnas.launch import here
from proxnas.methods import SAMPLING
from proxnas.run_config import RunConfig
from proxnas.settings import check_same, read_values, storable
from proxnas.table import check
from proxnas.text_config import TextTrainConfig
from proxnas.train_config import TrainConfig

if TYPE_CHECKING:
    from proxnas.designs import Architecture
    from proxnas.loop import Progress
    from proxnas.run import Run
    from proxnas.same_data import OnData
    from proxnas.searching import Search
    from proxnas.train import Training
    from proxnas.training.text import TextTraining

Built = TypeVar("Built", bound="OnData")
AnyConfig = SearchConfig | TrainConfig | TextTrainConfig


def slug(text: str) -> str:
    """A word that is safe as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")[:60]


def data_word(data: str) -> str:
    """DATA in the name of a folder."""
    return slug(Path(data).stem) or "data"


def build_search(config: SearchConfig) -> Search:
    """The search that is described, after all input was found good."""
    from proxnas.searching import Search
    from proxnas.tasks import load_data

    if config.table:
        check(Path(config.table))
    return Search(dataclasses.replace(config, seed=config.all_seeds()[0]), load_data(config))


def fitted_to_minutes(config: SearchConfig) -> SearchConfig:
    """With as many epochs as take --minutes, by a measurement of a few steps.

    Not a stop in the middle: what follows a schedule over all epochs, or chooses at the end, would be cut off before.
    """
    from proxnas.bench import WARM
    from proxnas.plan import measure

    probe = build_search(dataclasses.replace(config, **WARM.get(config.method, {})))
    seconds, _ = measure(probe, probe.figures)
    epochs = fitting(60 * config.minutes, seconds, config.epochs)
    return dataclasses.replace(config, epochs=epochs, refine=max(0, config.refine))  # by itself it would take longer


def fitting(seconds: float, per_epoch: float, most: int) -> int:
    """How many epochs fit, at least one and at most so many."""
    return max(1, min(most, int(seconds / per_epoch)))


def run_search(config: SearchConfig, folder: Path, built: Search | None = None) -> dict[str, Any]:
    """One search in its folder; a finished one is not run again."""
    from proxnas.searching import found, search

    title = f"{config.method} {config.space} seed {config.seed}"
    build = partial(_searched, config, folder, built)
    if by_workers(config, folder):
        from proxnas.evaluations import run_evaluations

        return _run(config, "search", folder, title, build, partial(search, loop=run_evaluations), quiet=True)
    if config.refine:
        from proxnas.refining import refine

        return refine(config, folder, _run(config, "search", folder, title, build, found))
    return _run(config, "search", folder, title, build, search)


def _searched(config: SearchConfig, folder: Path, built: Search | None) -> Search:
    if built:
        return built
    begun = config.resume and (folder / "checkpoint.pt").exists()
    # what it began with is in the checkpoint; the file of --start may be gone
    return build_search(dataclasses.replace(config, start="") if begun else config)


def by_workers(config: SearchConfig, folder: Path) -> bool:
    """Whether cells are evaluated by workers: as asked for, or as the search in the folder was begun."""
    from proxnas.run import CELL, EVALUATIONS

    begun = not config.force and any((folder / EVALUATIONS).glob(f"*/{CELL}"))
    return config.method in SAMPLING and config.evaluate == "train" and (config.at_once or begun)


def build_training(config: TrainConfig, genotype: Architecture) -> Training:
    """The training that is described, after all input was found good."""
    from proxnas.data.images import load
    from proxnas.train import Training

    return Training(config, load(config.data, config.load_options()), genotype)


def run_training(
    config: TrainConfig, genotype: Architecture, folder: Path, built: Training | None = None
) -> dict[str, Any]:
    """One training in its folder; a finished one is not run again."""
    from proxnas.train import train

    return _run(config, "train", folder, "train", lambda: built or build_training(config, genotype), train)


def run_text_training(config: TextTrainConfig, folder: Path, built: TextTraining | None = None) -> dict[str, Any]:
    """One training of a language model in its folder; a finished one is not run again."""
    from proxnas.train_text import build_text_training, train_text

    return _run(config, "train", folder, "train", lambda: built or build_text_training(config, folder), train_text)


def _run(
    config: AnyConfig,
    command: str,
    folder: Path,
    title: str,
    build: Callable[[], Built],
    work: Callable[[Built, Run, Progress], dict[str, Any]],
    quiet: bool = False,
) -> dict[str, Any]:
    from proxnas.board import check_tensorboard, with_board
    from proxnas.progress import shown
    from proxnas.run import open_run
    from proxnas.same_data import check_data, check_searched

    if config.tensorboard:
        check_tensorboard()
    with open_run(folder, config.resume, config.force) as run:
        store(config, command, run)
        if run.finished:
            finished: dict[str, Any] = run.read_json("result.json")
            return finished
        with (
            shown(Console(highlight=False), title, quiet or config.quiet or not here().leads) as bar,
            with_board(bar, folder, config.tensorboard and here().leads) as progress,
        ):
            built = build()
            check_data(run, built.fingerprint)
            if not isinstance(config, SearchConfig):
                check_searched(config.cell, config.data, run, built.fingerprint)
            return work(built, run, progress)


def store(config: RunConfig, command: str, run: Run) -> None:
    """Writes config.json, or finds that the one which is there says the same."""
    if (run / "config.json").exists():
        check_same(config, type(config)(**read_values(run / "config.json", type(config))), run.folder)
    else:
        run.write_json("config.json", {"proxnas": __version__, "command": command} | storable(config))
