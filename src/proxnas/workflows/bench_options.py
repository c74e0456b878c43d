"""What `bench` is told.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxnas.common.errors import unknown
from proxnas.domains.spaces import SPACES
from proxnas.domains.text.search_options import NOT_FOR_TEXT
from proxnas.methods import METHODS
from proxnas.runs.options import RunConfig, flag, require

BENCH_AT_LEAST = {
    "cells": 1,
    "channels": 1,
    "batch_size": 2,
    "image_size": 8,
    "rounds": 1,
    "units": 1,
    "bptt": 1,
    "words": 2,
}


@dataclass(frozen=True)
class BenchConfig(RunConfig):
    """Time and memory of one search iteration: NASP beside DARTS, and the floor."""

    space: str = "darts8"
    """The space to search in."""
    methods: str = "nasp,darts-1st,darts-2nd"
    """Methods to time, with commas between, or all."""
    candidates: int = 0
    """Instead of a space: so many (1 to 16) operations in both cells."""
    cells: int = 8
    channels: int = 16
    batch_size: int = 0
    """0: 16 images, or 64 pieces of a text."""
    image_size: int = 32
    units: int = 300
    """For rnn, as are --bptt and --words."""
    bptt: int = 35
    words: int = 10_000
    score_batch: float = 1.0
    """As in search, and so is --score-nodes."""
    score_nodes: float = 1.0
    rounds: int = 5
    """Interleaved rounds whose medians are reported."""
    json: str = ""
    """Write the figures into this file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space not in SPACES:
            raise unknown("--space", self.space, SPACES)
        for method in self.all_methods():
            if method not in METHODS:
                raise unknown("--methods", method, METHODS)
        require(
            0 <= self.candidates <= 16,
            "--candidates",
            self.candidates,
            "give a number from 1 to 16",
        )
        if not self.batch_size:
            object.__setattr__(self, "batch_size", 64 if self.space == "rnn" else 16)
        require(
            not (self.candidates and self.space == "rnn"),
            "--candidates",
            self.candidates,
            "is not for --space rnn",
        )
        for name, low in BENCH_AT_LEAST.items():
            require(
                getattr(self, name) >= low,
                flag(name),
                getattr(self, name),
                f"give a number of at least {low}",
            )

    def all_methods(self) -> list[str]:
        """The methods to time."""
        usable = [name for name in METHODS if self.space != "rnn" or name not in NOT_FOR_TEXT]
        return usable if self.methods == "all" else self.methods.split(",")
