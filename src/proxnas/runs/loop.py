"""The loop of everything that runs in epochs: step, log, checkpoint, and stop when asked.

After each epoch: a line of metrics.jsonl, the job's own files, then the checkpoint, which decides
whether it counts. A loss or gradient that is not finite sends the job back to its last checkpoint,
at a lower learning rate.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from proxnas.common.environment import describe
from proxnas.common.errors import AboutOptions, escape
from proxnas.common.interrupt import Interrupted, Request, stop_requests
from proxnas.common.launch import here
from proxnas.common.metrics_row import MetricsRow
from proxnas.common.say import note
from proxnas.common.types import State
from proxnas.report.reading import read_object
from proxnas.runs.consensus import agree_to_stop, ask_to_stop, check_alike
from proxnas.runs.deadline import Deadline
from proxnas.runs.divergence import MOST, Diverged
from proxnas.runs.folder import Run
from proxnas.runs.job import Hurried, Job, Totals
from proxnas.runs.loggers import Progress
from proxnas.runs.messages import share, shared_state
from proxnas.runs.metrics import Row
from proxnas.runs.threads import Auto, Fixed, Look, threads_for


def run_epochs(
    job: Job, run: Run | None, progress: Progress, deadline: Deadline | None = None
) -> list[MetricsRow]:
    """Runs a job to its end, from where its folder stands; returns the rows of all its epochs.

    Those of a folder without matrices, which it keeps. Without a folder nothing is kept: a signal
    then ends the job as it would end any program. When the deadline is over the epoch under way
    ends with the step (a run has one at least).
    """
    deadline = deadline or Deadline()
    kept = InMemory() if run is None else run
    _begin(job, kept)
    threads = _threads(job, run)
    rows = _rows(job, kept)
    deadline.take_up(rows)
    with nullcontext(Request()) if run is None else stop_requests() as request:
        while not job.done() and not (rows and deadline.over()):
            try:
                row = _epoch(job, kept, progress, request, deadline, threads)
                rows.append(_light(row, kept))
                deadline.note(row)
            except Diverged as fault:
                _go_back(job, kept, fault)
                rows = _rows(job, kept)
    deadline.cut = deadline.cut or not job.done()
    return rows


def _begin(job: Job, kept: Run | InMemory) -> None:
    """From the checkpoint of the folder; a new job writes its first one before its first step."""
    state = _load_state(kept)
    if state is None:
        state = _state(job)
        kept.save_checkpoint(state)  # to go back to
        state = None if here().alone else shared_state(state)  # all begin with the same weights
    if state is not None:
        _restore(job, kept, state)


class InMemory:
    """Stands in for a run folder where none is wanted: the rows, and a state to go back to."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.rows: list[MetricsRow] = []

    def save_checkpoint(self, state: State) -> None:
        self.state = copy.deepcopy(state)

    def load_checkpoint(self) -> State | None:
        # optimizers go on with the very tensors that they are given
        return copy.deepcopy(self.state)

    def append_metrics(self, row: MetricsRow) -> None:
        self.rows.append(row)

    def cut_metrics(self, epochs: int) -> list[MetricsRow]:
        del self.rows[epochs:]
        return self.rows


def _load_state(kept: Run | InMemory) -> State | None:
    """The checkpoint of the folder, which one process reads for all."""
    return shared_state(kept.load_checkpoint() if here().leads else None)


def _rows(job: Job, kept: Run | InMemory) -> list[MetricsRow]:
    rows = [_light(row, kept) for row in kept.cut_metrics(job.epochs_done)] if here().leads else []
    if here().alone:
        return rows
    # process 0 has read them for all
    shared: list[MetricsRow] = json.loads(share(json.dumps(rows).encode()) or b"[]")
    return shared


def _light(row: MetricsRow, kept: Run | InMemory) -> MetricsRow:
    """A row without what its file has kept: memory must not grow with the epochs."""
    if isinstance(kept, InMemory):
        return row
    light = row.copy()
    for name, value in row.items():
        if isinstance(value, dict | list) and name != "seconds":
            del light[name]  # type: ignore[misc]
    return light


def _state(job: Job) -> State:
    return job.state_dict() | {"rollbacks": job.guard.rollbacks}


def _restore(job: Job, kept: Run | InMemory, state: State) -> None:
    try:
        job.load_state_dict(state)
        job.guard.go_back(int(state["rollbacks"]))
        range(job.epochs_done)  # an error unless it is a whole number
    except Exception as error:
        # a sound file that another program or version has written raises nearly every kind
        fault = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        where = f"{kept.folder}: " if isinstance(kept, Run) else ""
        raise AboutOptions(
            f"{escape(where)}the checkpoint is of another run ({escape(fault)}): use {{force}} to"
            " start anew"
        ) from error


