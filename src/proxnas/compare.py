"""A comparison: one folder a run, filled by an executor, and what is read out of them all.

RUN/search/<method>-<seed> and RUN/train/<method>-<seed> are ordinary runs. Tables are written anew whenever one ends,
so that a look in the middle shows what there is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from proxnas.compare_config import CompareConfig, search_argv, train_argv, train_values
from proxnas.executor import Outcome, Task, make
from proxnas.jobs import build_search, store
from proxnas.many_progress import shown
from proxnas.report import comparison, tables
from proxnas.settings import parse_search


@dataclass(frozen=True)
class Plan:
    """Which runs a comparison has. Kept beside its configuration: `all` may be more in a later version."""

    methods: list[str]
    seeds: list[int]

    def runs(self) -> Iterator[tuple[str, int]]:
        """(method, seed), seed by seed, so that an early look has something of every method."""
        return ((name, seed) for seed in self.seeds for name in self.methods)


def search_tasks(config: CompareConfig, plan: Plan, folder: Path) -> list[Task]:
    """A search a method and seed."""
    return [
        Task(f"{name} seed {seed}", tuple(search_argv(config, name, seed)), folder / "search" / f"{name}-{seed}")
        for name, seed in plan.runs()
    ]


def train_tasks(config: CompareConfig, plan: Plan, folder: Path) -> list[Task]:
    """The cell of each finished search, trained under the seed that found it."""
    found = {run: folder / "search" / f"{run[0]}-{run[1]}" for run in plan.runs()}
    return [
        Task(f"train {name} seed {seed}", tuple(train_argv(config, cell, seed)), folder / "train" / cell.name)
        for (name, seed), cell in found.items()
        if config.train and (cell / "result.json").exists()
    ]


def check(config: CompareConfig) -> None:
    """An InputError for anything that a run would refuse, before the first is begun."""
    seed = config.all_seeds()[0]
    parsed = [parse_search(search_argv(config, name, seed)[1:]) for name in config.all_methods()]
    train_values(config)
    build_search(dataclasses.replace(parsed[0], device=config.device))


def compare(config: CompareConfig, folder: Path) -> list[Outcome]:
    """Runs what is not finished and writes tables and figures; returns how each run ended."""
    from proxnas.environment import describe, pick_device
    from proxnas.report.comparison_figures import draw
    from proxnas.run import open_run

    if config.force or not (folder / "config.json").exists():
        check(config)  # before the folder is touched
    with open_run(folder, resume=not config.force, force=config.force) as run:
        if config.force:
            _clear(folder)
        store(config, "compare", run)
        if not (run / "plan.json").exists():
            run.write_json("plan.json", dataclasses.asdict(Plan(config.all_methods(), config.all_seeds())))
        plan = Plan(**run.read_json("plan.json"))
        run.write_json("environment.json", describe(pick_device(config.device)))
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            write(folder, config, outcomes)

        _run(config, search_tasks(config, plan, folder), done)
        _run(config, train_tasks(config, plan, folder), done)
        rows = write(folder, config, outcomes)
        draw(comparison.read(folder), folder)
        if not any(outcome.code for outcome in outcomes):  # else the next call tries them again
            run.write_json("result.json", {"data": config.data, "space": config.space, "rows": rows})
        return outcomes


def _run(config: CompareConfig, tasks: list[Task], done: Callable[[Outcome], None]) -> None:
    """The tasks that are not finished; the others would only have the tables written again."""
    devices = _devices(config)
    left = [dataclasses.replace(task, gpus=int(bool(devices))) for task in tasks if not task.finished]
    if left:
        with shown(Console(highlight=False), f"{len(left)} runs", len(left), config.quiet) as board:
            make(config.workers, config.threads, devices).run(left, board, done)


def _devices(config: CompareConfig) -> list[str]:
    """The accelerators that workers take in turn, if there are several and none is named."""
    import torch

    if config.device != "auto" or config.workers == 1 or not torch.accelerator.is_available():
        return []
    accelerator = torch.accelerator.current_accelerator()
    kind = accelerator.type if accelerator else "cpu"
    return [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]


def _clear(folder: Path) -> None:
    """All at once, or the next call would find runs of the earlier comparison finished."""
    from proxnas.run import open_run

    for place in [*folder.glob("search/*/config.json"), *folder.glob("train/*/config.json")]:
        with open_run(place.parent, force=True):
            pass


def write(folder: Path, config: CompareConfig, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """table.md, table.csv, table.json and tests.json from the runs that are finished."""
    from proxnas.run import write_atomically

    found = comparison.read(folder)
    rows = comparison.rows(found, operations(config.space))
    said = {outcome.task.name: outcome.message for outcome in outcomes if outcome.code}
    for name, content in tables.files(found, rows, said).items():
        write_atomically(folder / name, content)
    return rows


def operations(space: str) -> int:
    """How many candidates the space has, as the paper counts: of all its cells together."""
    from proxnas import spaces

    return len({name for group in spaces.find(space).groups.values() for name in group.candidates})
