"""How far a search is: a bar with time left, accuracy and changes on a terminal, a line an epoch elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Silent:
    """Says nothing."""

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        """An epoch starts."""

    def step(self, changes: int) -> None:
        """A step is done."""

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""


class Lines(Silent):
    """A plain line an epoch."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title, self.epochs = console, title, 0

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self.epochs = epochs

    def epoch(self, row: dict[str, Any]) -> None:
        seconds = sum(row["seconds"].values())
        line = f"{self.title} epoch {row['epoch']}/{self.epochs} {summary(row)} seconds {seconds:.1f}"
        self.console.print(line, soft_wrap=True)


class LiveBar:
    """A bar over all steps."""

    def __init__(self, bar: Bar, title: str) -> None:
        self.bar, self.changes, self.last = bar, 0, ""
        self.task = bar.add_task(title, total=None, detail="")

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self.changes = 0
        self.bar.update(self.task, total=epochs * steps, completed=(epoch - 1) * steps)

    def step(self, changes: int) -> None:
        self.changes += changes
        self.bar.update(self.task, advance=1, detail=f"{self.last} changes {self.changes}")

    def epoch(self, row: dict[str, Any]) -> None:
        self.last = f"valid {quality(row, 'valid')}"
        self.bar.update(self.task, detail=f"{self.last} changes {self.changes}")


def summary(row: dict[str, Any]) -> str:
    """The figures of an epoch in one line."""
    return (
        f"train {quality(row, 'train')} valid {quality(row, 'valid')} changes {row['changes']} params {row['params']:,}"
    )


def quality(row: dict[str, Any], part: str) -> str:
    """The accuracy of a part, or for text its perplexity."""
    accuracy = row.get(f"{part}_accuracy")
    return f"perplexity {row[f'{part}_perplexity']:.2f}" if accuracy is None else f"{accuracy:.3f}"


@contextmanager
def shown(console: Console, title: str, quiet: bool) -> Iterator[Silent | LiveBar]:
    """The progress that suits where the output goes."""
    if quiet:
        yield Silent()
    elif not console.is_terminal:
        yield Lines(console, title)
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TimeRemainingColumn(), TextColumn("{task.fields[detail]}"))  # fmt: skip
        with Bar(*columns, console=console) as bar:
            yield LiveBar(bar, title)
