"""The flags of the methods that evaluate whole cells, which `search` takes besides the others.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from proxnas.cells.genotype import CUSTOM
from proxnas.common.errors import InputError
from proxnas.methods import SAMPLING

if TYPE_CHECKING:
    from proxnas.searching.options import SearchConfig


@dataclass(frozen=True)
class SamplingFlags:
    """How cells are evaluated, and how many."""

    evaluations: int = 8
    """random, evolution, local, reinforce, pnas: cells to evaluate, each trained for an equal share
    of the epochs."""
    evaluate: Literal["train", "table"] = "train"
    """The same: by a short training and the half for A, or by the validation column of --table (an
    epoch is then an equal part of the evaluations)."""
    population: int = 0
    """evolution: cells that are kept; 0: 100, or a quarter of fewer than 400 evaluations."""
    tournament: int = 0
    """evolution: cells drawn from them, of which the best is a parent; 0: a quarter of the
    population."""
    start: str = ""
    """local: the cell to begin with: a run folder, a genotype file, zoo:NAME or a NAS-Bench-201
    string; else random."""
    refine: int = 0
    """After a search of images by another method: train the found cell and so many of its
    neighbours for a moment, each by itself in a deeper network, the best of them for longer, and
    keep the best. -1 (nasp's default in nasbench201): 24, which are all there are, unless that
    would take longer than the search."""
    random_cells: int = 100
    """random-ws: cells that are judged at the end."""


BY_ITSELF = -1
"""--refine where it costs no more than the search."""
RANGES: dict[str, tuple[int, int]] = {
    "evaluations": (1, 10_000_000),
    "population": (0, 1_000_000),
    "tournament": (0, 1_000_000),
    "refine": (BY_ITSELF, 1_000_000),
    "random_cells": (1, 10_000_000),
}


def check_sampling(config: SearchConfig) -> None:
    """An InputError for impossible values, and for a refinement of what needs none."""
    for name, (low, high) in RANGES.items():
        _require(
            low <= getattr(config, name) <= high,
            config,
            name,
            f"give a number from {low} to {high}",
        )
    if config.refine:
        sampling = config.method in SAMPLING
        _require(
            not sampling,
            config,
            "refine",
            f"{config.method} trains cells by themselves already: leave it out",
        )
        images = config.space not in ("rnn", CUSTOM)
        _require(
            images,
            config,
            "refine",
            f"is for cells of images, not for --space {config.space}: leave it out",
        )
    _require(
        config.evaluate == "train" or config.table != "",
        config,
        "evaluate",
        "give --table FILE too",
    )


def table_defaults() -> dict[str, Any]:
    """Looking a cell up costs nothing, so there are as many as published comparisons on tables
    have."""
    return {"evaluations": 1000, "epochs": 10}


def _require(ok: bool, config: SearchConfig, name: str, what_to_do: str) -> None:
    if not ok:
        raise InputError(f"--{name.replace('_', '-')} {getattr(config, name)}: {what_to_do}")
