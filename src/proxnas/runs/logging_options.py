"""Flags of `search` and `train`: what else is written while they run. No torch here: `--help` must
be quick."""

from __future__ import annotations

from dataclasses import dataclass

from proxnas.common.options import Options, unknown_value
from proxnas.runs.loggers import every_logger


@dataclass(frozen=True)
class LogFlags(Options):
    """What is logged besides metrics.jsonl."""

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
