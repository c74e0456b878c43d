"""A job in its folder: locked, its options stored, its data checked, shown while it runs; and the
same by several processes. For searches and trainings alike, which say what is built and done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from proxnas.cells.designs import Architecture
from proxnas.common.launch import here
from proxnas.common.options import Options, flatten
from proxnas.runs.folder import Run, open_run, write_atomically
from proxnas.runs.lengthening import check_stored, lengthen, store
from proxnas.runs.loggers import LogFlags, Progress, check_logger, with_loggers
from proxnas.runs.processes import run_together
from proxnas.runs.progress import shown
from proxnas.runs.same_data import OnData, check_data, check_searched

Built = TypeVar("Built", bound=OnData)
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


def run_job(
    options: Options,
    command: str,
    folder: Path,
    title: str,
    build: Callable[[], Built],
    work: Callable[[Built, Run, Progress], dict[str, Any]],
    quiet: bool = False,
) -> dict[str, Any]:
    """A search or a training in its folder, which is locked, with its data checked; a finished one
    is not run again."""
    asked = flatten(options)
    loggers = LogFlags(asked["tensorboard"], asked["loggers"]).names() if here().leads else []
    for name in loggers:
        check_logger(name)
    with open_run(folder, asked["resume"], asked["force"]) as run:
        more = check_stored(options, command, run)
        if run.finished and not more:
            return run.result(NEEDED[command])
        silent = quiet or asked["quiet"] or not here().leads
        with (
            shown(Console(highlight=False), title, silent) as bar,
            with_loggers(bar, folder, loggers) as progress,
        ):
            built = build()
            check_data(run, built.fingerprint)
            if "cell" in asked:
                check_searched(asked["cell"], asked["data"], run, built.fingerprint)
            lengthen(run, more)  # not before: what is refused leaves a finished run as it was
            return work(built, run, progress)


def by_processes(
    options: Options, command: str, folder: Path, number: int, genotype: Architecture | None = None
) -> dict[str, Any]:
    """A run within another, by several processes: they find in its folder what they are to do, and
    leave its result."""
    asked = flatten(options)
    with open_run(folder, asked["resume"], asked["force"]) as run:
        store(options, command, run)
        if genotype and not (run / "genotype.json").exists():
            write_atomically(run / "genotype.json", genotype.to_json())
        finished = run.finished
    if not finished:
        call = [
            f"--run={folder}",
            "--resume",
            f"--device={asked['device']}",
            f"--threads={asked['threads']}",
        ]
        quiet = ["--quiet"] * asked["quiet"]
        run_together([command, *call, *quiet], number, silent=asked["quiet"])
    result: dict[str, Any] = run.read_json("result.json")
    return result
