"""A flag of `search` and `train`: what else is written while they run. No torch here: `--help` must
be quick."""

from __future__ import annotations

from dataclasses import dataclass

from proxnas.common.options import Options


@dataclass(frozen=True)
class LogFlags(Options):
    """What is logged besides metrics.jsonl."""

    tensorboard: bool = False
    """Also write event files into RUN/tensorboard. Needs the extra tensorboard."""
