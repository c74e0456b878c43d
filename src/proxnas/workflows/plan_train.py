"""What a training would build, before it is run: sizes, time and memory, measured on a few
steps."""

from __future__ import annotations

from typing import Any

from proxnas.cells.designs import Design
from proxnas.core.size.complexity import parameters
from proxnas.domains.images.train import Training
from proxnas.workflows.plan import epochs_text, measure


def plan_training(this: Training) -> dict[str, Any]:
    """The figures of `--dry-run`."""
    params = parameters(this.network)
    seconds, peak = measure_training(this)
    return {
        "protocol": this.config.protocol,
        **({"network": this.genotype.name} if isinstance(this.genotype, Design) else {}),
        "images": list(this.images.shape),
        "classes": this.size.classes,
        "cells": this.size.cells,
        "channels": this.size.channels,
        "params": params,
        "params_smallest": params,  # one cell is given: as in a space of one network
        "params_largest": params,
        "flops": this.flops,
        "train_images": len(this.train.part),
        "valid_images": len(this.valid) if this.valid else 0,
        "epochs": this.config.epochs,
        "steps_per_epoch": len(this),
        "seconds_per_epoch": seconds,
        "peak_bytes": peak,
    }


def measure_training(this: Training) -> tuple[float, int]:
    """Seconds of an epoch, its evaluation included, and the peak memory of a step."""
    return measure(this, lambda: this.evaluation(this.kept, this.valid) if this.valid else None)


def plan_text(figures: dict[str, Any]) -> str:
    """The figures for people."""
    channels, height, width = figures["images"]
    f = figures
    cells = f"{f['cells']} cells, {f['channels']} channels"
    return "\n".join(
        [
            (
                f"{f['protocol']}: images {channels}x{height}x{width}, {f['classes']} classes,"
                f" {f['train_images']} to train on, {f['valid_images']} to choose the best"
                " weights by"
            ),
            (
                f"network: {f.get('network') or cells}, {f['params']:,} parameters, {f['flops']:,}"
                " multiply-adds"
            ),
            epochs_text(f),
        ]
    )
