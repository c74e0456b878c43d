"""Runs as a whole: a configuration and a folder go in, a result comes out. For commands, which may
chain several."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.common.options import changed
from proxnas.runs.processes import to_start
from proxnas.searching.options import SearchOptions

if TYPE_CHECKING:
    from proxnas.runs.deadline import Deadline
    from proxnas.searching.job import Search

WIRING_SHARE = 0.25
"""Of the time of a search, for finding out how nodes shall be wired: its trainings see no more
images than the search, in smaller networks that nothing is scored in."""


def fitted_to_minutes(config: SearchOptions, deadline: Deadline) -> SearchOptions:
    """With as many epochs as there is time for, by a measurement of a few steps, so that whatever
    follows a schedule over all epochs, or chooses at the end, comes to its end. The deadline is for
    the case that it took longer."""
    from proxnas.searching.running import build_search

    # warm-ups do less in a step: steps behind them are what most of the search is made of
    probe = build_search(changed(config, **config.method_options.traits.past_warmup))
    # searches that one worker makes one after the other, rounded up
    in_turn = -(-len(config.job.all_seeds()) // config.workers)
    length, _ = length_in_time(probe, deadline.left() / in_turn)
    return changed(config, **length)


def length_in_time(probe: Search, seconds: float) -> tuple[dict[str, int], float]:
    """The epochs, and the refinement, that there is time for, and the seconds of an epoch, by a
    measurement of a few steps. A refinement has half of the time, if so long a search has one."""
    from proxnas.searching.refine import how_many
    from proxnas.workflows.plan import measure

    config = probe.config
    per_epoch, _ = measure(probe, probe.figures)
    if getattr(config, "wiring", "free") == "auto":
        seconds *= 1 - WIRING_SHARE
    if config.refine:
        # half for the search; whether a refinement is worth it depends on how many images that sees
        epochs = fitting(seconds / 2, per_epoch, config.epochs)
        if how_many(config, seen=epochs * len(probe.train) * config.batch_size):
            return {"epochs": epochs, "refine": config.refine}, per_epoch
    return {"epochs": fitting(seconds, per_epoch, config.epochs), "refine": 0}, per_epoch


def fitting(seconds: float, per_epoch: float, most: int) -> int:
    """How many epochs fit, at least one and at most so many."""
    return max(1, min(most, int(seconds / per_epoch)))


def run_search(
    config: SearchOptions,
    folder: Path,
    built: Search | None = None,
    deadline: Deadline | None = None,
) -> dict[str, Any]:
    """One search in its folder; a finished one is not run again. It ends, refined or not, when the
    deadline is over."""
    from proxnas.runs.jobs import by_processes
    from proxnas.searching.refine import refine
    from proxnas.searching.running import search_in
    from proxnas.searching.wiring import as_settled, settle

    if number := to_start(config.job.processes):
        return by_processes(config, "search", folder, number)
    wired = partial(settle, folder=folder, deadline=deadline)
    if not config.course.refine:
        return search_in(folder, config, built, deadline, settle=wired)
    first = search_in(folder, config, built, deadline, to_be_refined=True, settle=wired)
    return refine(as_settled(config, first), folder, first, deadline)
