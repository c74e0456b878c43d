"""Runs as a whole: a configuration and a folder go in, a result comes out. For commands, which may
chain several."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from proxnas import __version__
from proxnas.cells.table import check
from proxnas.common.launch import here
from proxnas.methods import SAMPLING
from proxnas.runs.options import JobConfig, RunConfig
from proxnas.runs.processes import run_together, to_start
from proxnas.searching.options import SearchConfig
from proxnas.searching.settings import check_same, storable
from proxnas.training.options import TrainOptions
from proxnas.workflows.lengthening import as_long_as, lengthen
from proxnas.workflows.train_settings import stored

if TYPE_CHECKING:
    from proxnas.cells.designs import Architecture
    from proxnas.domains.domain import Data
    from proxnas.runs.deadline import Deadline
    from proxnas.runs.folder import Run
    from proxnas.runs.loop import Progress
    from proxnas.runs.same_data import OnData
    from proxnas.searching.job import Search

Built = TypeVar("Built", bound="OnData")
AnyConfig = SearchConfig | TrainOptions


def build_search(config: SearchConfig, data: Data | None = None) -> Search:
    """The search that is described, after all input was found good; `data`: what DATA names, if it
    was read before."""
    from proxnas.domains import load_for_search
    from proxnas.searching.job import Search

    if config.table:
        check(Path(config.table))
    return Search(
        dataclasses.replace(config, seed=config.all_seeds()[0]),
        data or load_for_search(config.space, config.data, config),
    )


def fitted_to_minutes(config: SearchConfig, deadline: Deadline) -> SearchConfig:
    """With as many epochs as there is time for, by a measurement of a few steps, so that whatever
    follows a schedule over all epochs, or chooses at the end, comes to its end. The deadline is for
    the case that it took longer."""
    from proxnas.workflows.bench import WARM
    from proxnas.workflows.plan import measure

    probe = build_search(dataclasses.replace(config, **WARM.get(config.method, {})))
    seconds, _ = measure(probe, probe.figures)
    in_turn = -(-len(config.all_seeds()) // config.workers)
    epochs = fitting(deadline.left() / in_turn, seconds, config.epochs)
    return dataclasses.replace(
        config, epochs=epochs, refine=max(0, config.refine)
    )  # by itself it would take longer


def fitting(seconds: float, per_epoch: float, most: int) -> int:
    """How many epochs fit, at least one and at most so many."""
    return max(1, min(most, int(seconds / per_epoch)))


def run_search(
    config: SearchConfig,
    folder: Path,
    built: Search | None = None,
    deadline: Deadline | None = None,
) -> dict[str, Any]:
    """One search in its folder; a finished one is not run again. It ends, refined or not, when the
    deadline is over."""
    from proxnas.searching.job import found, search

    if number := to_start(config.processes):
        return by_processes(config, "search", folder, number)
    title = f"{config.method} {config.space} seed {config.seed}"
    build = partial(_searched, config, folder, built)
    if by_workers(config, folder):
        from proxnas.searching.evaluations import run_evaluations

        work = partial(search, deadline=deadline, loop=run_evaluations)
        return run_job(config, "search", folder, title, build, work, quiet=True)
    if config.refine:
        from proxnas.searching.refine import refine

        first = run_job(config, "search", folder, title, build, partial(found, deadline=deadline))
        return refine(config, folder, first, deadline)
    return run_job(config, "search", folder, title, build, partial(search, deadline=deadline))


def _searched(config: SearchConfig, folder: Path, built: Search | None) -> Search:
    if built:
        return built
    begun = config.resume and (folder / "checkpoint.pt").exists()
    # what it began with is in the checkpoint; the file of --start may be gone
    return build_search(dataclasses.replace(config, start="") if begun else config)


def by_workers(config: SearchConfig, folder: Path) -> bool:
    """Whether cells are evaluated by workers: as asked for, or as the search in the folder was
    begun."""
    from proxnas.runs.folder import CELL, EVALUATIONS

    begun = not config.force and any((folder / EVALUATIONS).glob(f"*/{CELL}"))
    return config.method in SAMPLING and config.evaluate == "train" and (config.at_once or begun)


def by_processes(
    config: AnyConfig, command: str, folder: Path, number: int, genotype: Architecture | None = None
) -> dict[str, Any]:
    """A run within another, by several processes: they find in its folder what they are to do, and
    leave its result."""
    from proxnas.runs.folder import open_run, write_atomically

    with open_run(folder, config.resume, config.force) as run:
        store(config, command, run)
        if genotype and not (run / "genotype.json").exists():
            write_atomically(run / "genotype.json", genotype.to_json())
        finished = run.finished
    if not finished:
        call = [
            f"--run={folder}",
            "--resume",
            f"--device={config.device}",
            f"--threads={config.threads}",
        ]
        run_together([command, *call, *["--quiet"] * config.quiet], number, silent=config.quiet)
    result: dict[str, Any] = run.read_json("result.json")
    return result


def run_job(
    config: AnyConfig,
    command: str,
    folder: Path,
    title: str,
    build: Callable[[], Built],
    work: Callable[[Built, Run, Progress], dict[str, Any]],
    quiet: bool = False,
) -> dict[str, Any]:
    """A search or a training in its folder, which is locked, with its data checked; a finished one
    is not run again."""
    from proxnas.runs.folder import open_run
    from proxnas.runs.progress import shown
    from proxnas.runs.same_data import check_data, check_searched
    from proxnas.runs.tensorboard import check_tensorboard, with_board

    if config.tensorboard:
        check_tensorboard()
    with open_run(folder, config.resume, config.force) as run:
        store(config, command, run)
        if run.finished:
            return run.result(NEEDED[command])
        with (
            shown(
                Console(highlight=False), title, quiet or config.quiet or not here().leads
            ) as bar,
            with_board(bar, folder, config.tensorboard and here().leads) as progress,
        ):
            built = build()
            check_data(run, built.fingerprint)
            if isinstance(config, TrainOptions):
                check_searched(config.cell, config.data, run, built.fingerprint)
            return work(built, run, progress)


NEEDED = {
    "search": (
        "method",
        "space",
        "data",
        "seed",
        "genotype",
        "params",
        "flops",
        "epochs",
        "seconds",
        "converged",
    ),
    "train": ("data", "seed", "params", "flops", "epochs", "seconds"),
}
"""What whoever goes on with a finished run takes from its result.json."""


def store(config: RunConfig, command: str, run: Run) -> None:
    """Writes config.json, or finds that the one which is there says the same."""
    if (run / "config.json").exists():
        known = stored(run.folder, command, type(config))
        check_same(config, as_long_as(config, known, run.folder), run.folder)
        if isinstance(config, JobConfig):
            lengthen(config, known, run)
    else:
        run.write_json(
            "config.json", {"proxnas": __version__, "command": command} | storable(config)
        )
