"""When a job has to be done, by the clock. No torch here: `--help` must be quick."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from proxnas.common.launch import here
from proxnas.common.metrics_row import MetricsRow

MINUTES = "minutes"
"""`stopped` in a result.json: the deadline came before the last epoch."""


class Deadline:
    """So many seconds from now on, less those that earlier calls of the same run took.

    Seconds are counted from when this was made, so that reading data and trying things out count
    too. A job stops after a step, early enough for the evaluation that follows; once over it stays
    over.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds, self.begun = seconds, time.monotonic()
        self.evaluation = 0.0
        """What the next evaluation will take, as far as is known."""
        self.passed = False
        self.cut = False
        """Whether a job was stopped by it, before its last step."""

    def left(self) -> float:
        """Seconds until it is over; negative after that."""
        return self.seconds - (time.monotonic() - self.begun)

    def take_up(self, rows: Sequence[MetricsRow]) -> None:
        """Counts the epochs that earlier calls have done."""
        for row in rows:
            self.seconds -= sum(row["seconds"].values())
            self.note(row)

    def note(self, row: MetricsRow) -> None:
        """An epoch was done: its evaluation will take as long again."""
        self.evaluation = row["seconds"].get("evaluate", 0.0)

    def over(self) -> bool:
        """Whether it is time to stop."""
        self.passed = self.passed or self.left() <= self.evaluation
        return self.passed


def deadline_of(minutes: float) -> Deadline:
    """That of --minutes; 0: none, and none for several processes, whose clocks would not agree on a
    step."""
    return Deadline(60 * minutes if minutes and here().alone else math.inf)
