"""One search by several seeds, each in a folder of its own, and the mean or the best of them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from proxnas.common.errors import OptionError
from proxnas.common.options import changed
from proxnas.common.words import words_for
from proxnas.runs.deadline import Deadline
from proxnas.runs.executors.choice import check_executor
from proxnas.runs.lengthening import store
from proxnas.runs.options import storable
from proxnas.searching.options import SearchOptions
from proxnas.workflows.jobs import run_search

ALONE: dict[str, Any] = {
    **{"seeds": "", "pick": False, "force": False, "minutes": 0.0},
    **{"workers": 1, "ray": "", "cpus_per_task": 0, "gpus_per_task": -1.0},
}
"""One of several searches: the time and the workers are for all of them together."""


def by_table(config: SearchOptions) -> bool:
    """Whether cells are looked up, not trained."""
    return getattr(config.method_options, "evaluate", "train") == "table"


def check_workers(config: SearchOptions) -> None:
    """An InputError if there is nothing that workers could do at the same time, or if they cannot
    be had."""
    name = "ray" if config.ray else "workers"
    if config.at_once and not config.job.seeds:
        if not config.method_options.traits.samples_cells:
            advice = f"one search by {config.method} is one task: give {{seeds}}, or leave it out"
            raise OptionError(name, getattr(config, name), advice)
        if by_table(config):
            advice = "{evaluate} table only looks cells up: leave it out"
            raise OptionError(name, getattr(config, name), advice)
    check_executor(config.workers_options)


def search_seeds(config: SearchOptions, folder: Path, deadline: Deadline) -> dict[str, Any]:
    """A search a seed, each in a folder of its own; a finished one is not run again. They share the
    time equally."""
    from proxnas.runs.folder import open_run, write_atomically

    folders = {seed: folder / f"seed-{seed}" for seed in config.all_seeds()}
    with open_run(folder, config.resume, config.force) as run:
        if config.force:
            # all at once, or a later --resume would find seeds of the earlier run finished
            for place in folders.values():
                with open_run(place, force=True):
                    pass
        store(config, "search", run)
        parts: dict[SearchOptions, Path] = {}
        for seed, place in folders.items():
            part = changed(config, seed=seed, **ALONE)
            parts[part] = place
        if config.at_once:
            _at_once(config, parts, deadline)
        resume = config.resume or config.at_once
        results: list[dict[str, Any]] = []
        for part, place in parts.items():
            # what an early stop leaves is for the others
            share = Deadline(deadline.left() / (len(parts) - len(results)))
            results.append(run_search(changed(part, resume=resume), place, deadline=share))
        result = _summary(results, config.pick)
        if config.pick:
            write_atomically(run / "genotype.json", json.dumps(result["genotype"], indent=2) + "\n")
        run.write_json("result.json", result)
        return result


def _at_once(config: SearchOptions, parts: dict[SearchOptions, Path], deadline: Deadline) -> None:
    """Fills the folders by several processes; what failed is said here."""
    from rich.console import Console

    from proxnas.runs.executors.choice import make_executor
    from proxnas.runs.executors.progress import show_board
    from proxnas.runs.executors.tasks import RunTask, check_done, share_time

    tasks = [
        RunTask(
            f"{part.method} seed {part.seed}",
            ("search", *words_for(storable(changed(part, threads="auto")))),
            place,
        )
        for part, place in parts.items()
    ]
    with show_board(
        Console(highlight=False), f"{len(tasks)} searches", len(tasks), config.quiet
    ) as board:
        timed = share_time(tasks, deadline, config.workers)
        check_done(
            make_executor(config.workers_options, config.threads).run(
                timed, board, lambda outcome: None
            )
        )


def _summary(results: list[dict[str, Any]], pick: bool) -> dict[str, Any]:
    """Mean and spread over seeds; with `pick` the best by validation, at the cost of all."""
    accurate = "valid_accuracy" in results[0]
    if accurate:
        key, plural = ("valid_accuracy", "valid_accuracies")
    else:
        key, plural = ("valid_perplexity", "valid_perplexities")
    figures = [result[key] for result in results]
    several = {
        "seeds": [result["seed"] for result in results],
        plural: figures,
        "mean": statistics.mean(figures),
        "std": statistics.stdev(figures) if len(figures) > 1 else 0.0,
        "seconds": sum(result["seconds"] for result in results),
        "epochs": sum(result["epochs"] for result in results),
    }
    if pick:
        return (max if accurate else min)(results, key=lambda result: result[key]) | several
    return {key: results[0][key] for key in ("method", "space", "data")} | several
