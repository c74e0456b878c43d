"""`--wiring auto`: whether nodes shall read other nodes, asked of the data before a search.

What one decision of a cell changes is less than a short training can tell, and in a small network
with shared weights A prefers long ways through a cell, which train slower later. What all inputs
together change can be told (docs/signals.md): so some random cells are trained for a moment, each
as it is and with the same operations in nodes that read the inputs of the cell only. If they are
better so, beyond chance, the search decides operations alone; else nodes choose their inputs as
ever.

The trainings are a search of their own in RUN/wirings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from proxnas.common.options import changed
from proxnas.common.seeds import stable_seed
from proxnas.common.significance import p_of_gain
from proxnas.methods.cells import Cell, Cells
from proxnas.runs.deadline import Deadline
from proxnas.runs.folder import WIRINGS
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.short_rounds import run_round, scores_of, short_batch, short_trainings

PAIRS, STEPS = 8, 60
"""Random cells, each trained twice, and the steps of a training."""
CHANCE = 0.15
"""How likely what inputs win may be, were it nothing but chance. Where wiring does not matter, a
search among fewer cells loses nothing."""


class Pair(NamedTuple):
    """A cell as it was drawn, and wired so that its nodes read its inputs."""

    free: Cell
    inputs: Cell


def settle(this: Search, folder: Path, deadline: Deadline | None = None) -> Search:
    """The search itself; where its wiring is to be found out the one that has it, from where the
    folder stands."""
    config = this.config
    images = len(this.train) * config.batch_size
    if getattr(config, "wiring", "free") != "auto" or not is_short(config, images):
        return this
    drawn = pairs(Cells(this.net.groups), stable_seed(config.seed, "wirings"))
    told = compare(config, images, drawn, folder / WIRINGS, deadline or Deadline())
    if told["chosen"] == "inputs":
        this = Search(changed(config, wiring="inputs"), this.data)
    this.wiring = told
    return this


def is_short(config: SearchOptions, images: int) -> bool:
    """Whether the trainings see no more images than the search will; `images`: of the half for w.

    Not where seconds of networks count, which may be known of the free wiring alone.
    """
    return not config.timed and 2 * PAIRS * STEPS * short_batch(config) <= config.epochs * images


def compare(
    config: SearchOptions, images: int, drawn: list[Pair], place: Path, deadline: Deadline
) -> dict[str, Any]:
    """What result.json says of it: whether the pairs were better so, in the mean, beyond chance."""
    # a round begins with a cell that is none of a pair
    short = short_trainings(changed(config, wiring="free"), 2 * PAIRS, STEPS, images)
    short = changed(short, max_params="", max_flops="", quiet=True)
    cells = [cell for pair in drawn for cell in pair]
    result = run_round(short, place, "", lambda *_: cells, deadline)
    scores = scores_of(place)
    # the deadline may have come before all were trained
    known = [pair for pair in drawn if pair.free in scores and pair.inputs in scores]
    gains = [scores[pair.inputs] - scores[pair.free] for pair in known]
    chance = p_of_gain(gains)
    return {
        "chosen": "inputs" if chance is not None and chance <= CHANCE else "free",
        "better": sum(gain > 0 for gain in gains),
        "of": len(gains),
        "chance": chance,
        "seconds": result["seconds"],
    }


def pairs(cells: Cells, seed: int) -> list[Pair]:
    """Random cells that are not wired so already."""
    generator = torch.Generator().manual_seed(seed)
    found: list[Pair] = []
    while len(found) < PAIRS:
        free = cells.draw(generator)
        inputs = cells.on_inputs(free)
        if inputs != free:
            found.append(Pair(free, inputs))
    return found


def as_settled(config: SearchOptions, result: Mapping[str, Any]) -> SearchOptions:
    """The options of the search that was made, by its result."""
    told = result.get("wiring")
    return changed(config, wiring=told["chosen"]) if told else config
