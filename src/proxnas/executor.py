"""Many runs at once: tasks go in, run folders come out, whoever does the work.

A task is a command line of proxnas and the folder that it fills, nothing else, so that it can be handed to a process
here or to another machine that sees the same folders. The folder is the whole truth: a task is finished when its
result.json is there and is then never run again; begun ones are continued. `make` gives the executor that the flags
ask for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from filelock import FileLock, Timeout

from proxnas.errors import InputError
from proxnas.interrupt import LIFELINE, Interrupted, Request, stop_requests

RETRIES = 2
"""A worker that dies by a signal (memory, a reboot of its machine) is started again so many times."""
PATIENCE = 60.0
"""Seconds that a folder may stay locked by the worker of an executor that was killed, before it counts as in use."""
LOOK = 0.1
"""Seconds between two looks at the workers."""
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


@dataclass(frozen=True)
class Task:
    """One run: `proxnas` with these words, which take --run, --resume and --threads besides."""

    name: str
    argv: tuple[str, ...]
    folder: Path
    cpus: int = 0
    """Threads of the run; 0: an equal share of the machine."""
    gpus: int = 0
    """Accelerators of the run, for executors that hand them out."""

    @property
    def finished(self) -> bool:
        return (self.folder / "result.json").exists()

    @property
    def log(self) -> Path:
        """What the run prints."""
        return self.folder.parent / "logs" / f"{self.folder.name}.log"


@dataclass(frozen=True)
class Outcome:
    """How a task ended: its exit code, 0 if it is finished, and the line that says what went wrong."""

    task: Task
    code: int
    message: str = ""


class Board(Protocol):
    """Whoever shows how far the tasks are."""

    def look(self, running: Sequence[Task]) -> None:
        """Called again and again while tasks run."""

    def end(self, outcome: Outcome) -> None:
        """A task has ended."""


class Executor(Protocol):
    """Runs tasks, some at a time."""

    def run(self, tasks: Sequence[Task], board: Board, done: Callable[[Outcome], None]) -> list[Outcome]:
        """All outcomes, in the order of the tasks; `done` hears of each as it comes, also of those that were finished
        before. A failed task does not stop the others. Raises Interrupted after SIGINT or SIGTERM, when all workers
        have written their checkpoints."""


def make(workers: int = 1, threads: int = 0, devices: Sequence[str] = ()) -> Executor:
    """The executor that the flags ask for."""
    return LocalExecutor(workers, threads, devices)


class LocalExecutor:
    """A process a task on this machine, `workers` at a time, the cores divided among them."""

    def __init__(self, workers: int = 1, threads: int = 0, devices: Sequence[str] = ()) -> None:
        self.workers = workers
        self.threads = threads or max(1, cores() // workers)
        self.devices = tuple(devices)  # the i-th worker takes the i-th, and so on in turn

    def run(self, tasks: Sequence[Task], board: Board, done: Callable[[Outcome], None]) -> list[Outcome]:
        """See Executor."""
        outcomes: dict[Task, Outcome] = {}

        def end(outcome: Outcome) -> None:
            outcomes[outcome.task] = outcome
            board.end(outcome)
            done(outcome)

        with stop_requests() as request:
            pool = _Pool(self, request, board, end)
            try:
                pool.run([task for task in tasks if not _was_finished(task, end)])
            finally:
                pool.kill()
        return [outcomes[task] for task in tasks]

    def command(self, task: Task, slot: int) -> list[str]:
        """The command line of a worker."""
        device = [f"--device={self.devices[slot % len(self.devices)]}"] if self.devices else []
        place = [f"--run={task.folder}", "--resume", f"--threads={task.cpus or self.threads}"]
        return [sys.executable, "-m", "proxnas", *task.argv, *place, *device]


@dataclass
class _Worker:
    task: Task
    slot: int
    process: subprocess.Popen[bytes]
    log: IO[bytes]


@dataclass
class _Pool:
    """The tasks that wait and the workers that run."""

    executor: LocalExecutor
    request: Request
    board: Board
    end: Callable[[Outcome], None]
    waiting: list[Task] = field(default_factory=list)
    workers: list[_Worker] = field(default_factory=list)
    deaths: dict[Task, int] = field(default_factory=dict)
    begin: float = field(default_factory=time.monotonic)

    def run(self, tasks: list[Task]) -> None:
        self.waiting = tasks
        while (self.waiting or self.workers) and self.request.signum is None:
            self._start()
            self.board.look([worker.task for worker in self.workers])
            time.sleep(LOOK)
            self._collect()
        if self.request.signum is not None:
            self._stop(self.request.signum)

    def _start(self) -> None:
        """Fills the free slots with tasks whose folders nobody holds."""
        free = [slot for slot in range(self.executor.workers) if all(slot != w.slot for w in self.workers)]
        for task in list(self.waiting):
            if not free:
                return
            if time.monotonic() < self.begin + PATIENCE and _locked(task.folder):
                continue  # by a worker whose executor was killed: it is about to write its checkpoint
            self.waiting.remove(task)
            self.workers.append(_launch(self.executor, task, free.pop(0)))

    def _collect(self) -> None:
        for worker in [worker for worker in self.workers if worker.process.poll() is not None]:
            self.workers.remove(worker)
            _close(worker)
            self._judge(worker.task, worker.process.returncode)

    def _judge(self, task: Task, code: int) -> None:
        """A worker that was killed is replaced; one that gave up by itself would do so again."""
        killed = code < 0 or code in STOPPED
        self.deaths[task] = self.deaths.get(task, 0) + killed
        if killed and self.deaths[task] <= RETRIES:
            self.waiting.insert(0, task)
        elif code == 0 and task.finished:
            self.end(Outcome(task, 0))
        else:
            self.end(Outcome(task, code or 1, reason(task, code, self.deaths[task])))

    def _stop(self, signum: int) -> None:
        """Passes the request on and waits for the checkpoints.

        As SIGTERM whatever it was: a process that was started in the background ignores SIGINT until its own handler
        stands.
        """
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.wait()
            _close(worker)
            if worker.task.finished:
                self.end(Outcome(worker.task, 0))
        self.workers = []
        raise Interrupted(signum)

    def kill(self) -> None:
        """Nobody is left behind, whatever happened here."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
            _close(worker)


