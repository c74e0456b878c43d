"""What the loop runs: a job that can stop after any step, and the sums over its steps."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch

from proxnas.common.cores import Asked
from proxnas.common.launch import here
from proxnas.common.types import State
from proxnas.runs.divergence import Diverged, Guard
from proxnas.runs.folder import Run
from proxnas.runs.messages import gather, total
from proxnas.runs.metrics import Metrics, Row

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Totals:
    """Sums over the steps of an epoch; loss and answers stay on the device until its end."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)  # loss times examples, the figure
        self.count = self.changes = self.steps = 0

    def add(self, metrics: Metrics) -> None:
        # no .item(): a host that reads would wait for the device in every step
        self.sums += torch.stack(
            [metrics.loss * metrics.examples, metrics.figure.to(self.sums.dtype)]
        )
        self.count += metrics.examples
        self.changes += metrics.changes
        self.steps += 1

    def means(self) -> tuple[float, float]:
        """(loss, figure) of all processes, read by the host here and only here."""
        loss, right = (total(self.sums) / self._counted()).tolist()
        return loss, right

    def _counted(self) -> int:
        return int(total(torch.tensor(self.count)))

    def state_dict(self) -> State:
        """Of all processes: the sums of each, a row each if there are several, and what they have
        counted together."""
        return vars(self) | {"sums": gather(self.sums), "count": self._counted()}

    def load_state_dict(self, state: State) -> None:
        """Each process takes its own sums up again; if there are others than then, the first has
        them all."""
        # (processes of then, 2)
        rows = state["sums"].view(-1, 2)
        first = rows.sum(0) if here().leads else torch.zeros(2)
        mine = rows[here().rank] if len(rows) == here().size else first
        count = state["count"] if here().leads else 0
        vars(self).update(state | {"sums": mine.to(self.sums.device, copy=True), "count": count})


class Limits(Protocol):
    """What a job's configuration says about its length."""

    @property
    def epochs(self) -> int: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def checkpoint_minutes(self) -> float: ...

    @property
    def threads(self) -> Asked: ...


class Job(Protocol):
    """A search or a training: it can stop after any step and go on as if it had not."""

    totals: Totals
    epochs_done: int
    guard: Guard
    """Shared with whatever moves the weights."""

    @property
    def config(self) -> Limits: ...

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int:
        """Steps of an epoch."""

    def done(self) -> bool: ...

    def step(self) -> Metrics: ...

    def row(self, start: float) -> Row:
        """The metrics of an epoch whose steps are done; `start` is when they (or the rest of them)
        began."""

    def write(self, run: Run) -> None:
        """Files that stand beside the checkpoint."""

    def state_dict(self) -> State:
        """What it refers to may change with the next step, but not while `row` is made."""

    def load_state_dict(self, state: State) -> None: ...


@runtime_checkable
class Hurried(Protocol):
    """A job that would choose something in its last step, and may have to choose before."""

    def choose_now(self) -> None: ...


def check_finite(loss: float) -> None:
    """Diverged unless the loss of an epoch, or of its evaluation, is finite."""
    if not math.isfinite(loss):
        raise Diverged("the loss")
