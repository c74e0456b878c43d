"""How far a run is: a bar with time left, accuracy and changes on a terminal, a line an epoch
elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from proxnas.common.metrics_row import MetricsRow
from proxnas.common.say import plain
from proxnas.report.facts import duration

ByTheClock: TypeAlias = Callable[[], tuple[float, float]]
"""(seconds used, seconds in all) of a run that time ends: how many epochs it will have had is known
when it is over."""


class Silent:
    """Says nothing."""

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        """An epoch starts."""

    def step(self, changes: int) -> None:
        """A step is done."""

    def epoch(self, row: MetricsRow) -> None:
        """An epoch is done."""


class Lines(Silent):
    """A plain line an epoch."""

    def __init__(self, console: Console, title: str, clock: ByTheClock | None = None) -> None:
        self.console, self.title, self.clock, self.epochs = console, title, clock, 0
        self.taken: list[float] = []  # seconds of each epoch of this call

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self.epochs = epochs

    def epoch(self, row: MetricsRow) -> None:
        self.taken.append(sum(row["seconds"].values()))
        epochs, left = self._still(row["epoch"])
        line = (
            f"{self.title} epoch {row['epoch']}/{epochs} {epoch_line(row)} seconds"
            f" {self.taken[-1]:.1f}"
        )
        if left > 0:
            line += f" left {duration(left)}"
        self.console.print(plain(line), soft_wrap=True, markup=False)

    def _still(self, done: int) -> tuple[int, float]:
        """How many epochs there will have been, and the seconds until then."""
        if self.clock is not None:
            used, given = self.clock()
            return scaled(done, used, given), given - used
        # of this call alone: earlier ones may have run on another machine
        return self.epochs, (self.epochs - done) * sum(self.taken) / len(self.taken)


class LiveBar:
    """A bar over all steps."""

    def __init__(self, bar: Bar, title: str, clock: ByTheClock | None = None) -> None:
        self.bar, self.clock, self.changes, self.last = bar, clock, 0, ""
        self.task = bar.add_task(escape(plain(title)), total=None, detail="")

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self.changes = 0
        self.bar.update(self.task, total=epochs * steps, completed=(epoch - 1) * steps)

    def step(self, changes: int) -> None:
        self.changes += changes
        self.bar.update(self.task, advance=1)
        if self.clock is not None:
            steps = int(self.bar.tasks[self.bar.task_ids.index(self.task)].completed)
            self.bar.update(self.task, total=scaled(steps, *self.clock()))
        self._show()

    def epoch(self, row: MetricsRow) -> None:
        self.last = epoch_line(
            {name: value for name, value in row.items() if name.startswith("valid_")}
        )
        self._show()

    def _show(self) -> None:
        changes = f" changes {self.changes}" if self.changes else ""
        self.bar.update(self.task, detail=escape(plain(self.last + changes)))


def scaled(done: int, used: float, given: float) -> int:
    """How many there will be in the given time, if so many were done in what is used of it."""
    return max(done, round(done * given / max(used, 1e-6)))


FIGURES = {
    "train_accuracy": "train {:.3f}",
    "train_perplexity": "train perplexity {:.2f}",
    "valid_accuracy": "valid {:.3f}",
    "valid_perplexity": "valid perplexity {:.2f}",
    "changes": "changes {}",
    "params": "params {:,}",
}


def epoch_line(row: Mapping[str, object]) -> str:
    """The figures of an epoch in one line; those of a user's own metric, or the loss, where none of
    ours are."""
    own = [name for name in row if name.startswith(("train_", "valid_")) and name not in FIGURES]
    own = [name for name in own if not name.endswith("_loss")] or own
    usual = any(name in FIGURES for name in row if name.startswith("valid_"))
    words = [] if usual else [f"{name.replace('_', ' ', 1)} {row[name]:.4g}" for name in own]
    return " ".join(
        [*words, *(text.format(row[name]) for name, text in FIGURES.items() if name in row)]
    )


@contextmanager
def shown(
    console: Console, title: str, quiet: bool, clock: ByTheClock | None = None
) -> Iterator[Silent | LiveBar]:
    """The progress that suits where the output goes. `clock`: of a run that time ends, whose epochs
    are but an estimate."""
    if quiet:
        yield Silent()
    elif not console.is_terminal:
        yield Lines(console, title, clock)
    else:
        with bar_with(console, TimeRemainingColumn()) as bar:
            yield LiveBar(bar, title, clock)


def bar_with(console: Console, *more: ProgressColumn) -> Bar:
    """Bars that tell how far things are, with a detail behind each."""
    usual = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    detail = TextColumn("{task.fields[detail]}")
    return Bar(*usual, TimeElapsedColumn(), *more, detail, console=console)
