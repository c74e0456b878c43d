"""`fit` on images in the space `resnet`: one run by the clock, in which the search is the training.

    data -> simple models -> sizes by a timing -> one pass -> test -> model, ONNX, card, leaderboard

All of it stands in RUN itself. What was decided before the first step is in recipe.json, so that a
run that goes on, or is finished early, takes up the same network.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.common.errors import InputError
from proxnas.domains.images.fitting import FitConfig
from proxnas.workflows.fit_board import say_sheet, simple_models, with_sheet
from proxnas.workflows.fit_delivery import deliver_pass
from proxnas.workflows.fit_plan import RECIPE, SPACE, Say, check_asked, make_plan, usual_seconds

if TYPE_CHECKING:
    from proxnas.domains.images.data.images import Images
    from proxnas.domains.images.one_pass import OnePass
    from proxnas.domains.images.recipe import Plan
    from proxnas.runs.folder import Run

AUTO = "auto"
OF_CELLS = ("eta", "search_epochs", "epochs", "cells", "search_config", "train_config")
"""Flags of a search that is followed by a training."""


def is_one_pass(config: FitConfig) -> bool:
    """Whether the fit is one run by the clock; else it is a search, then a training: in the spaces
    of cells, by other methods, and where flags are given that only such a fit has."""
    if config.space not in (AUTO, SPACE):
        return False
    # whoever asks for a method, a protocol or more processes wants a search of its own
    usual = config.method == "nasp" and config.protocol == "auto" and config.processes == 1
    usual = usual and config.cost == "auto"
    return usual and not any(getattr(config, name) for name in OF_CELLS)


def fit_minutes(
    config: FitConfig,
    folder: Path,
    say: Say,
    clock: Callable[[], float] = time.monotonic,
    begun: float | None = None,
) -> dict[str, Any]:
    """The whole of it, from where the folder stands. Returns what result.json holds.

    `begun`: since when, by the clock, the time counts; None: since now.
    """
    from proxnas.domains.images.data.images import load
    from proxnas.runs.folder import open_run
    from proxnas.runs.lengthening import store

    # a command counts from the start of its process: imports take seconds too
    start = (clock(), time.process_time()) if begun is None else (begun, 0.0)
    images = load(config.data, config.load_options())  # before the folder is touched
    check_asked(config, images)
    with open_run(folder, config.resume or config.finish, config.force) as run:
        if config.finish and not (run / "checkpoint.pt").exists() and not run.finished:
            raise InputError(f"{folder}: holds no run to finish: leave --finish out to begin one")
        store(config, "fit", run)
        if run.finished:
            return run.result(("exported", "model_card", "search", "train"))
        return _pass_in(run, config, images, start, clock, say)


def _pass_in(
    run: Run,
    config: FitConfig,
    images: Images,
    start: tuple[float, float],
    clock: Callable[[], float],
    say: Say,
) -> dict[str, Any]:
    """One step after the other, as the head of this file draws them."""
    from proxnas.common.environment import describe, pick_device
    from proxnas.runs.same_data import check_data

    run.write_json("environment.json", describe(pick_device(config.device)))
    sheet = say_sheet(images, say)
    _say_usual_time(config, run, images, say)
    simple = simple_models(run, images)
    plan = make_plan(config, run, images, simple, start, clock, say)
    job = _planned_pass(config, plan, images, clock)
    check_data(run, job.fingerprint)
    seconds = _run_pass(config, job, run)
    result = with_sheet(deliver_pass(config, job, run, simple, seconds, say), sheet)
    result["minutes"] = config.minutes or None
    run.write_json("result.json", result)
    return result


def _say_usual_time(config: FitConfig, run: Run, images: Images, say: Say) -> None:
    """How long it will take, where nobody asked for a time: said before anything takes long."""
    if not config.minutes and not (run / RECIPE).exists():
        count = len(images.y_train)
        usual = usual_seconds(count) / 60
        say(f"{usual:.3g} minutes, as {count:,} images ask for (--minutes M: another time)")


def _planned_pass(
    config: FitConfig, plan: Plan, images: Images, clock: Callable[[], float]
) -> OnePass:
    """The job of a plan that was made just now, on images as large as the plan has them."""
    from proxnas.domains.images.data.images import load

    planned = clock()
    if plan.image_size and plan.image_size != config.image_size:
        sized = dataclasses.replace(config, image_size=plan.image_size)
        images = load(sized.data, sized.load_options())
    job = build_pass(plan, images, clock)
    # images that are read at another size, and operations that are timed for a limit, take time
    job.pace.begin(planned)
    return job


def _run_pass(config: FitConfig, job: OnePass, run: Run) -> float:
    """Steps from where the run stands to the end of its time; the seconds of all its epochs."""
    from rich.console import Console

    from proxnas.runs.loop import run_epochs
    from proxnas.runs.progress import shown

    if config.finish:
        finish(job, run)
    title = f"{SPACE} seed {config.seed}"
    pace = job.pace
    with shown(
        Console(highlight=False), title, config.quiet, lambda: (pace.used(), pace.given())
    ) as bar:
        rows = run_epochs(job, run, bar)
    return sum(sum(row["seconds"].values()) for row in rows)


def build_pass(plan: Plan, images: Images, clock: Callable[[], float]) -> OnePass:
    """The job."""
    from proxnas.domains.images.one_pass import OnePass

    return OnePass(plan, images, clock=clock)


def finish(job: OnePass, run: Run) -> None:
    """The stopped run is at its end where it stands."""
    state = run.load_checkpoint()
    assert state is not None, "asked for before"
    job.load_state_dict(state)
    job.pace.finish()
