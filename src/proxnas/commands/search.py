"""`proxnas search`: one search, or several with --seeds."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from proxnas import __version__
from proxnas.config import SearchConfig
from proxnas.errors import InputError
from proxnas.settings import check_same, parse_resumed, parse_search, read_values, storable
from proxnas.table import check

if TYPE_CHECKING:
    from proxnas.run import Run
    from proxnas.search import Search


def main(argv: list[str]) -> None:
    """Parses the flags and runs the search."""
    config = parse_search(argv)
    if config.dry_run:
        _dry_run(config)
        return
    folder = Path(config.run or default_folder(config))
    stored = folder / "config.json"
    if config.resume and stored.exists():
        config = parse_resumed(argv, SearchConfig(**read_values(stored)), folder)
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one
    built = _build(config) if config.force or not stored.exists() else None
    result = _many(config, folder) if config.seeds else _one(config, folder, built)
    _print_result(result, folder)


def default_folder(config: SearchConfig) -> str:
    """runs/search-<data>-<space>-<method>-<seed>."""
    data = re.sub(r"[^A-Za-z0-9_]+", "-", Path(config.data).stem).strip("-") or "data"
    seeds = "-".join(str(seed) for seed in config.all_seeds())
    return f"runs/search-{data}-{config.space}-{config.method}-{seeds}"


def _build(config: SearchConfig) -> Search:
    from proxnas.data.images import load
    from proxnas.search import Search

    if config.table:
        check(Path(config.table))
    return Search(dataclasses.replace(config, seed=config.all_seeds()[0]), load(config.data, config.load_options()))


def _one(config: SearchConfig, folder: Path, built: Search | None = None) -> dict[str, Any]:
    from proxnas.progress import shown
    from proxnas.run import open_run
    from proxnas.search import search

    with open_run(folder, config.resume, config.force) as run:
        _store(config, run)
        with shown(Console(highlight=False), f"{config.method} {config.space} seed {config.seed}", config.quiet) as bar:
            return search(built or _build(config), run, bar) if not run.finished else run.read_json("result.json")


def _store(config: SearchConfig, run: Run) -> None:
    if (run / "config.json").exists():
        check_same(config, SearchConfig(**read_values(run / "config.json")), run.folder)
    else:
        run.write_json("config.json", {"proxnas": __version__, "command": "search"} | storable(config))


def _many(config: SearchConfig, folder: Path) -> dict[str, Any]:
    """A search a seed, each in a folder of its own; a finished one is not run again."""
    from proxnas.run import open_run, write_atomically

    folders = {seed: folder / f"seed-{seed}" for seed in config.all_seeds()}
    with open_run(folder, config.resume, config.force) as run:
        if config.force:  # all at once, or a later --resume would find seeds of the earlier run finished
            for place in folders.values():
                with open_run(place, force=True):
                    pass
        _store(config, run)
        results = []
        for seed, place in folders.items():
            results.append(_one(dataclasses.replace(config, seed=seed, seeds="", pick=False, force=False), place))
        result = _summary(results, config.pick)
        if config.pick:
            write_atomically(run / "genotype.json", json.dumps(result["genotype"], indent=2) + "\n")
        run.write_json("result.json", result)
        return result


def _summary(results: list[dict[str, Any]], pick: bool) -> dict[str, Any]:
    """Mean and spread over seeds; with `pick` the best by validation, at the cost of all."""
    accuracies = [result["valid_accuracy"] for result in results]
    several = {
        "seeds": [result["seed"] for result in results],
        "valid_accuracies": accuracies,
        "mean": statistics.mean(accuracies),
        "std": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
        "seconds": sum(result["seconds"] for result in results),
        "epochs": sum(result["epochs"] for result in results),
    }
    if pick:
        return max(results, key=lambda result: result["valid_accuracy"]) | several
    return {key: results[0][key] for key in ("method", "space", "data")} | several


def _print_result(result: dict[str, Any], folder: Path) -> None:
    from proxnas.genotype import Genotype
    from proxnas.report.cell import cell_text

    if "genotype" in result:
        print(cell_text(Genotype.from_json(json.dumps(result["genotype"]))))
        print(f"validation accuracy {result['valid_accuracy']:.4f}")
        print(f"parameters {result['params']:,}  multiply-adds {result['flops']:,}  (final network)")
    if "table" in result:
        print("table " + "  ".join(f"{name} {value}" for name, value in result["table"].items()))
    if "mean" in result:
        print(f"over seeds {result['seeds']}: {result['mean']:.4f} +- {result['std']:.4f}")
    print(f"search seconds {result['seconds']:.1f}  run folder {folder}")


def _dry_run(config: SearchConfig) -> None:
    from proxnas.plan import plan, plan_text

    if config.seeds:
        raise InputError("--dry-run: one search at a time, leave --seeds out")
    figures = plan(config)
    print(json.dumps(figures, indent=2) if config.json else plan_text(figures))
