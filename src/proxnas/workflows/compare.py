"""A study: one folder a run, filled by an executor, and what is read out of them all. A comparison
is one of methods.

RUN/search/<name>-<seed> and RUN/train/<name>-<seed> are ordinary runs. Tables are written anew
whenever one ends, so that a look in the middle shows what there is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from proxnas.common.errors import InputError
from proxnas.common.options import changed
from proxnas.common.words import words_for
from proxnas.report import comparison, tables
from proxnas.report.comparison import Plan, read_plan
from proxnas.runs.deadline import Deadline, deadline_of
from proxnas.runs.executors.choice import make
from proxnas.runs.executors.progress import shown
from proxnas.runs.executors.tasks import Outcome, Task, share_time
from proxnas.runs.lengthening import store
from proxnas.searching.defaults import resolve
from proxnas.workflows.compare_options import CompareConfig, search_values
from proxnas.workflows.study_options import StudyConfig, train_argv, train_values

NO_TIME = (
    "--minutes {}: the time was over before it began: give the same command more, and it goes on"
)


@dataclass(frozen=True)
class Study:
    """What one command makes of its runs."""

    names: list[str]
    search_values: Callable[[str, int], dict[str, Any]]
    """(name, seed) -> what the search is asked for."""
    first: str
    """The name whose search is built before any is run, to find what it would refuse."""
    write: Callable[[Path, Sequence[Outcome]], list[dict[str, Any]]]
    """Tables from the runs that are finished; returns the rows."""
    draw: Callable[[Path], object]


def search_tasks(study: Study, plan: Plan, folder: Path) -> list[Task]:
    """A search a name and seed."""
    return [
        Task(
            f"{name} seed {seed}",
            ("search", *words_for(study.search_values(name, seed))),
            folder / "search" / f"{name}-{seed}",
        )
        for name, seed in plan.runs()
    ]


def train_tasks(config: StudyConfig, plan: Plan, folder: Path) -> list[Task]:
    """The cell of each finished search, trained under the seed that found it."""
    found = {run: folder / "search" / f"{run[0]}-{run[1]}" for run in plan.runs()}
    return [
        Task(
            f"train {name} seed {seed}",
            tuple(train_argv(config, cell, seed)),
            folder / "train" / cell.name,
        )
        for (name, seed), cell in found.items()
        if config.train and (cell / "result.json").exists()
    ]


def check(study: Study, config: StudyConfig) -> None:
    """An InputError for anything that a run would refuse, before the first is begun."""
    from proxnas.searching.running import build_search

    seed = config.all_seeds()[0]
    searches = {name: resolve(study.search_values(name, seed)) for name in study.names}
    train_values(config)
    build_search(changed(searches[study.first], device=config.device))


def compare(config: CompareConfig, folder: Path) -> list[Outcome]:
    """Methods side by side."""
    names = config.all_methods()

    def draw(place: Path) -> object:
        from proxnas.report import comparison_figures

        return comparison_figures.draw(comparison.read(place), place)

    study = Study(
        names, partial(search_values, config), names[0], partial(write, config.space), draw
    )
    return fill(study, config, folder)


def fill(study: Study, config: StudyConfig, folder: Path) -> list[Outcome]:
    """Runs what is not finished and writes tables and figures; returns how each run ended."""
    from proxnas.common.environment import describe, pick_device
    from proxnas.runs.folder import open_run

    deadline = deadline_of(config.minutes)
    if config.force or not (folder / "config.json").exists():
        check(study, config)  # before the folder is touched
    with open_run(folder, resume=not config.force, force=config.force) as run:
        if config.force:
            _clear(folder)
        store(config, config.COMMAND, run)
        if not (run / "plan.json").exists():
            run.write_json("plan.json", dataclasses.asdict(Plan(study.names, config.all_seeds())))
        plan = read_plan(folder)
        for name in plan.methods:
            if name not in study.names:
                raise InputError(
                    f"{folder / 'plan.json'}: {name} is not among what config.json names:"
                    " restore it"
                )
        run.write_json("environment.json", describe(pick_device(config.device)))
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            study.write(folder, outcomes)

        searches = search_tasks(study, plan, folder)
        _run(config, searches, done, deadline, later=len(searches) if config.train else 0)
        _run(config, train_tasks(config, plan, folder), done, deadline)
        rows = study.write(folder, outcomes)
        study.draw(folder)
        if not any(outcome.code for outcome in outcomes):  # else the next call tries them again
            run.write_json(
                "result.json", {"data": config.data, "space": config.space, "rows": rows}
            )
        return outcomes


def _run(
    config: StudyConfig,
    tasks: list[Task],
    done: Callable[[Outcome], None],
    deadline: Deadline,
    later: int = 0,
) -> None:
    """The tasks that are not finished; the others would only have the tables written again."""
    from proxnas.common.environment import in_turn

    left = [task for task in tasks if not task.finished]
    if left:
        ended = len(tasks) - len(left)
        with shown(
            Console(highlight=False), f"{len(tasks)} runs", len(tasks), config.quiet, ended
        ) as board:
            timed = share_time(left, deadline, config.workers, later)
            outcomes = make(config, config.threads, in_turn(config.device, config.workers)).run(
                timed, board, done
            )
            begun = {outcome.task.folder for outcome in outcomes}
            for task in left:
                if task.folder not in begun:
                    done(Outcome(task, 2, NO_TIME.format(config.minutes)))


def _clear(folder: Path) -> None:
    """All at once, or the next call would find runs of the earlier study finished."""
    from proxnas.runs.folder import open_run

    for place in [*folder.glob("search/*/config.json"), *folder.glob("train/*/config.json")]:
        with open_run(place.parent, force=True):
            pass


def write(space: str, folder: Path, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """table.md, table.csv, table.json and tests.json from the runs that are finished."""
    from proxnas.runs.folder import write_atomically

    found = comparison.read(folder)
    rows = comparison.rows(found, operations(space))
    said = failures(outcomes)
    for name, content in tables.files(found, rows, said).items():
        write_atomically(folder / name, content)
    return rows


def failures(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Name of a run that failed -> what it said."""
    return {outcome.task.name: outcome.message for outcome in outcomes if outcome.code}


def operations(space: str) -> int:
    """How many candidates the space has, as the paper counts: of all its cells together."""
    from proxnas.domains import spaces

    return len({name for group in spaces.find(space).groups.values() for name in group.candidates})
