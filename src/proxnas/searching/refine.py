"""`--refine`: the cell that a search found against its neighbours, each trained by itself for a
moment.

A search judges candidates inside one small network with shared weights. The network that is trained
in the end is deeper, and whether a cell lets it train at all shows only with depth. So the found
cell and the cells that differ from it in one decision (`methods/local.py`) are trained from the
same weights on the same batches, in a network half way to the depth of the final one; then the
found cell and the best of them again for five times the steps, because after few steps chance
decides between the best; and the best of these is returned, if it is clearly better than all
others. Both rounds are searches of their own, in RUN/neighbours and RUN/refined, begun when the
other has ended; RUN has its result.json when all have.

Where nodes choose their inputs a cell has hundreds of neighbours, and one decision changes less
than a short training can tell; several decisions together change more (docs/signals.md). There the
found cell is compared with itself wired otherwise, the same operations in nodes that read the
inputs of the cell; then with the best of these by another draw, and both draws decide.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.common.launch import here
from proxnas.common.options import changed, flat_hints, flatten
from proxnas.domains import load_for_search, spaces
from proxnas.domains.spaces import traits_of
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells, stored
from proxnas.runs.deadline import Deadline
from proxnas.runs.folder import NEIGHBOURS, REFINED, Run, open_run, write_atomically
from proxnas.searching.job import Search
from proxnas.searching.options import BY_ITSELF, SearchOptions
from proxnas.searching.owners import parts_for
from proxnas.searching.running import search_in, without_start
from proxnas.searching.short_steps import RATE, ShortSteps
from proxnas.searching.start import selecting

Proposals = Callable[[Cells, Cell], list[Cell]]

LOCAL = "local"
"""The method that tries the neighbours of a cell."""
STEPS = 60
"""Of a short training at least: enough to see who is among the best (docs/results.md)."""
FINALISTS, FINAL_STEPS = 4, 300
"""Neighbours in the second round, and its steps."""
LEAD = 0.02
"""By which share the loss of the best neighbour must be below that of the found cell: less is what
another draw of weights and batches makes (docs/results.md), and then what the search found stays.
"""
WIRINGS = 3
"""Of a normal and a reduction cell: both of them, or one."""
WIRING_STEPS, FINAL_WIRING_STEPS = 120, 300
"""Of the trainings of a cell that is wired otherwise; of the best and the found one again."""
BY_DEFAULT = 24
"""Neighbours if nobody says how many: in nasbench201 all of them."""
OF_THE_CELL = ("genotype", "params", "flops", "budget", "latency", "table", "warning")
"""What result.json says of the cell that is returned."""


def refine(
    config: SearchOptions, folder: Path, found: dict[str, Any], deadline: Deadline | None = None
) -> dict[str, Any]:
    """Refines what the search in the folder found, from where that stands; returns what result.json
    holds.

    What is known when the deadline is over decides; without time for it the found cell stays.
    """
    deadline = deadline or Deadline()
    if (folder / "result.json").exists():
        return found
    # images seen = batch size x steps, of the whole search and of an epoch
    last = Run(folder).metrics()[-1]
    cells = how_many(config, seen=config.batch_size * last["step"])
    images = config.batch_size * last["step"] // last["epoch"]
    result = found
    if cells and not deadline.over():
        if by_wirings(config):
            best = _wirings(config, images, folder, deadline)
        else:
            best = _rounds(config, cells, images, folder, deadline)
        result = _together(found, best) if best else found
        if best and result["refined"]["changed"]:
            result |= _validation(config, folder, result["genotype"])
    with open_run(folder, resume=True) as run:
        write_atomically(run / "genotype.json", json.dumps(result["genotype"], indent=2) + "\n")
        run.write_json("result.json", result)
    return result


def how_many(config: SearchOptions, seen: int) -> int:
    """The neighbours to train: as many as asked for; by itself all, where their trainings see no
    more images than the search has seen, so that a search takes twice its time at most.

    Not by itself with --eta: a short training knows nothing of size.
    """
    if config.course.refine != BY_ITSELF:
        return config.course.refine
    if by_wirings(config):
        cells, steps = WIRINGS, (WIRINGS + 1) * WIRING_STEPS + 2 * FINAL_WIRING_STEPS
    else:
        cells, steps = BY_DEFAULT, (BY_DEFAULT + 1) * STEPS + (FINALISTS + 1) * FINAL_STEPS
    return 0 if config.weight_of_R() or steps * _batch(config) > seen else cells


def by_wirings(config: SearchOptions) -> bool:
    """Whether the found cell is compared with itself wired otherwise, not with its neighbours."""
    by_itself = config.course.refine == BY_ITSELF
    return by_itself and traits_of(config.space).refined_by == "wirings"


def _wirings(
    config: SearchOptions, images: int, folder: Path, deadline: Deadline
) -> dict[str, Any] | None:
    """The better one of the found cell and the best of its other wirings, by the mean of two draws
    of weights and batches. None: there are no others."""
    number = len(_other_wirings(config, folder))
    if not number:
        return None
    first = short_trainings(config, number, WIRING_STEPS, images)
    rounds = [_round(first, folder, NEIGHBOURS, Cells.wirings, deadline)]
    scores = _scores(folder / NEIGHBOURS)
    tried = list(scores)
    if len(tried) < 2 or deadline.over():  # one short training does not tell
        return rounds[0] | {"clear": False}
    found, best = tried[0], max(tried[1:], key=scores.__getitem__)
    # another seed: other weights and other batches, a second opinion
    second = changed(short_trainings(config, 1, FINAL_WIRING_STEPS, images), seed=config.seed + 1)
    rounds.append(_round(second, folder, REFINED, lambda cells, middle: [best], deadline))
    again = _scores(folder / REFINED)
    # the deadline may have come before the best was trained again
    better = best in again and scores[best] + again[best] > scores[found] + again[found]
    # in one of the rounds it was the best: else its mean were not
    of_best = [result for result in rounds if _cell_of(result) != _genotype(folder)]
    last = of_best[-1] if better else rounds[-1]
    seconds = sum(result["seconds"] for result in rounds)
    return last | {"seconds": seconds, "clear": better}


def _genotype(folder: Path) -> Genotype:
    """The cell in the folder."""
    return read_genotype(str(folder)).without_values()


def _other_wirings(config: SearchOptions, folder: Path) -> list[Cell]:
    """Of the cell in the folder."""
    space = spaces.find(config.space)
    A_bar, cells = selecting(_genotype(folder), space), Cells(space.groups)
    return cells.wirings(cells.of(A_bar)) if A_bar else []


def clearly_better(scores: Mapping[Cell, float], lead: float) -> bool:
    """Whether the loss of the best is so much below that of the first, around which the others
    are; there may have been time for one only, or for none."""
    # in the order of evaluation: the cell in the middle came first
    losses = [-score for score in scores.values()]
    return len(losses) > 1 and min(losses[1:]) < (1 - lead) * losses[0]


def _rounds(
    config: SearchOptions, cells: int, images: int, folder: Path, deadline: Deadline
) -> dict[str, Any]:
    """The result of the last round that there was time for, with the seconds of both."""
    seconds, best_first = 0.0, None
    if cells > FINALISTS:
        first = short_trainings(config, cells, STEPS, images)
        result = _round(first, folder, NEIGHBOURS, None, deadline)
        if deadline.over():  # a short training alone does not tell
            return result | {"clear": False}
        seconds = result["seconds"]
        best_first = partial(_others, _scores(folder / NEIGHBOURS))
    second = short_trainings(config, min(cells, FINALISTS), FINAL_STEPS, images)
    last = _round(second, folder, REFINED, best_first, deadline)
    clear = clearly_better(_scores(folder / REFINED), LEAD)
    return last | {"seconds": seconds + last["seconds"], "clear": clear}


def _others(scores: dict[Cell, float], cells: Cells, middle: Cell) -> list[Cell]:
    """The cells that have scores, the best first."""
    return sorted((cell for cell in scores if cell != middle), key=scores.__getitem__, reverse=True)


def _round(
    short: SearchOptions, folder: Path, name: str, proposals: Proposals | None, deadline: Deadline
) -> dict[str, Any]:
    """The search around the cell in the folder, among what is proposed; else its neighbours."""
    place = folder / name
    # a round that was begun knows its cells; the file that it started from may have changed
    start = "" if (place / "checkpoint.pt").exists() else str(folder)
    built = Search(
        changed(short, start=start),
        load_for_search(short.space, short.data, short),
        adjust=partial(by_loss, proposals=proposals),
    )
    return search_in(place, short, built, deadline)


def _scores(place: Path) -> dict[Cell, float]:
    """How good the cells of a round were; more is better."""
    state = Run(place).load_checkpoint()
    assert state is not None  # it is written before the first step
    return {stored(cell): score for cell, score in state["method"]["strategy"]["known"]}


def by_loss(setup: Setup[Any], proposals: Proposals | None) -> Setup[Any]:
    """After so few steps most answers are wrong, and the loss tells sooner than accuracy who is on
    the way: the mean of the validation loss and of the last training losses, which are many steps
    and not one. What trains them is ours."""
    return dataclasses.replace(
        setup,
        score=lambda measured: -measured.loss / 2,
        score_training=lambda loss: -loss / 2,
        proposals=proposals,
        weights=setup.weights.of(ShortSteps),
    )


def _validation(config: SearchOptions, folder: Path, genotype: dict[str, Any]) -> dict[str, float]:
    """The figures of a cell by the weights of the search in the folder, as the found cell has
    them."""
    data = load_for_search(config.space, config.data, config)
    this = Search(without_start(config), data)
    state = Run(folder).load_checkpoint()
    A_bar = selecting(Genotype.from_object(genotype), this.space)
    assert state is not None and A_bar is not None  # both rounds began from there
    this.load_state_dict(state)
    return this.task.figures("valid", this.measure(A_bar))


def _batch(config: SearchOptions) -> int:
    return max(2 * here().size, config.course.batch_size // 2)  # more steps with the same images


def short_trainings(
    config: SearchOptions, neighbours: int, steps: int, images: int
) -> SearchOptions:
    """The search among so many neighbours with at least so many steps each, given the images of the
    half for w."""
    size = _batch(config)
    cells = neighbours + 1  # the found one is among them
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


def _cell_of(result: dict[str, Any]) -> Genotype:
    """Without factors: short trainings know none, and a cell is not another one because of them."""
    return Genotype.from_object(result["genotype"]).without_values()


def _together(found: dict[str, Any], best: dict[str, Any]) -> dict[str, Any]:
    """The result of a search with the cell of its refinement in place of its own."""
    changed = best["clear"] and _cell_of(best) != _cell_of(found)
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
