"""How good the found cells are: searches on reduced CIFAR-10 in the NAS-Bench-201 space, judged by
its table.

    python benchmarks/quality.py CIFAR_FOLDER TABLE [--seeds 0,1] [--only nasp,darts-1st] [--folder
        quality]

Reduced: the 50,000 training images (half for w, half for A) averaged down to 16x16; 16 channels,
one cell a stage, 4 epochs, one thread, two searches side by side. Resumable: a finished search is
not repeated, an interrupted one goes on. Raw rows are kept in FOLDER/rows.jsonl, the summary is
printed. Seeds 0-4 are for choosing, 100 and up for reporting.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from proxnas.cells.genotype import Genotype
from proxnas.cells.table import look_up
from proxnas.domains.images.data.images import load

SIZES = [
    "--space",
    "nasbench201",
    "--cells",
    "1",
    "--channels",
    "16",
    "--epochs",
    "4",
    "--batch-size",
    "64",
]
ALONE = ["--refine", "0"]
"""What a search finds by itself; the row `nasp refined` is the default as a whole."""
REFINED = "nasp refined"
VARIANTS: dict[str, list[str]] = {
    "without none": [],
    "annealed pace": [],
    "relative scores": [],
    "normalised scores": [],
    "30% uniform": ["--explore", "0"],
    "uniform falling from 50%": ["--explore", "0"],
    "uniform warmup": ["--explore", "0", "--warmup", "1"],
    "30% in turn": ["--explore", "0"],
}
"""Rows of NASP changed by variants.py, with their flags."""
CONFIGURATIONS: dict[str, list[str]] = {
    "nasp": [],
    "nasp horizon 0.3": ["--horizon", "0.3"],
    "nasp horizon 0.5": ["--horizon", "0.5"],
    "nasp horizon 2": ["--horizon", "2"],
    "nasp look-ahead 20": ["--look-ahead", "20"],
    "nasp look-ahead 20 horizon 0.5": ["--look-ahead", "20", "--horizon", "0.5"],
    "nasp look-ahead 20 horizon 0.3": ["--look-ahead", "20", "--horizon", "0.3"],
    "nasp no look-ahead": ["--look-ahead", "0"],
    "nasp no exploration": ["--explore", "0"],
    "nasp explore 0.02": ["--explore", "0.02"],
    "nasp explore 0.1": ["--explore", "0.1"],
    "nasp adam": ["--arch-optimizer", "adam"],
    "nasp rate 2e-4": ["--arch-learning-rate", "2e-4"],
    "nasp rate 1e-3": ["--arch-learning-rate", "1e-3"],
    "nasp sgd": ["--arch-optimizer", "sgd", "--arch-learning-rate", "0.1"],
    "nasp decay": ["--arch-decay", "1e-3"],
    "nasp no noise and first of ties": ["--arch-noise", "0", "--ties", "first"],
    "nasp value a_k": ["--explore", "0", "--value", "a_k"],
    "nasp warmup 1": ["--warmup", "1"],
    "nasp every 4": ["--arch-every", "4"],
    "nasp half batch": ["--score-batch", "0.5"],
    "nasp half nodes": ["--score-nodes", "0.5"],
    "nasp patience 1": ["--patience", "1"],
    "nasp 2 epochs": ["--epochs", "2"],
    "nasp 8 channels": ["--channels", "8"],
    "nasp 2 cells": ["--cells", "2"],
    "nasp paper": ["--preset", "paper"],
    "nasp official": ["--preset", "official"],
    REFINED: ["--refine=-1"],
    "lazy-pa": ["--method", "lazy-pa"],
    "pa": ["--method", "pa"],
    "darts-1st": ["--method", "darts-1st"],
    "darts-1st 1 epoch": ["--method", "darts-1st", "--epochs", "1"],
    "darts-1st 3 epochs": [
        "--method",
        "darts-1st",
        "--epochs",
        "3",
    ],  # as much computing as nasp's four
    "darts-2nd": ["--method", "darts-2nd"],
    "darts-2nd 1 epoch": ["--method", "darts-2nd", "--epochs", "1"],
    "random": ["--method", "random"],
    "random-ws": ["--method", "random-ws"],
    "snas": ["--method", "snas"],
    "snas 1 epoch": ["--method", "snas", "--epochs", "1"],
    "snas resource": ["--method", "snas", "--resource", "0.0015"],
    "gdas": ["--method", "gdas"],
    "gdas sum": ["--method", "gdas", "--unsampled-gradient", "sum"],
    "enas": ["--method", "enas"],
    "asap": ["--method", "asap"],
    "asap 1 epoch": ["--method", "asap", "--epochs", "1"],
    "asng": ["--method", "asng"],
    "bayesnas": ["--method", "bayesnas"],
    "bayesnas 1 epoch": ["--method", "bayesnas", "--epochs", "1"],
} | {f"nasp {name}": flags for name, flags in VARIANTS.items()}


def reduced(cifar: str, path: Path) -> Path:
    """The training images at 16x16, as an npz file; no test images are needed."""
    if not path.exists():
        images = load(cifar)
        N = len(images.y_train)
        x = images.x_train.reshape(N, 16, 2, 16, 2, 3).mean((2, 4)).round().astype(np.uint8)
        np.savez(
            path, x_train=x, y_train=images.y_train, x_test=x[:100], y_test=images.y_train[:100]
        )
    return path


def search(name: str, seed: int, data: Path, table: str, folder: Path) -> list[dict[str, Any]]:
    """One search in a process of its own; returns its row, and if it was refined also that of what
    it found before."""
    run = folder / f"{name.replace(' ', '-')}-{seed}"
    variant = name.removeprefix("nasp ")
    start = (
        [str(Path(__file__).with_name("variants.py")), variant]
        if variant in VARIANTS
        else ["-m", "proxnas"]
    )
    command = [sys.executable, *start, "search", str(data), *SIZES, *ALONE, *CONFIGURATIONS[name]]
    command += [
        "--seed",
        str(seed),
        "--table",
        table,
        "--threads",
        "1",
        "--quiet",
        "--resume",
        "--run",
        str(run),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    result = json.loads((run / "result.json").read_text())
    changes = [
        json.loads(line)["changes"] for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    row = {
        "configuration": name,
        "seed": seed,
        "valid_loss": result["valid_loss"],
        "changes": sum(changes),
    }
    rows = [row | _cell(result["genotype"], table) | {"seconds": result["seconds"]}]
    if refined := result.get("refined"):
        before = {
            "configuration": f"{name}, before",
            "seconds": result["seconds"] - refined["seconds"],
        }
        rows.append(row | before | _cell(refined["from"], table))
    return rows


def _cell(genotype: dict[str, Any], table: str) -> dict[str, Any]:
    """What a row says of a cell."""
    cell = Genotype.from_object(genotype).without_values()
    return {"arch": cell.to_string(), "table": look_up(Path(table), cell)}


def keep(rows: list[dict[str, Any]], stored: Path) -> list[dict[str, Any]]:
    """Adds rows to the file unless they are there."""
    known = stored.read_text().splitlines() if stored.exists() else []
    lines = [json.dumps(row, sort_keys=True) for row in rows]
    with stored.open("a") as file:
        file.writelines(f"{line}\n" for line in lines if line not in known)
    return rows


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown rows: mean, standard deviation and worst of the test column over seeds."""
    lines = [
        "| configuration | seeds | test mean | std | worst | 12-epoch | valid loss | seconds |"
        " changes |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(row["configuration"] for row in rows):
        mine = [row for row in rows if row["configuration"] == name]
        test = [row["table"]["cifar10_test"] for row in mine]
        spread = statistics.stdev(test) if len(test) > 1 else 0.0
        valid = statistics.mean(row["table"]["cifar10_valid_ep12"] for row in mine)
        loss = statistics.mean(row["valid_loss"] for row in mine)
        seconds = statistics.mean(row["seconds"] for row in mine)
        changes = statistics.mean(row["changes"] for row in mine)
        seeds = ",".join(str(row["seed"]) for row in mine)
        lines.append(
            f"| {name} | {seeds} | {statistics.mean(test):.2f} | {spread:.2f} | {min(test):.2f} |"
            f" {valid:.2f} | {loss:.3f} | {seconds:.0f} | {changes:.0f} |"
        )
    return lines


def main() -> None:
    """Runs what is missing and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cifar")
    parser.add_argument("table")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--only", default=",".join(CONFIGURATIONS))
    parser.add_argument("--folder", default="quality")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = reduced(options.cifar, folder / "reduced.npz")
    jobs = [
        (name, int(seed)) for name in options.only.split(",") for seed in options.seeds.split(",")
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        done = pool.map(
            lambda job: keep(search(*job, data, options.table, folder), folder / "rows.jsonl"), jobs
        )
        rows = [row for found in done for row in found]
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