def _launch(executor: LocalExecutor, task: Task, slot: int) -> _Worker:
    task.log.parent.mkdir(parents=True, exist_ok=True)
    log = task.log.open("ab")
    process = subprocess.Popen(
        executor.command(task, slot),
        stdin=subprocess.PIPE,  # never written to: it closes when we die, however we die
        stdout=log,
        stderr=subprocess.STDOUT,
        env=os.environ | {LIFELINE: "1"},
        process_group=0,  # Ctrl-C is for us to pass on: twice, it would end them without a checkpoint
    )
    return _Worker(task, slot, process, log)


def _close(worker: _Worker) -> None:
    worker.log.close()
    if worker.process.stdin:
        worker.process.stdin.close()


def _was_finished(task: Task, end: Callable[[Outcome], None]) -> bool:
    if task.finished:
        end(Outcome(task, 0))
    return task.finished


def _locked(folder: Path) -> bool:
    """Whether another process has the run folder open."""
    if not (folder / ".lock").exists():
        return False
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def reason(task: Task, code: int, deaths: int = 0) -> str:
    """Why a task failed, in a line: what it said itself, else where to read on."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name} {deaths} times (out of memory?): see {task.log}"
    said = [line for line in _tail(task.log) if line.startswith("proxnas: error: ")]
    return said[-1].removeprefix("proxnas: error: ") if said else f"ended with exit code {code}: see {task.log}"


def _tail(log: Path, size: int = 20_000) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - size))
        return file.read().decode("utf-8", "replace").splitlines()


def check_done(outcomes: Sequence[Outcome]) -> None:
    """An InputError that names the first task that failed, unless all are finished."""
    failed = [outcome for outcome in outcomes if outcome.code]
    if failed:
        first = failed[0]
        raise InputError(f"{len(failed)} of {len(outcomes)} runs failed; {first.task.name}: {first.message}")


def cores() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
