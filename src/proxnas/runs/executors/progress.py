"""How far many runs are: one display for all workers, read from their run folders. No torch
here."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bar
from rich.progress import TaskID

from proxnas.common.say import plain
from proxnas.common.stored import (
    CONFIG,
    MOST_LINES_BYTES,
    ROW,
    check,
    parse_json,
    read_bytes,
    read_json,
)
from proxnas.runs.executors.tasks import Board, Outcome, RunTask
from proxnas.runs.progress import bar_with, epoch_line

EVERY = 0.5
"""Seconds between two readings of the folders."""


class SilentBoard:
    """Says nothing."""

    def look(self, running: Sequence[RunTask]) -> None:
        """Tasks run."""

    def end(self, outcome: Outcome) -> None:
        """A task has ended."""


class LineBoard(SilentBoard):
    """A plain line when a task ends."""

    def __init__(self, console: Console, total: int, ended: int) -> None:
        self.console, self.total, self.ended = console, total, ended

    def end(self, outcome: Outcome) -> None:
        self.ended += 1
        self.console.print(
            plain(f"{self.ended}/{self.total} {line(outcome)}"), soft_wrap=True, markup=False
        )


class LiveBoard:
    """A bar for all tasks and one for each that runs."""

    def __init__(self, bar: Bar, title: str, total: int, ended: int) -> None:
        self.bar, self.bars, self.read = bar, dict[RunTask, TaskID](), 0.0
        self.all = bar.add_task(title, total=total, completed=ended, detail="")

    def look(self, running: Sequence[RunTask]) -> None:
        if time.monotonic() < self.read + EVERY:
            return
        self.read = time.monotonic()
        for task in running:
            if task not in self.bars:
                self.bars[task] = self.bar.add_task(escape(plain(task.name)), total=None, detail="")
            done, epochs, row = progress_of(task.folder)
            self.bar.update(
                self.bars[task], completed=done, total=epochs, detail=escape(plain(_valid(row)))
            )

    def end(self, outcome: Outcome) -> None:
        if outcome.task in self.bars:
            self.bar.remove_task(self.bars.pop(outcome.task))
        self.bar.update(self.all, advance=1)
        self.bar.console.print(plain(line(outcome)), soft_wrap=True, markup=False)


def line(outcome: Outcome) -> str:
    """How a task ended, for people."""
    if outcome.code:
        return f"{outcome.task.name}: {outcome.message}"
    done, _, row = progress_of(outcome.task.folder)
    return f"{outcome.task.name}: done in {done} epochs {_valid(row)}"


def _valid(row: dict[str, Any]) -> str:
    return epoch_line({name: value for name, value in row.items() if name.startswith("valid_")})


def progress_of(folder: Path) -> tuple[int, int | None, dict[str, Any]]:
    """(epochs done, epochs in all if known, the last row of metrics) of a run that may be writing
    just now."""
    try:
        lines = read_bytes(folder / "metrics.jsonl", MOST_LINES_BYTES).splitlines(keepends=True)
        # a line without its end is being written just now
        rows = [text for text in lines if text.endswith(b"\n")]
        last = check(parse_json(rows[-1]), ROW) if rows else {}
        epochs = check(read_json(folder / "config.json"), CONFIG).get("epochs")
    except (OSError, ValueError):  # not begun; or not ours, which its own command will say
        return 0, None, {}
    return len(rows), epochs, last


@contextmanager
def show_board(
    console: Console, title: str, total: int, quiet: bool, ended: int = 0
) -> Iterator[Board]:
    """The board that suits where the output goes; so many of all tasks had `ended` before this
    call."""
    if quiet:
        yield SilentBoard()
    elif not console.is_terminal:
        yield LineBoard(console, total, ended)
    else:
        with bar_with(console) as bar:
            yield LiveBoard(bar, title, total, ended)
