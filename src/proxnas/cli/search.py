"""`proxnas search`: one search, or several with --seeds."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

from proxnas.common.errors import InputError
from proxnas.common.launch import check_flags
from proxnas.common.quantities import shown_budget
from proxnas.common.say import say
from proxnas.methods import SAMPLING
from proxnas.runs.deadline import Deadline, deadline_of
from proxnas.runs.executors.choice import check
from proxnas.runs.processes import run_together, to_start
from proxnas.searching.options import SearchConfig
from proxnas.searching.settings import epochs_given, flags_of, parse_resumed, parse_search
from proxnas.workflows.folders import data_word, run_folder
from proxnas.workflows.jobs import build_search, fitted_to_minutes, run_search, store
from proxnas.workflows.train_settings import stored

ALONE: dict[str, Any] = {"workers": 1, "ray": "", "cpus_per_task": 0, "gpus_per_task": -1.0}
"""One of several searches: the workers are for all of them together."""


def main(argv: list[str]) -> None:
    """Parses the flags and runs the search."""
    config = parse_search(argv)
    if number := to_start(config.processes):
        run_together(["search", *argv], number)
        return
    _check_together(config)
    if config.dry_run:
        _dry_run(config)
        return
    check_workers(config)
    folder = run_folder(
        config, default_folder(config), parse_search, "data", "space", "method", "seed", "seeds"
    )
    begun = (folder / "config.json").exists()
    new = config.force or not begun
    deadline = deadline_of(config.minutes)
    if new and config.minutes and not epochs_given(argv, SearchConfig):
        config = fitted_to_minutes(config, deadline)
    if config.resume and begun:
        config = parse_resumed(argv, stored(folder, "search", SearchConfig), folder)
        _check_together(dataclasses.replace(config, minutes=0.0))  # the epochs were chosen then
        deadline = deadline_of(config.minutes)
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one,
    # and is told first
    built = build_search(config) if new or not config.resume else None
    result = (
        _many(config, folder, deadline)
        if config.seeds
        else run_search(config, folder, built, deadline)
    )
    _print_result(result, folder)


def _check_together(config: SearchConfig) -> None:
    """An InputError for what several processes cannot do: what each would measure or draw
    differently, or alone."""
    check_flags(
        dry_run=config.dry_run,
        seeds=config.seeds,
        minutes=config.minutes,
        workers=config.workers if config.workers > 1 else 0,
        ray=config.ray,
        evaluate=config.evaluate if config.evaluate == "table" else "",
        method=config.method if config.method == "bayesnas" else "",
        max_latency=config.max_latency,
        cost=config.cost if config.cost == "latency" else "",
    )


def check_workers(config: SearchConfig) -> None:
    """An InputError if there is nothing that workers could do at the same time, or if they cannot
    be had."""
    given = f"--ray {config.ray}" if config.ray else f"--workers {config.workers}"
    if config.at_once and not config.seeds and config.method not in SAMPLING:
        raise InputError(
            f"{given}: one search by {config.method} is one task: give --seeds, or leave it out"
        )
    if config.at_once and not config.seeds and config.evaluate == "table":
        raise InputError(f"{given}: --evaluate table only looks cells up: leave it out")
    check(config)


def default_folder(config: SearchConfig) -> str:
    """runs/search-<data>-<space>-<method>-<seed>."""
    seeds = "-".join(str(seed) for seed in config.all_seeds())
    return f"runs/search-{data_word(config.data)}-{config.space}-{config.method}-{seeds}"


def _many(config: SearchConfig, folder: Path, deadline: Deadline) -> dict[str, Any]:
    """A search a seed, each in a folder of its own; a finished one is not run again. They share the
    time equally."""
    from proxnas.runs.folder import open_run, write_atomically

    folders = {seed: folder / f"seed-{seed}" for seed in config.all_seeds()}
    with open_run(folder, config.resume, config.force) as run:
        if (
            config.force
        ):  # all at once, or a later --resume would find seeds of the earlier run finished
            for place in folders.values():
                with open_run(place, force=True):
                    pass
        store(config, "search", run)
        parts = {
            dataclasses.replace(
                config, seed=seed, seeds="", pick=False, force=False, minutes=0.0, **ALONE
            ): place
            for seed, place in folders.items()
        }
        if config.at_once:
            _at_once(config, parts, deadline)
        resume = config.resume or config.at_once
        results: list[dict[str, Any]] = []
        for part, place in parts.items():
            share = Deadline(deadline.left() / (len(parts) - len(results)))
            results.append(
                run_search(dataclasses.replace(part, resume=resume), place, deadline=share)
            )
        result = _summary(results, config.pick)
        if config.pick:
            write_atomically(run / "genotype.json", json.dumps(result["genotype"], indent=2) + "\n")
        run.write_json("result.json", result)
        return result


def _at_once(config: SearchConfig, parts: dict[SearchConfig, Path], deadline: Deadline) -> None:
    """Fills the folders by several processes; what failed is said here."""
    from rich.console import Console

    from proxnas.runs.executors.choice import make
    from proxnas.runs.executors.progress import shown
    from proxnas.runs.executors.tasks import Task, check_done, share_time

    tasks = [
        Task(
            f"{part.method} seed {part.seed}",
            ("search", *flags_of(dataclasses.replace(part, threads="auto"))),
            place,
        )
        for part, place in parts.items()
    ]
    with shown(
        Console(highlight=False), f"{len(tasks)} searches", len(tasks), config.quiet
    ) as board:
        timed = share_time(tasks, deadline, config.workers)
        check_done(make(config, config.threads).run(timed, board, lambda outcome: None))


def _summary(results: list[dict[str, Any]], pick: bool) -> dict[str, Any]:
    """Mean and spread over seeds; with `pick` the best by validation, at the cost of all."""
    accurate = "valid_accuracy" in results[0]
    key, plural = (
        ("valid_accuracy", "valid_accuracies")
        if accurate
        else ("valid_perplexity", "valid_perplexities")
    )
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


def _print_result(result: dict[str, Any], folder: Path) -> None:
    from proxnas.report.terminal import print_cell, print_summary, print_warning

    print_cell(result)
    more: dict[str, object] = {}
    if result.get("budget"):
        more["limit"] = shown_budget(result["budget"])
    if "table" in result:
        more["table"] = "  ".join(f"{name} {value}" for name, value in result["table"].items())
    if "refined" in result:
        better = (
            "one of the neighbours is better"
            if result["refined"]["changed"]
            else "no neighbour is clearly better"
        )
        more["refined"] = f"{better} after a short training"
    if "mean" in result:
        more[f"over seeds {', '.join(map(str, result['seeds']))}"] = (
            f"{result['mean']:.4f} +- {result['std']:.4f}"
        )
    print_summary(result, folder, more)
    print_warning(result)


def _dry_run(config: SearchConfig) -> None:
    from proxnas.workflows.plan import plan, plan_text

    if config.seeds:
        raise InputError("--dry-run: one search at a time, leave --seeds out")
    figures = plan(config)
    say(json.dumps(figures, indent=2) if config.json else plan_text(figures))
