"""One search in its folder: options and a folder go in, a result comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.cells.table import check_table
from proxnas.common.options import changed, flatten
from proxnas.domains import load_for_search
from proxnas.methods.options import SamplesCells
from proxnas.runs.folder import CELL, EVALUATIONS
from proxnas.runs.jobs import by_processes, run_job
from proxnas.runs.processes import to_start
from proxnas.searching.evaluations import run_evaluations
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.outcome import search

if TYPE_CHECKING:
    from proxnas.domains.domain import Data
    from proxnas.runs.deadline import Deadline


def build_search(config: SearchOptions, data: Data | None = None) -> Search:
    """The search that is described, after all input was found good; `data`: what DATA names, if it
    was read before."""
    if config.table:
        check_table(Path(config.table))
    first = config.job.all_seeds()[0]
    data = data or load_for_search(config.space, config.data, config)
    return Search(changed(config, seed=first), data)


def search_in(
    folder: Path,
    config: SearchOptions,
    built: Search | None = None,
    deadline: Deadline | None = None,
    to_be_refined: bool = False,
    settle: Callable[[Search], Search] = lambda built: built,
) -> dict[str, Any]:
    """One search in its folder, without a refinement; a finished one is not run again. It ends when
    the deadline is over. `settle`: what is found out before its first step."""
    if number := to_start(config.job.processes):
        return by_processes(config, "search", folder, number)
    title = f"{config.method} {config.space} seed {config.seed}"

    def build() -> Search:
        return settle(_build_in(folder, config, built))

    if by_workers(config, folder):
        work = partial(search, deadline=deadline, loop=run_evaluations)
        return run_job(config, "search", folder, title, build, work, quiet=True)
    work = partial(search, deadline=deadline, last=not to_be_refined)
    return run_job(config, "search", folder, title, build, work)


def _build_in(folder: Path, config: SearchOptions, built: Search | None) -> Search:
    if built:
        return built
    begun = config.job.resume and (folder / "checkpoint.pt").exists()
    # what it began with is in the checkpoint; the file of --start may be gone
    return build_search(without_start(config) if begun else config)


def without_start(config: SearchOptions) -> SearchOptions:
    """The same from a random cell, where the method may begin with a given one."""
    return changed(config, start="") if "start" in flatten(config) else config


def by_workers(config: SearchOptions, folder: Path) -> bool:
    """Whether cells are evaluated by workers: as asked for, or as the search in the folder was
    begun."""
    own = config.method_options
    begun = not config.job.force and any((folder / EVALUATIONS).glob(f"*/{CELL}"))
    trains_cells = isinstance(own, SamplesCells) and own.evaluate == "train"
    return trains_cells and (config.workers_options.at_once or begun)
