"""Many runs at once: tasks go in, run folders come out, whoever does the work.

A task is a command line of proxnas and the folder that it fills, nothing else, so that it can be
handed to a process here or to another machine that sees the same folders. The folder is the whole
truth: a task is finished when its result.json is there and is then never run again; begun ones are
continued. choice.py makes the executor that the flags ask for: processes on this machine
(processes.py) or tasks of a Ray cluster (ray.py).
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from proxnas.common.errors import InputError
from proxnas.common.stored import open_regular
from proxnas.runs.deadline import Deadline


@dataclass(frozen=True)
class RunTask:
    """One run: `proxnas` with these words, which take --run, --resume and --threads besides."""

    name: str
    argv: tuple[str, ...]
    folder: Path

    @property
    def finished(self) -> bool:
        return (self.folder / "result.json").exists()

    @property
    def log(self) -> Path:
        """What the run prints."""
        return self.folder.parent / "logs" / f"{self.folder.name}.log"


@dataclass(frozen=True)
class Outcome:
    """How a task ended: its exit code, 0 if it is finished, and the line that says what went
    wrong."""

    task: RunTask
    code: int
    message: str = ""


class Board(Protocol):
    """Whoever shows how far the tasks are."""

    def look(self, running: Sequence[RunTask]) -> None:
        """Called again and again while tasks run."""

    def end(self, outcome: Outcome) -> None:
        """A task has ended."""


class Executor(Protocol):
    """Runs tasks, some at a time."""

    def run(
        self, tasks: Iterable[RunTask | None], board: Board, done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """All outcomes, in the order of the tasks; `done` hears of each as it comes, also of those
        that were finished before. A failed task does not stop the others. Raises Interrupted after
        a request to stop, when all workers have written their checkpoints.

        The next task is taken when there is room for it, so that it may depend on what `done`
        heard; None: there is none before another has ended."""


def share_time(
    tasks: Sequence[RunTask], deadline: Deadline, workers: int, later: int = 0
) -> Iterator[RunTask]:
    """The tasks with --minutes: each gets an equal share of the time that is left when it begins,
    `workers` at a time; `later`: how many tasks are to follow these. None is begun when the time is
    over."""
    for i, task in enumerate(tasks):
        if deadline.over():
            return
        if deadline.left() == math.inf:
            yield task
            continue
        # rounds that are still to come, rounded up: tasks side by side share one
        in_turn = -(-(len(tasks) - i) // workers) + -(-later // workers)
        minutes = max(deadline.left() / 60 / in_turn, 1e-4)
        yield replace(task, argv=(*task.argv, f"--minutes={minutes:.4f}"))


def reason(task: RunTask, code: int, deaths: int = 0) -> str:
    """Why a task failed, in a line: what it said itself, else where to read on."""
    if code < 0:
        return (
            f"killed by {signal.Signals(-code).name} {deaths} times (out of memory?): see"
            f" {task.log}"
        )
    said = [line for line in _tail(task.log) if line.startswith("proxnas: error: ")]
    if said:
        return said[-1].removeprefix("proxnas: error: ")
    return f"ended with exit code {code}: see {task.log}"


def _tail(log: Path, size: int = 20_000) -> list[str]:
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def check_done(outcomes: Sequence[Outcome], what: str = "runs") -> None:
    """An InputError that names the first task that failed, unless all are finished."""
    failed = [outcome for outcome in outcomes if outcome.code]
    if failed:
        first = failed[0]
        raise InputError(
            f"{len(failed)} of {len(outcomes)} {what} failed; {first.task.name}: {first.message}"
        )
