"""A round of short trainings: some cells, each trained by itself for a moment from the same weights
on the same batches, in a network half way to the depth of the final one.

It is a search of its own, by the method `local`, in a folder within the run's: it can be stopped
and goes on like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxnas.common.launch import here
from proxnas.common.options import changed, flat_hints, flatten
from proxnas.domains import load_for_search
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells, stored
from proxnas.runs.deadline import Deadline
from proxnas.runs.folder import Run
from proxnas.searching.job import Search
from proxnas.searching.muon_steps import RATE, MuonSteps
from proxnas.searching.options import SearchOptions
from proxnas.searching.owners import parts_for
from proxnas.searching.running import search_in

Proposals = Callable[[Cells, Cell], list[Cell]]

LOCAL = "local"
"""The method that tries cells around one."""


def short_batch(config: SearchOptions) -> int:
    """Images of a step: more steps with the same images."""
    return max(2 * here().size, config.course.batch_size // 2)


def short_trainings(config: SearchOptions, others: int, steps: int, images: int) -> SearchOptions:
    """The search among a cell and so many others with at least so many steps each, given the images
    of the half for w."""
    size, cells = short_batch(config), others + 1
    # all that both searches can be told, and over it what is different in short trainings
    known = flat_hints(SearchOptions, parts_for(config.space, LOCAL))
    alike = {name: value for name, value in flatten(config).items() if name in known}
    asked: dict[str, Any] = {
        "method": LOCAL,
        "preset": "default",
        "refine": 0,
        "evaluations": cells,
        "epochs": -(-cells * steps // max(1, images // size)),
        "batch_size": size,
        "cells": (config.cells + config.final_cells + 1) // 2,
        "channels": max(1, config.channels // 2),  # depth is what matters, and it costs
        "learning_rate": RATE,
        "patience": 0,
        "resume": True,
        "force": False,
        "minutes": 0.0,
    }
    return SearchOptions.from_values(alike | asked)


def run_round(
    short: SearchOptions, place: Path, start: str, proposals: Proposals | None, deadline: Deadline
) -> dict[str, Any]:
    """The round in its folder: around the cell that `start` names, else a random one, among what is
    proposed, else its neighbours."""
    # a round that was begun knows its cells; the file that it started from may have changed
    begun = (place / "checkpoint.pt").exists()

    def adjust(setup: Setup[Any]) -> Setup[Any]:
        return by_loss(setup, proposals)

    built = Search(
        changed(short, start="" if begun else start),
        load_for_search(short.space, short.data, short),
        adjust=adjust,
    )
    return search_in(place, short, built, deadline)


def by_loss(setup: Setup[Any], proposals: Proposals | None) -> Setup[Any]:
    """After so few steps most answers are wrong, and the loss tells sooner than accuracy who is on
    the way: the mean of the validation loss and of the last training losses, which are many steps
    and not one. What trains them is ours."""
    return dataclasses.replace(
        setup,
        score=lambda measured: -measured.loss / 2,
        score_training=lambda loss: -loss / 2,
        proposals=proposals,
        weights=setup.weights.of(MuonSteps),
    )


def scores_of(place: Path) -> dict[Cell, float]:
    """How good the cells of a round were, in the order of their trainings; more is better."""
    state = Run(place).load_checkpoint()
    assert state is not None  # it is written before the first step
    return {stored(cell): score for cell, score in state["method"]["strategy"]["known"]}
