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
than a short training can tell: there it is only done when asked for. What many decisions change
together is asked before the search (wiring.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from proxnas.cells.genotype import Genotype
from proxnas.domains import load_for_search
from proxnas.methods.cells import Cell, Cells
from proxnas.runs.deadline import Deadline
from proxnas.runs.folder import NEIGHBOURS, REFINED, Run, open_run, write_atomically
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.own_options import BY_ITSELF
from proxnas.searching.running import without_start
from proxnas.searching.short_rounds import run_round, scores_of, short_batch, short_trainings
from proxnas.searching.start import selecting

STEPS = 60
"""Of a short training at least: enough to see who is among the best (docs/results.md)."""
FINALISTS, FINAL_STEPS = 4, 300
"""Neighbours in the second round, and its steps."""
LEAD = 0.02
"""By which share the loss of the best neighbour must be below that of the found cell: less is what
another draw of weights and batches makes (docs/results.md), and then what the search found stays.
"""
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
        result = _together(found, _rounds(config, cells, images, folder, deadline))
        if result["refined"]["changed"]:
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
    steps = (BY_DEFAULT + 1) * STEPS + (FINALISTS + 1) * FINAL_STEPS
    too_long = steps * short_batch(config) > seen
    return 0 if config.weight_of_R() or too_long else BY_DEFAULT


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
        result = run_round(first, folder / NEIGHBOURS, str(folder), None, deadline)
        if deadline.over():  # a short training alone does not tell
            return result | {"clear": False}
        seconds = result["seconds"]
        best_first = partial(_others, scores_of(folder / NEIGHBOURS))
    second = short_trainings(config, min(cells, FINALISTS), FINAL_STEPS, images)
    last = run_round(second, folder / REFINED, str(folder), best_first, deadline)
    clear = clearly_better(scores_of(folder / REFINED), LEAD)
    return last | {"seconds": seconds + last["seconds"], "clear": clear}


def _others(scores: dict[Cell, float], cells: Cells, middle: Cell) -> list[Cell]:
    """The cells that have scores, the best first."""
    return sorted((cell for cell in scores if cell != middle), key=scores.__getitem__, reverse=True)


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
