"""All timings of docs/performance.md: a table a space, and how an iteration grows with its sizes.

    python benchmarks/speed.py [FOLDER]      default: bench

Each measurement is a JSON file; one that is there already is not repeated, so an interrupted run
goes on.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from proxnas.cli.bench import MIB
from proxnas.workflows.bench import bench
from proxnas.workflows.bench_options import BenchConfig

SPACES = ("darts8", "nasp12", "nasp12-full")
GROWTH: dict[str, tuple[int, ...]] = {
    "candidates": (4, 8, 12, 16),
    "cells": (4, 8, 12),
    "channels": (8, 16, 32),
    "batch_size": (8, 16, 32),
}
OPTIONS: dict[str, dict[str, float]] = {
    "exact": {},
    "score_batch 0.5": {"score_batch": 0.5},
    "score_nodes 0.5": {"score_nodes": 0.5},
}
BASE = BenchConfig(threads=1, rounds=3)


def measured(folder: Path, name: str, config: BenchConfig) -> dict[str, Any]:
    """The figures of one measurement, from its file if it was made before."""
    path = folder / f"{name}.json"
    if not path.exists():
        print(name, flush=True)
        figures = bench(config, lambda text: None)
        path.write_text(json.dumps(figures, indent=2) + "\n")
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def spaces_table(folder: Path) -> list[str]:
    """Markdown rows: seconds by part, ratio to NASP, memory, for every space and method."""
    rows = [
        "| space | method | update A | forward | backward | other | total | to nasp | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for space in SPACES:
        figures = measured(folder, space, dataclasses.replace(BASE, space=space))
        for method, part in figures["methods"].items():
            seconds = " | ".join(
                f"{part[key]:.3f}" for key in ("arch", "forward", "backward", "other", "total")
            )
            memory = part["peak_bytes"] / MIB
            rows.append(
                f"| {space} | {method} | {seconds} | {figures['ratio'][method]:.2f} |"
                f" {memory:.0f} |"
            )
        limit = [figures["limit"][key] for key in ("arch", "weight", "total")]
        memory = figures["limit"]["peak_bytes"] / MIB
        rows.append(
            "| {} | limit | {:.3f} | | {:.3f} | | {:.3f} | | {:.0f} |".format(space, *limit, memory)
        )
        verdict = (
            f"nasp / limit {figures['ratio_to_limit']:.2f}, opponent {figures['opponent']:.2f}"
        )
        rows.append(f"| {space} | {verdict} | | | | | | | |")
    return rows


def growth(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """NASP alone while one size grows."""
    series = {}
    for name, values in GROWTH.items():
        configs = [dataclasses.replace(BASE, candidates=8, methods="nasp") for _ in values]
        sized = [
            dataclasses.replace(config, **{name: value})
            for config, value in zip(configs, values, strict=True)
        ]
        series[name] = [
            measured(folder, f"nasp-{name}-{v}", c) for v, c in zip(values, sized, strict=True)
        ]
    return series


def growth_table(series: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Markdown rows: update A, the weight step and memory as one size grows."""
    rows = [
        "| size | value | update A | weight step | limit of both | peak MiB |",
        "|---|---|---|---|---|---|",
    ]
    for name, measurements in series.items():
        for value, figures in zip(GROWTH[name], measurements, strict=True):
            part = figures["methods"]["nasp"]
            weight, memory = part["forward"] + part["backward"], part["peak_bytes"] / MIB
            limit = figures["limit"]
            rows.append(
                f"| {name} | {value} | {part['arch']:.3f} | {weight:.3f} | "
                f"{limit['arch']:.3f} + {limit['weight']:.3f} | {memory:.0f} |"
            )
    return rows


def growth_figure(series: dict[str, list[dict[str, Any]]], folder: Path) -> None:
    """One panel a size: update A and the weight step, with their floors."""
    figure, panels = pyplot.subplots(
        1, len(series), figsize=(4 * len(series), 3.2), layout="constrained"
    )
    for panel, (name, measurements) in zip(panels, series.items(), strict=True):
        parts = [figures["methods"]["nasp"] for figures in measurements]
        limits = [figures["limit"] for figures in measurements]
        x = GROWTH[name]
        panel.plot(x, [part["arch"] for part in parts], "o-", label="update A")
        panel.plot(
            x, [part["forward"] + part["backward"] for part in parts], "s-", label="weight step"
        )
        panel.plot(x, [limit["arch"] for limit in limits], "--", color="C0", label="its limit")
        panel.plot(x, [limit["weight"] for limit in limits], "--", color="C1")
        panel.set(xlabel=name.replace("_", " "), xticks=x, ylim=(0, None))
    panels[0].set_ylabel("seconds an iteration")
    panels[0].legend(frameon=False)
    for ending in ("png", "svg"):
        figure.savefig(folder / f"growth.{ending}", dpi=150)


def options_table(folder: Path) -> list[str]:
    """Markdown rows: what the inexact options save."""
    rows = ["| option | update A | total |", "|---|---|---|"]
    for name, options in OPTIONS.items():
        config = dataclasses.replace(BASE, methods="nasp", rounds=8, **options)
        part = measured(folder, f"nasp-{name.replace(' ', '-')}", config)["methods"]["nasp"]
        rows.append(f"| {name} | {part['arch']:.3f} | {part['total']:.3f} |")
    return rows


def main() -> None:
    """Measures what is missing, writes tables and figure."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "bench")
    folder.mkdir(parents=True, exist_ok=True)
    tables = [spaces_table(folder)]
    series = growth(folder)
    tables += [growth_table(series), options_table(folder)]
    growth_figure(series, folder)
    text = "\n\n".join("\n".join(rows) for rows in tables)
    (folder / "tables.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":  # memory is measured in spawned processes, which import this file
    main()
