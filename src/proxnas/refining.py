"""`--refine`: the cell that a search found against its neighbours, each trained by itself for a moment.

A search judges candidates inside one small network with shared weights. The network that is trained in the end is
deeper, and whether a cell lets it train at all shows only with depth. So the found cell and the cells that differ from
it in one decision (`methods/local.py`), those with the largest entries of A first, are trained from the same weights on
the same batches, in a network half way to the depth of the final one, and the best takes its place. It is a search of
its own in RUN/refined, begun when the other has ended; RUN has its result.json when both have.
"""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch

from proxnas.config import USED_BY, SearchConfig
from proxnas.jobs import run_search
from proxnas.launch import here
from proxnas.methods.base import Setup
from proxnas.run import REFINED, Run, open_run, write_atomically
from proxnas.sampling_flags import BY_ITSELF
from proxnas.searching import Search
from proxnas.tasks import load_data
from proxnas.types import Matrices

STEPS = 200
"""Of a short training at least: after fewer a worse neighbour is ahead now and then (docs/results.md)."""
NEIGHBOURS = 12
"""To train by itself: those that the search thinks best of. In nasbench201 there are 24."""
FASTER = 4.0
"""Times the learning rate of the search: at that one so few steps are spent near the initial weights."""
OF_THE_CELL = ("genotype", "params", "flops", "budget", "latency", "table", "warning")
"""What result.json says of the cell that is returned."""


def refine(config: SearchConfig, folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Refines what the search in the folder found, from where that stands; returns what result.json holds."""
    if (folder / "result.json").exists():
        return found
    last = Run(folder).metrics()[-1]
    cells = how_many(config, seen=config.batch_size * last["step"])
    result = _together(found, _trained(config, cells, folder, last)) if cells else found
    with open_run(folder, resume=True) as run:
        write_atomically(run / "genotype.json", json.dumps(result["genotype"], indent=2) + "\n")
        run.write_json("result.json", result)
    return result


def how_many(config: SearchConfig, seen: int) -> int:
    """The neighbours to train: as many as asked for; by itself some, where their trainings see no more images than the
    search has seen, so that a search takes twice its time at most.

    Not by itself with --eta: a short training knows nothing of size.
    """
    if config.refine != BY_ITSELF:
        return config.refine
    return 0 if config.eta or (NEIGHBOURS + 1) * STEPS * _batch(config) > seen else NEIGHBOURS


def _trained(config: SearchConfig, cells: int, folder: Path, last: dict[str, Any]) -> dict[str, Any]:
    """Result of the search among so many neighbours, given the last row of metrics of the one before."""
    short = short_trainings(config, cells, images=config.batch_size * last["step"] // last["epoch"])
    A = {name: torch.tensor(matrix, dtype=torch.float64) for name, matrix in last["A"].items()}
    place = folder / REFINED
    begun = (place / "checkpoint.pt").exists()
    start = "" if begun else str(folder)
    adjust = partial(by_loss, preference=A)
    return run_search(short, place, Search(dataclasses.replace(short, start=start), load_data(short), adjust=adjust))


def by_loss(setup: Setup, preference: Matrices) -> Setup:
    """After so few steps most answers are wrong, and the loss tells sooner than accuracy who is on the way."""
    return dataclasses.replace(setup, score=lambda measured: -measured.loss, preference=preference)


def _batch(config: SearchConfig) -> int:
    return max(2 * here().size, config.batch_size // 2)  # more steps with the same images


def short_trainings(config: SearchConfig, neighbours: int, images: int) -> SearchConfig:
    """The search among so many neighbours, given the images of the half for w."""
    size = _batch(config)
    cells = neighbours + 1  # the found one is among them
    neutral: dict[str, Any] = {
        name: value for methods, flags in USED_BY.items() if "local" not in methods for name, value in flags.items()
    }
    asked: dict[str, Any] = {
        "method": "local",
        "refine": 0,
        "evaluations": cells,
        "epochs": -(-cells * STEPS // max(1, images // size)),
        "batch_size": size,
        "cells": (config.cells + config.final_cells + 1) // 2,
        "channels": max(1, config.channels // 2),  # depth is what matters, and it costs
        "learning_rate": FASTER * config.learning_rate,
        "patience": 0,
        "resume": True,
        "force": False,
        "minutes": 0.0,
    }
    return dataclasses.replace(config, **(neutral | asked))


def _together(found: dict[str, Any], best: dict[str, Any]) -> dict[str, Any]:
    """The result of a search with the cell of its refinement in place of its own."""
    changed = best["genotype"] != found["genotype"]
    returned = best if changed else found
    result = {name: value for name, value in found.items() if name not in OF_THE_CELL}
    result |= {name: returned[name] for name in OF_THE_CELL if name in returned}
    result["seconds"] = found["seconds"] + best["seconds"]
    result["refined"] = {
        "changed": changed,
        "from": found["genotype"],
        "seconds": best["seconds"],
        **{name: value for name, value in best.items() if name.startswith("valid_")},
    }
    return result
