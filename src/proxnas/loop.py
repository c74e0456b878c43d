"""The loop of everything that runs in epochs: step, log, checkpoint, and stop when asked.

After each epoch: a line of metrics.jsonl, the job's own files, then the checkpoint, which decides whether it counts.
"""

from __future__ import annotations

import math
import time
from typing import Any, Protocol

import torch

from proxnas.environment import describe
from proxnas.errors import InputError
from proxnas.interrupt import Interrupted, Request, stop_requests
from proxnas.methods.base import Metrics
from proxnas.run import Run
from proxnas.types import State

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Progress(Protocol):
    """Whoever shows how far the job is."""

    def begin(self, epoch: int, epochs: int, steps: int) -> None: ...

    def step(self, changes: int) -> None: ...

    def epoch(self, row: dict[str, Any]) -> None: ...


class Totals:
    """Sums over the steps of an epoch; loss and answers stay on the device until its end."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)  # loss times images, right answers
        self.count = self.changes = self.steps = 0

    def add(self, metrics: Metrics) -> None:
        self.sums += torch.stack([metrics.loss * metrics.images, metrics.correct.to(self.sums.dtype)])
        self.count += metrics.images
        self.changes += metrics.changes
        self.steps += 1

    def means(self) -> tuple[float, float]:
        """(loss, accuracy), read by the host here and only here."""
        loss, right = (self.sums / self.count).tolist()
        return loss, right

    def state_dict(self) -> State:
        return vars(self).copy()

    def load_state_dict(self, state: State) -> None:
        vars(self).update(state | {"sums": state["sums"].to(self.sums.device)})


class Limits(Protocol):
    """What a job's configuration says about its length."""

    @property
    def epochs(self) -> int: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def checkpoint_minutes(self) -> float: ...


class Job(Protocol):
    """A search or a training: it can stop after any step and go on as if it had not."""

    totals: Totals
    epochs_done: int

    @property
    def config(self) -> Limits: ...

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int:
        """Steps of an epoch."""

    def done(self) -> bool: ...

    def step(self) -> Metrics: ...

    def row(self, start: float) -> dict[str, Any]:
        """The metrics of an epoch whose steps are done; `start` is when they (or the rest of them) began."""

    def write(self, run: Run) -> None:
        """Files that stand beside the checkpoint."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


def run_epochs(job: Job, run: Run | None, progress: Progress) -> list[dict[str, Any]]:
    """Runs a job to its end, from where its folder stands; returns the rows of all its epochs.

    Without a folder nothing is kept: a signal then ends it as it would end any program.
    """
    if run is None:
        rows = []
        while not job.done():
            rows.append(_epoch(job, None, progress, Request()))
        return rows
    state = run.load_checkpoint()
    if state is not None:
        job.load_state_dict(state)
    rows = run.cut_metrics(job.epochs_done)
    run.write_json("environment.json", describe(job.device))
    with stop_requests() as request:
        while not job.done():
            rows.append(_epoch(job, run, progress, request))
    return rows


def _epoch(job: Job, run: Run | None, progress: Progress, request: Request) -> dict[str, Any]:
    """The rest of an epoch; its row of metrics is written before its checkpoint, which decides whether it counts."""
    progress.begin(job.epochs_done + 1, job.config.epochs, len(job))
    start = saved = time.perf_counter()
    while job.totals.steps < len(job):
        metrics = job.step()
        job.totals.add(metrics)
        progress.step(metrics.changes)
        late = time.perf_counter() - saved > 60 * job.config.checkpoint_minutes
        if run is not None and (request.signum is not None or late):
            check_finite(job, job.totals.means()[0])
            run.save_checkpoint(job.state_dict())
            saved = time.perf_counter()
        if request.signum is not None:
            raise Interrupted(request.signum)
    row = job.row(start)
    job.epochs_done += 1
    job.totals = Totals(job.device)
    if run is not None:
        run.append_metrics(row)
        job.write(run)
        run.save_checkpoint(job.state_dict())
    progress.epoch(row)
    return row


def check_finite(job: Job, loss: float) -> None:
    """An InputError if the job has diverged: asked before a sound checkpoint would be replaced."""
    if not math.isfinite(loss):
        raise InputError(
            f"the loss is not finite in epoch {job.epochs_done + 1}: lower --learning-rate "
            f"(now {job.config.learning_rate}); the checkpoint before it is kept"
        )
