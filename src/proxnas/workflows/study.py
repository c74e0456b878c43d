"""A study: one folder a run, filled by an executor, and what is read out of them all.

RUN/search/<name>-<seed> and RUN/train/<name>-<seed> are ordinary runs. Tables are written anew
whenever one ends, so that a look in the middle shows what there is.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from proxnas.common.errors import InputError
from proxnas.common.options import changed
from proxnas.common.words import words_for
from proxnas.report.comparison import Row, StudyPlan, better, read_plan
from proxnas.report.page import FILE as PAGE
from proxnas.report.page import write_report
from proxnas.report.reading import find_runs
from proxnas.runs.deadline import Deadline, deadline_of
from proxnas.runs.executors.choice import check_executor, make_executor
from proxnas.runs.executors.progress import show_board
from proxnas.runs.executors.tasks import Outcome, RunTask, check_done, share_time
from proxnas.runs.lengthening import store
from proxnas.runs.options import storable, stored
from proxnas.searching.defaults import resolve
from proxnas.workflows.folders import keep_in
from proxnas.workflows.study_options import AnyStudy, StudyConfig, train_argv, train_values

if TYPE_CHECKING:
    from proxnas.runs.folder import Run

NO_TIME = "the {} minutes were over before it began: give the same command more, and it goes on"


@dataclass(frozen=True)
class Study:
    """What one command makes of its runs."""

    names: list[str]
    search_values: Callable[[str, int], dict[str, Any]]
    """(name, seed) -> what the search is asked for."""
    first: str
    """The name whose search is built before any is run, to find what it would refuse."""
    write: Callable[[Path, Sequence[Outcome]], list[Row]]
    """Tables from the runs that are finished; returns the rows."""
    draw: Callable[[Path], object]


def search_tasks(study: Study, plan: StudyPlan, folder: Path) -> list[RunTask]:
    """A search a name and seed."""
    return [
        RunTask(
            f"{name} seed {seed}",
            ("search", *words_for(study.search_values(name, seed))),
            folder / "search" / f"{name}-{seed}",
        )
        for name, seed in plan.runs()
    ]


def train_tasks(config: StudyConfig, plan: StudyPlan, folder: Path) -> list[RunTask]:
    """The cell of each finished search, trained under the seed that found it."""
    # a cell is trained where its search is finished, and only then
    found = {run: folder / "search" / f"{run[0]}-{run[1]}" for run in plan.runs()}
    return [
        RunTask(
            f"train {name} seed {seed}",
            tuple(train_argv(config, cell, seed)),
            folder / "train" / cell.name,
        )
        for (name, seed), cell in found.items()
        if config.train and (cell / "result.json").exists()
    ]


def check_study(study: Study, config: StudyConfig) -> None:
    """An InputError for anything that a run would refuse, before the first is begun."""
    from proxnas.searching.running import build_search

    # one seed stands for all: options do not depend on it
    seed = config.all_seeds()[0]
    # all of them are resolved, which is quick; one is built, which reads the data
    searches = {name: resolve(study.search_values(name, seed)) for name in study.names}
    train_values(config)
    build_search(changed(searches[study.first], device=config.device))


@dataclass(frozen=True)
class StudyResult:
    """What a comparison or a sweep has found."""

    path: Path
    """The folder of its runs, tables and figures."""
    rows: list[Row]
    """A row a method or setting, as in table.json: mean, std, params_mean, ..."""
    outcomes: tuple[Outcome, ...] = ()
    """How each run ended that this call has made."""

    @property
    def table(self) -> str:
        """All of it for people, in Markdown."""
        return (self.path / "table.md").read_text(encoding="utf-8")

    @property
    def failed(self) -> dict[str, str]:
        """Name of a run that failed -> what it said; the same call tries it again."""
        return failures(self.outcomes)

    @property
    def best(self) -> Row:
        """The row with the best mean."""
        if not self.rows:
            # what failed is a better reason than that nothing ended
            check_done(list(self.outcomes))
            raise InputError(f"{self.path}: no run has ended yet, so none is the best")
        is_better = better(self.rows[0]["figure"])
        found = self.rows[0]
        for row in self.rows[1:]:
            if is_better(row["mean"], found["mean"]):
                found = row
        return found

    def report(self, path: str | os.PathLike[str] = "") -> Path:
        """Writes the page of all its runs, report.html in its folder unless named; returns the
        file."""
        return write_report(find_runs(self.path), Path(path) if path else self.path / PAGE)


def fill(study: Study, config: StudyConfig, folder: Path) -> StudyResult:
    """Runs what is not finished and writes tables and figures."""
    from proxnas.common.environment import describe, pick_device
    from proxnas.runs.folder import open_run

    deadline = deadline_of(config.minutes)
    if config.force or not (folder / "config.json").exists():
        check_study(study, config)  # before the folder is touched
    with open_run(folder, resume=not config.force, force=config.force) as run:
        if config.force:
            _clear(folder)
        store(config, config.COMMAND, run)
        plan = _plan_of(run, study, config)
        run.write_json("environment.json", describe(pick_device(config.device)))
        outcomes: list[Outcome] = []

        # after every run, so that a look at the folder in the middle shows what there is
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
        return StudyResult(folder, rows, tuple(outcomes))


def _plan_of(run: Run, study: Study, config: StudyConfig) -> StudyPlan:
    """Which runs there are: as the first call of the study had it, whatever `all` is by now."""
    if not (run / "plan.json").exists():
        run.write_json("plan.json", dataclasses.asdict(StudyPlan(study.names, config.all_seeds())))
    plan = read_plan(run.folder)
    for name in plan.methods:
        if name not in study.names:
            raise InputError(
                f"{run / 'plan.json'}: {name} is not among what config.json names: restore it"
            )
    return plan


def _run(
    config: StudyConfig,
    tasks: list[RunTask],
    done: Callable[[Outcome], None],
    deadline: Deadline,
    later: int = 0,
) -> None:
    """The tasks that are not finished; the others would only have the tables written again."""
    from proxnas.common.environment import in_turn

    left = [task for task in tasks if not task.finished]
    if left:
        ended = len(tasks) - len(left)
        with show_board(
            Console(highlight=False), f"{len(tasks)} runs", len(tasks), config.quiet, ended
        ) as board:
            timed = share_time(left, deadline, config.workers, later)
            outcomes = make_executor(
                config, config.threads, in_turn(config.device, config.workers)
            ).run(timed, board, done)
            # the time may be over before all are begun: the others are told of as runs that failed
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


def failures(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Name of a run that failed -> what it said."""
    return {outcome.task.name: outcome.message for outcome in outcomes if outcome.code}


def operations(space: str) -> int:
    """How many candidates the space has, as the paper counts: of all its cells together."""
    from proxnas.domains import spaces

    return len({name for group in spaces.find(space).groups.values() for name in group.candidates})


def study_in_python(
    cls: type[AnyStudy],
    work: Callable[[AnyStudy, Path], StudyResult],
    data: Any,
    run: str | os.PathLike[str] | None,
    progress: bool,
    options: dict[str, Any],
) -> StudyResult:
    """A study that a program asks for: in its folder, or in a new one in the system's place for
    such things."""
    from proxnas.common.environment import pick_device
    from proxnas.runs.guest import as_guest

    made = f"proxnas-{cls.COMMAND}-"
    folder = Path(run) if run is not None else Path(tempfile.mkdtemp(prefix=made))
    values: dict[str, Any] = {"quiet": not progress}
    for name, value in options.items():
        # as the command line writes lists
        values[name] = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    values |= keep_in(folder, data, values)
    if not values.get("force") and (folder / "config.json").exists():
        values = storable(stored(folder, cls.COMMAND, cls)) | values
    config = cls.from_values(values)
    check_executor(config)
    with as_guest(pick_device(config.device)):
        return work(config, folder)
