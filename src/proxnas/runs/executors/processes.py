"""Tasks as processes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from proxnas.common.cores import Asked, available
from proxnas.common.files import Unwritable, make_folder, open_to_append
from proxnas.common.interrupt import LIFELINE
from proxnas.runs.executors.pool import End, drive
from proxnas.runs.executors.tasks import Board, Outcome, RunTask


class LocalExecutor:
    """A process a task, `workers` at a time, the cores divided among them."""

    patience = 60.0

    def __init__(
        self, workers: int = 1, threads: Asked = "auto", devices: Sequence[str] = ()
    ) -> None:
        self.workers, self.threads = workers, threads
        # of the cores, of which `auto` takes as many as help
        self.share = max(1, available() // workers)
        self.devices = tuple(devices)  # the i-th worker takes the i-th, and so on in turn

    def run(
        self, tasks: Iterable[RunTask | None], board: Board, done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """See Executor."""
        return drive(self, tasks, board, done)

    def slots(self) -> int:
        return self.workers

    def launch(self, task: RunTask, slot: int) -> ProcessWorker:
        # `auto` of the worker looks no further than this (cores.available)
        within = {"OMP_NUM_THREADS": str(self.share)} if self.threads == "auto" else {}
        return ProcessWorker(task, slot, start_process(self.command(task, slot), task.log, within))

    def command(self, task: RunTask, slot: int) -> list[str]:
        """The command line of a worker."""
        device = [f"--device={self.devices[slot % len(self.devices)]}"] if self.devices else []
        return [sys.executable, *words(task, task.folder, self.threads), *device]


@dataclass(frozen=True)
class ProcessWorker:
    """A process of ours."""

    task: RunTask
    slot: int
    process: subprocess.Popen[bytes]

    def poll(self) -> End | None:
        code = self.process.poll()
        return None if code is None else End(code)

    def stop(self) -> None:
        """As SIGTERM whatever it was: a process that was started in the background ignores SIGINT
        until its own handler stands."""
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


def words(task: RunTask, folder: Path, threads: Asked) -> list[str]:
    """What Python is told to run the task."""
    return ["-m", "proxnas", *task.argv, f"--run={folder}", "--resume", f"--threads={threads}"]


def start_process(
    command: Sequence[str], log: Path, within: Mapping[str, str] = {}
) -> subprocess.Popen[bytes]:
    """A process that ends, with its checkpoint, when this one does; what it prints goes to the log.
    `within`: what its environment has besides."""
    make_folder(log.parent)
    with _log(log) as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # never written to: it closes when we die, however we die
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | within | {LIFELINE: "1"},
            # Ctrl-C is for us to pass on: twice, it would end them without a checkpoint
            process_group=0,
        )


def _log(path: Path) -> IO[bytes]:
    try:
        return open_to_append(path)
    except OSError as error:
        raise Unwritable(path, error) from error