def _threads(job: Job, run: Run | None) -> Auto | Fixed:
    """Those of the steps to come; environment.json says which, and what led to it."""
    if run is None:
        return threads_for(job.config.threads, job.device)

    def keep(looks: list[Look]) -> None:
        run.write_json(
            "environment.json", describe(job.device) | ({"looks": looks} if looks else {})
        )

    before = read_object(run / "environment.json").get("looks")
    threads = threads_for(job.config.threads, job.device, keep, before)
    keep(threads.looks)
    return threads


def _epoch(
    job: Job,
    kept: Run | InMemory,
    progress: Progress,
    request: Request,
    deadline: Deadline,
    threads: Auto | Fixed,
) -> MetricsRow:
    """The rest of an epoch; its row of metrics is written before its checkpoint, which decides
    whether it counts.

    One that the deadline cuts short is judged like any other, but the checkpoint stays that of its
    last step: a run that is given more time goes on from there as if it had never been judged.
    """
    progress.begin(job.epochs_done + 1, job.config.epochs, len(job))
    start = time.perf_counter()
    _take_steps(job, kept, progress, request, deadline, threads)
    cut = job.totals.steps < len(job)
    if cut:
        deadline.cut = True
        kept.save_checkpoint(_state(job))
        if isinstance(job, Hurried):
            job.choose_now()
    judged = _judge(job, kept, start, request)
    row = replace(judged, rollbacks=job.guard.rollbacks).to_json()
    _end_epoch(job, kept, row, cut)
    progress.epoch(row)
    return row


def _take_steps(
    job: Job,
    kept: Run | InMemory,
    progress: Progress,
    request: Request,
    deadline: Deadline,
    threads: Auto | Fixed,
) -> None:
    """The steps that the epoch has left, or as many as there is time for; Interrupted, after a
    checkpoint, if somebody asks to stop."""
    saved = time.perf_counter()
    while job.totals.steps < len(job):
        with threads.step(job.epochs_done + 1, job.totals.steps + 1):
            metrics = job.step()
            job.guard.check()
            job.totals.add(metrics)
        progress.step(metrics.changes)
        late = time.perf_counter() - saved > 60 * job.config.checkpoint_minutes
        signum, late = agree_to_stop(request.signum, late)
        if signum is not None or late:
            # verdicts may still be on the device: an unsound state must not replace a sound one
            job.guard.settle()
            kept.save_checkpoint(_state(job))
            saved = time.perf_counter()
        # all processes have agreed, so that none waits for one that left
        if signum is not None:
            raise Interrupted(signum)
        if deadline.over():
            break
    job.guard.settle()


def _end_epoch(job: Job, kept: Run | InMemory, row: MetricsRow, cut: bool) -> None:
    """The row, the job's files, and the checkpoint unless the epoch was cut short."""
    job.epochs_done += 1
    job.totals = Totals(job.device)
    state = _state(job)
    check_alike(state)
    # the line before the checkpoint: killed in between, the line is cut back when the run goes on
    kept.append_metrics(row)
    if isinstance(kept, Run):
        job.write(kept)
    if not cut:
        kept.save_checkpoint(state)


def _judge(job: Job, kept: Run | InMemory, start: float, request: Request) -> Row:
    """The row of an epoch. Evaluating can take minutes: whoever asks to stop meanwhile need not
    wait for it.

    Several processes evaluate together, so that none can leave: they ask each other before, and
    stop after.
    """
    state = _state(job)
    try:
        with request.at_once() if here().alone else _asked_before(request):
            return job.row(start)
    except Interrupted as stop:
        kept.save_checkpoint(state)  # all steps are done; the epoch is judged when the run goes on
        raise Interrupted(stop.signum) from None


@contextmanager
def _asked_before(request: Request) -> Iterator[None]:
    if (signum := ask_to_stop(request.signum)) is not None:
        raise Interrupted(signum, saved=False)
    yield


def _go_back(job: Job, kept: Run | InMemory, fault: Diverged) -> None:
    """To the last checkpoint at a lower learning rate; after `MOST` times an InputError."""
    where = f"{fault.what} is not finite in epoch {job.epochs_done + 1}"
    times = job.guard.rollbacks + 1
    rate = job.config.learning_rate
    if times > MOST:
        raise AboutOptions(
            f"{where}: lower {{learning_rate}} (now {rate}): also at {rate * job.guard.factor:g},"
            f" after {MOST} returns to the last checkpoint, it does not stay finite; that"
            " checkpoint is kept"
        ) from fault
    state = _load_state(kept)
    assert state is not None, "one is written before the first step"
    job.load_state_dict(state)
    job.guard.go_back(times)
    kept.save_checkpoint(_state(job))  # a run that is stopped now must not start at the old rate
    if not here().leads:
        return
    note(
        f"{where}: back to the last checkpoint (step {job.totals.steps} of epoch"
        f" {job.epochs_done + 1}), learning rate times {job.guard.factor:g} from now on ({times} of"
        f" {MOST})"
    )
