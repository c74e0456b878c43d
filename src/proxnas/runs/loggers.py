"""Whoever is told of each epoch besides metrics.jsonl: TensorBoard, and loggers of others.

A logger is made of the run folder and has the two functions of `Logger`; a function `check` of its
class may raise an InputError before anything is begun. Packages of others add
theirs by the entry point `proxnas.loggers`. No torch here: `--help` must be quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from proxnas.common.errors import unknown_value
from proxnas.common.metrics_row import MetricsRow
from proxnas.common.options import Options
from proxnas.common.plugins import of_others, resolve

LOGGERS = {"tensorboard": "proxnas.runs.tensorboard:Board"}
"""Name -> 'module:class', resolved late."""


class Logger(Protocol):
    """Is told of a run; made of its folder."""

    def epoch(self, row: MetricsRow) -> None:
        """An epoch is over; after a resumption, epochs may come again."""

    def close(self) -> None:
        """The run ends here."""


class Progress(Protocol):
    """Whoever shows how far the run is."""

    def begin(self, epoch: int, epochs: int, steps: int) -> None: ...

    def step(self, changes: int) -> None: ...

    def epoch(self, row: MetricsRow) -> None: ...


class Logged:
    """Whoever shows the progress, and the loggers."""

    def __init__(self, other: Progress, loggers: Sequence[Logger]) -> None:
        self.other, self.loggers = other, loggers

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self.other.begin(epoch, epochs, steps)

    def step(self, changes: int) -> None:
        self.other.step(changes)

    def epoch(self, row: MetricsRow) -> None:
        self.other.epoch(row)
        for logger in self.loggers:
            logger.epoch(row)


def every_logger() -> dict[str, str]:
    """Ours and those of others."""
    return of_others("loggers") | LOGGERS


def find_logger(name: str) -> Any:
    """What makes the logger of that name."""
    known = every_logger()
    if name not in known:
        raise unknown_value("loggers", name, known)
    return resolve("logger", name, known[name])


def check_logger(name: str) -> None:
    """An InputError for a logger that does not exist or cannot work here."""
    check = getattr(find_logger(name), "check", None)
    if check is not None:
        check()


@contextmanager
def with_loggers(other: Progress, folder: Path, names: Sequence[str]) -> Iterator[Progress]:
    """The progress, with these loggers."""
    with ExitStack() as stack:
        loggers: list[Logger] = []
        for name in names:
            logger = find_logger(name)(folder)
            # at once: what was opened is closed, though a later one should fail
            stack.callback(logger.close)
            loggers.append(logger)
        yield Logged(other, loggers) if loggers else other


@dataclass(frozen=True)
class LogFlags(Options):
    """What is logged besides metrics.jsonl."""

    heading: ClassVar[str] = "logging:"

    tensorboard: bool = False
    """Also write event files into RUN/tensorboard. Needs the extra tensorboard."""
    loggers: str = ""
    """Others to tell of each epoch, with commas between. Packages add them by the entry point
    proxnas.loggers."""

    def check(self) -> None:
        """Loggers that exist."""
        super().check()
        for name in self.names():
            if name not in every_logger():
                raise unknown_value("loggers", name, every_logger())

    def names(self) -> list[str]:
        """Of all loggers that are asked for."""
        found = ["tensorboard"] if self.tensorboard else []
        for name in self.loggers.split(","):
            if name and name not in found:
                found.append(name)
        return found
