"""The loop of every executor: start workers while there is room, see how they end, replace those
that died.

It knows neither processes nor clusters: a `Crew` starts workers, a `Worker` has one task and ends
with a code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from filelock import FileLock, Timeout

from proxnas.common.interrupt import STOPPING, Interrupted, Request, stop_requests
from proxnas.runs.executors.tasks import Board, Outcome, RunTask, reason

RETRIES = 2
"""A worker that dies by a signal (memory, a reboot of its machine) is started again so many
times."""
LOSSES = 20
"""A task whose machine is lost under it is given to another one so many times: that is no fault of
the task."""
LOOK = 0.1
"""Seconds between two looks at the workers."""
STOPPED = tuple(128 + signum for signum in STOPPING)


class End(NamedTuple):
    """How a worker ended: its exit code, what it said if that is known, and whether its machine was
    lost."""

    code: int
    message: str = ""
    lost: bool = False


class Worker(Protocol):
    """Whoever runs one task."""

    @property
    def task(self) -> RunTask: ...

    @property
    def slot(self) -> int: ...

    def poll(self) -> End | None:
        """How it ended; None: it has not."""

    def stop(self) -> None:
        """Ask it to write its checkpoint and end."""

    def kill(self) -> None:
        """Nobody is left behind, whatever happened; also called after it ended."""


class Crew(Protocol):
    """Whoever starts workers."""

    patience: float
    """Seconds that a folder may stay locked by a worker that nobody waits for any more, before it
    counts as in use."""

    def slots(self) -> int:
        """How many workers may run now."""

    def launch(self, task: RunTask, slot: int) -> Worker:
        """A worker for the task."""


def drive(
    crew: Crew,
    tasks: Iterable[RunTask | None],
    board: Board,
    done: Callable[[Outcome], None],
    grace: float = 0.0,
) -> list[Outcome]:
    """See Executor.run. `grace`: seconds that workers have for their checkpoints when asked to
    stop; 0: any time."""
    with stop_requests() as request:
        pool = _Pool(crew, iter(tasks), request, board, done, grace)
        try:
            pool.run()
        finally:
            pool.kill()
    return [pool.outcomes[task] for task in pool.taken]


@dataclass
class _Pool:
    """The tasks that wait and the workers that run."""

    crew: Crew
    source: Iterator[RunTask | None]
    request: Request
    board: Board
    done: Callable[[Outcome], None]
    grace: float
    taken: list[RunTask] = field(default_factory=list)
    outcomes: dict[RunTask, Outcome] = field(default_factory=dict)
    waiting: list[RunTask] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    deaths: dict[RunTask, int] = field(default_factory=dict)
    losses: dict[RunTask, int] = field(default_factory=dict)
    since: dict[RunTask, float] = field(default_factory=dict)
    """When a task was first due, or last lost its worker."""
    exhausted: bool = False

    def run(self) -> None:
        self._start()
        while self._unfinished() and self.request.signum is None:
            self.board.look([worker.task for worker in self.workers])
            time.sleep(LOOK)
            self._collect()
            self._start()
        if self.request.signum is not None:
            self._stop(self.request.signum)

    def _unfinished(self) -> bool:
        return bool(self.waiting or self.workers or not self.exhausted)

    def end(self, outcome: Outcome) -> None:
        self.outcomes[outcome.task] = outcome
        self.board.end(outcome)
        self.done(outcome)

    def _start(self) -> None:
        """Fills the free slots with tasks whose folders nobody holds."""
        used = {worker.slot for worker in self.workers}
        for slot in range(self.crew.slots()):
            if slot in used:
                continue
            if self.request.signum is not None or (task := self._next()) is None:
                return
            self.workers.append(self.crew.launch(task, slot))

    def _next(self) -> RunTask | None:
        """A task that can be run now: one that waits, else a new one."""
        for task in list(self.waiting):
            if not self._held(task):
                self.waiting.remove(task)
                if not self._was_finished(task):
                    return task
        while not self.exhausted:
            try:
                # may ask a strategy for a cell: only taken when there is room for it
                task_or_none = next(self.source)
            except StopIteration:
                self.exhausted = True
                break
            if task_or_none is None:
                break
            if self._fresh(task_or_none):
                return task_or_none
        return None

    def _fresh(self, task: RunTask) -> bool:
        """Notes a new task; whether it is to be run, and can be now."""
        self.taken.append(task)
        self.since[task] = time.monotonic()
        if self._was_finished(task):
            return False
        if self._held(task):
            self.waiting.append(task)
            return False
        return True

    def _was_finished(self, task: RunTask) -> bool:
        if task.finished:
            self.end(Outcome(task, 0))
        return task.finished

    def _held(self, task: RunTask) -> bool:
        """Whether a worker of before has the folder: it is about to write its checkpoint, or its
        machine is gone and the file system has not noticed yet."""
        return time.monotonic() < self.since[task] + self.crew.patience and is_locked(task.folder)

    def _collect(self) -> None:
        for worker in list(self.workers):
            if (end := worker.poll()) is not None:
                self.workers.remove(worker)
                worker.kill()
                self._judge(worker.task, end)

    def _judge(self, task: RunTask, end: End) -> None:
        """A worker that was killed is replaced; one that gave up by itself would do so again."""
        if end.code == 0 and task.finished:
            self.end(Outcome(task, 0))
        elif self._again(task, end):
            self.since[task] = time.monotonic()
            # first of those that wait: it has a checkpoint to go on from
            self.waiting.insert(0, task)
        else:
            self.end(
                Outcome(
                    task,
                    end.code or 1,
                    end.message or reason(task, end.code, self.deaths.get(task, 0)),
                )
            )

    def _again(self, task: RunTask, end: End) -> bool:
        if end.lost:
            self.losses[task] = self.losses.get(task, 0) + 1
            return self.losses[task] <= LOSSES
        # Popen tells a signal as -N, a shell and our own handlers as 128 + N
        killed = end.code < 0 or end.code in STOPPED
        self.deaths[task] = self.deaths.get(task, 0) + killed
        return killed and self.deaths[task] <= RETRIES

    def _stop(self, signum: int) -> None:
        """Passes the request on and waits for the checkpoints."""
        for worker in self.workers:
            worker.stop()
        limit = time.monotonic() + (self.grace or float("inf"))
        while self.workers and time.monotonic() < limit:
            # a copy: the list changes on the way
            for worker in [worker for worker in self.workers if worker.poll() is not None]:
                self.workers.remove(worker)
                worker.kill()
                if worker.task.finished:
                    self.end(Outcome(worker.task, 0))
            time.sleep(LOOK / 2)
        # those that did not end in time are killed by whoever called
        raise Interrupted(signum)

    def kill(self) -> None:
        for worker in self.workers:
            worker.kill()


def is_locked(folder: Path) -> bool:
    """Whether another process has the run folder open."""
    if (folder / ".lock").is_symlink() or not (folder / ".lock").is_file():  # none, or none of ours
        return False
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False
