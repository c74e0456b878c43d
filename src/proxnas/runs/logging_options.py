"""A flag of `search` and `train`: what else is written while they run. No torch here: `--help` must
be quick."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogFlags:
    """What is logged besides metrics.jsonl."""

    tensorboard: bool = False
    """Also write event files for TensorBoard into RUN/tensorboard (needs the extra tensorboard)."""
