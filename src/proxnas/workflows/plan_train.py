"""What a training would build, before it is run: sizes, time and memory, measured on a few
steps."""

from __future__ import annotations

from typing import Any

from proxnas.core.size.complexity import parameters
from proxnas.domains import of_options
from proxnas.training.job import Training
from proxnas.workflows.plan import epochs_text, measure


def plan_training(this: Training) -> dict[str, Any]:
    """The figures of `--dry-run`."""
    params = parameters(this.network)
    seconds, peak = measure_training(this)
    return {
        "protocol": this.config.protocol,
        **this.describe(),
        "params": params,
        "params_smallest": params,  # one cell is given: as in a space of one network
        "params_largest": params,
        "epochs": this.config.epochs,
        "steps_per_epoch": len(this),
        "seconds_per_epoch": seconds,
        "peak_bytes": peak,
    }


def measure_training(this: Training) -> tuple[float, int]:
    """Seconds of an epoch, its evaluation included, and the peak memory of a step."""
    return measure(this, this.validate)


def plan_text(this: Training, figures: dict[str, Any]) -> str:
    """The figures for people."""
    return "\n".join([*of_options(this.config).plan_lines(figures), epochs_text(figures)])
