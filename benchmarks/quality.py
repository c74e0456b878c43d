"""How good the found cells are: searches on reduced CIFAR-10, judged without training what they
find.

    python benchmarks/quality.py CIFAR_FOLDER JUDGE [--space nasbench201] [--seeds 0,1]
        [--only nasp,darts-1st] [--row "NAME=FLAGS"] [--minutes 2] [--folder quality]

JUDGE: for nasbench201 its table (csv), for darts7 and darts8 a folder with judge.py, see
quality_judges.py. Reduced: training images averaged down to 16x16, half for w and half for A; all
50,000, 16 channels and one cell a stage for nasbench201, 20,000, 8 channels and 5 cells for the
others; 4 epochs, one thread, two searches side by side. Resumable: a finished search is not
repeated, an interrupted one goes on. Raw rows are kept in FOLDER/rows.jsonl, the summary is
printed. Seeds 0-9 are for choosing, 100 and up for reporting.

With --minutes every search has that time of the processor instead of its epochs, and 10,000 images,
so that epochs are short: methods at equal time, in rows whose names end with it.

Any row can be had with " with shuffled labels" behind its name: what it finds where there is
nothing to learn. `random cells`, `largest cell` and `largest flat cell` (all nodes read the inputs
of the cell) are not searched for; `largest cell refined` has the refinement of `nasp refined`.
Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quality_judges import (
    Judge,
    judge_of,
    largest,
    largest_and_flat,
    of_size,
    random_flat,
    random_genotypes,
    reduced,
    size_of,
    skips,
    with_shuffled_labels,
)

from proxnas.cells.genotype import Genotype

SPACES: dict[str, list[str]] = {
    "nasbench201": ["--space", "nasbench201", "--cells", "1", "--channels", "16"],
    "darts7": ["--space", "darts7", "--cells", "5", "--channels", "8"],
    "darts8": ["--space", "darts8", "--cells", "5", "--channels", "8"],
}
BATCH, EPOCHS = ["--batch-size", "64"], ["--epochs", "4"]
IMAGES = {"nasbench201": 50_000, "darts7": 20_000, "darts8": 20_000}
IN_MINUTES = 10_000
IN = " in "
"""Between the name of a configuration and its minutes."""
ALONE = ["--refine", "0"]
"""What a search finds by itself; the row `nasp refined` has the refinement, too."""
REFINED = "nasp refined"
SHUFFLED = " with shuffled labels"
EQUALS = 200
"""Random cells of the same size that a found cell is compared with."""
STEP = 0.02
LARGEST_REFINED = "largest cell refined"
VARIANTS: dict[str, list[str]] = {
    "without none": [],
    "annealed pace": [],
    "relative scores": [],
    "normalised scores": [],
    "30% uniform": ["--explore", "0"],
    "uniform falling from 50%": ["--explore", "0"],
    "uniform warmup": ["--explore", "0", "--warmup", "1"],
    "30% in turn": ["--explore", "0"],
    "from the largest": ["--explore", "0", "--epochs", "1", "--refine", "24"],
}
"""Rows of NASP changed by variants.py, with their flags."""
PROCESSOR_TIME = "processor time"
"""The name by which variants.py has all clocks count the time of the process."""
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
    "nasp no pooling": ["--pooling", "0"],
    "nasp descent": [
        *("--weight-optimizer", "sgd"),
        *("--learning-rate", "0.025", "--learning-rate-min", "0.001"),
    ],
    "nasp free wiring": ["--wiring", "free"],
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
    REFINED: ["--refine", "24"],
    LARGEST_REFINED: VARIANTS["from the largest"],
    "lazy-pa": ["--method", "lazy-pa"],
    "pa": ["--method", "pa"],
    "darts-1st": ["--method", "darts-1st"],
    "darts-1st 1 epoch": ["--method", "darts-1st", "--epochs", "1"],
    # as much computing as nasp's four in nasbench201
    "darts-1st 3 epochs": ["--method", "darts-1st", "--epochs", "3"],
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
    "proxyless": ["--method", "proxyless"],
    "spos": ["--method", "spos"],
    "mnasnet": ["--method", "mnasnet"],
    "nao": ["--method", "nao"],
    "pc-darts": ["--method", "pc-darts"],
    "drnas": ["--method", "drnas"],
    "darts-pt": ["--method", "darts-pt"],
    "fair-darts": ["--method", "fair-darts"],
    "darts-minus": ["--method", "darts-minus"],
} | {f"nasp {name}": flags for name, flags in VARIANTS.items()}
NOT_SEARCHED = {
    "random cells": lambda space, seed: random_genotypes(space, 1, seed)[0],
    "largest cell": largest,
    "random flat cells": random_flat,
    "largest flat cell": largest_and_flat,
}
"""Controls: name -> a cell by space and seed."""


@dataclass(frozen=True)
class Study:
    """One space, its judge and the place of its files."""

    space: str
    judge: Judge
    data: Path
    folder: Path
    flags: dict[str, list[str]]
    length: list[str]
    """Flags that say how long every search is."""

    def rows(self, name: str, seed: int) -> list[dict[str, Any]]:
        """The rows of one cell: a search, or a control; those that are known are not made again."""
        known = [row for row in self.known() if row["seed"] == seed]
        mine = [row for row in known if row["configuration"] in (name, f"{name}, before")]
        return mine or keep(self._made(name, seed), self.folder / "rows.jsonl")

    def known(self) -> list[dict[str, Any]]:
        """All rows of the space so far."""
        stored = self.folder / "rows.jsonl"
        lines = stored.read_text().splitlines() if stored.exists() else []
        return [row for row in map(json.loads, lines) if row["space"] == self.space]

    def _made(self, name: str, seed: int) -> list[dict[str, Any]]:
        if name in NOT_SEARCHED:
            return [self.row(name, seed, NOT_SEARCHED[name](self.space, seed))]
        return self.search(name, seed)

    def search(self, name: str, seed: int) -> list[dict[str, Any]]:
        """One search in a process of its own; its row, and if it was refined also that of what it
        found before."""
        run = self.folder / f"{self.space}-{name.replace(' ', '-').replace(',', '')}-{seed}"
        data, labels = self.data, run.with_suffix(".npz")
        if name.endswith(SHUFFLED):
            data = with_shuffled_labels(self.data, seed, labels)
        seconds = processor_seconds(self.command(name, seed, data, run), run.with_suffix(".time"))
        labels.unlink(missing_ok=True)
        result = json.loads((run / "result.json").read_text())
        lines = (run / "metrics.jsonl").read_text().splitlines()
        found = {"valid_loss": result["valid_loss"]}
        found["changes"] = sum(json.loads(line)["changes"] for line in lines)
        found["wall_seconds"] = result["seconds"]
        cell = Genotype.from_object(result["genotype"])
        rows = [self.row(name, seed, cell) | found | {"seconds": seconds}]
        if refined := result.get("refined"):
            # of both parts only the wall time is known
            part = seconds * (1 - refined["seconds"] / result["seconds"])
            before = Genotype.from_object(refined["from"])
            rows.append(
                self.row(f"{name}, before", seed, before)
                | found
                | {"seconds": part, "wall_seconds": result["seconds"] - refined["seconds"]}
            )
        return rows

    def command(self, name: str, seed: int, data: Path, run: Path) -> list[str]:
        """The search of a configuration, perhaps under a variant."""
        plain = name.removesuffix(SHUFFLED)
        variant, *_ = plain.removeprefix("nasp ").split(IN)
        if plain == LARGEST_REFINED:
            variant = "from the largest"
        changes = [variant] if variant in VARIANTS else []
        if "--minutes" in self.length:
            changes.append(PROCESSOR_TIME)
        start = ["-m", "proxnas"]
        if changes:
            start = [str(Path(__file__).with_name("variants.py")), "+".join(changes)]
        flags = [*SPACES[self.space], *self.length, *ALONE, *self.flags[plain]]
        flags += ["--seed", str(seed)]
        ways = ["--threads", "1", "--quiet", "--resume", "--run", str(run)]
        return [sys.executable, *start, "search", str(data), *flags, *ways]

    def row(self, name: str, seed: int, genotype: Genotype) -> dict[str, Any]:
        """What a row says of a cell: how good, how large, and how good random cells of its size
        are."""
        cell = genotype.without_values()
        value, size = self.judge([cell])[0], size_of(cell, self.space)
        equals = self.judge(equals_of(self.space, round(math.log(size) / STEP)))
        return {
            "space": self.space,
            "configuration": name,
            "seed": seed,
            "judge": value,
            "params": size,
            "skips": skips(cell),
            "equals": statistics.mean(equals) if equals else None,
            "beaten": sum(value > other for other in equals) / len(equals) if equals else None,
            "genotype": json.loads(cell.to_json()),
            "seconds": 0.0,
        }


@functools.cache
def equals_of(space: str, step: int) -> list[Genotype]:
    """Random cells of a size, which is given in steps of 2%."""
    return of_size(space, math.exp(STEP * step), EQUALS)


def processor_seconds(command: list[str], stored: Path) -> float:
    """Runs a command; the processor time of it and of its interrupted attempts, which the file
    holds line by line."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    with stored.open("a") as file:
        file.write(f"{used.ru_utime + used.ru_stime}\n")
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return sum(map(float, stored.read_text().split()))


WRITING = threading.Lock()


def keep(rows: list[dict[str, Any]], stored: Path) -> list[dict[str, Any]]:
    """Adds rows to the file."""
    with WRITING, stored.open("a") as file:
        file.writelines(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    return rows


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown rows over the seeds of each configuration."""
    lines = [
        "| configuration | seeds | mean | std | worst | random of equal size | of them beaten |"
        " skips | parameters | seconds |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(row["configuration"] for row in rows):
        mine = [row for row in rows if row["configuration"] == name]
        values = [row["judge"] for row in mine]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        seeds = ",".join(str(row["seed"]) for row in mine)
        lines.append(
            f"| {name} | {seeds} | {statistics.mean(values):.2f} | {spread:.2f} |"
            f" {min(values):.2f} | {_mean(mine, 'equals', '.2f')} | {_mean(mine, 'beaten', '.0%')}"
            f" | {_mean(mine, 'skips', '.1f')} | {_mean(mine, 'params', ',.0f')} |"
            f" {_mean(mine, 'seconds', '.0f')} |"
        )
    return lines


def _mean(rows: list[dict[str, Any]], key: str, form: str) -> str:
    values = [row[key] for row in rows if row[key] is not None]
    return format(statistics.mean(values), form) if values else ""


def operations(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown rows: how often each operation was chosen, by configuration and kind of cell."""
    lines = ["| configuration | cell | share of the operations |", "|---|---|---|"]
    for name in dict.fromkeys(row["configuration"] for row in rows):
        mine = [row["genotype"]["cells"] for row in rows if row["configuration"] == name]
        for kind in mine[0]:
            chosen = [op for cells in mine for node in cells[kind]["nodes"] for op, *_ in node]
            shares = {op: chosen.count(op) / len(chosen) for op in sorted(set(chosen))}
            text = ", ".join(f"{op} {share:.0%}" for op, share in shares.items())
            lines.append(f"| {name} | {kind} | {text} |")
    return lines


def main() -> None:
    """Runs what is missing and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cifar")
    parser.add_argument("judge")
    parser.add_argument("--space", default="nasbench201", choices=SPACES)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--only", default=",".join([*NOT_SEARCHED, *CONFIGURATIONS]))
    parser.add_argument("--row", action="append", default=[], help="NAME=FLAGS, a row of one's own")
    parser.add_argument("--minutes", default="", help="of every search, instead of its epochs")
    parser.add_argument("--folder", default="quality")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    images = IN_MINUTES if options.minutes else IMAGES[options.space]
    data = reduced(options.cifar, folder / f"reduced-{images}.npz", images)
    own = {name: shlex.split(flags) for name, _, flags in (r.partition("=") for r in options.row)}
    judge = judge_of(options.judge)
    flags, length = CONFIGURATIONS | own, [*BATCH, *EPOCHS]
    names = [*options.only.split(","), *own] if options.only else list(own)
    if options.minutes:
        length, behind = [*BATCH, "--minutes", options.minutes], f"{IN}{options.minutes} minutes"
        flags = {f"{name}{behind}": flags[name] for name in names}
        names = list(flags)
    study = Study(options.space, judge, data, folder, flags, length)
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [(name, int(seed)) for name in names for seed in options.seeds.split(",")]
        done = list(pool.map(lambda job: study.rows(*job), jobs))
    rows = [row for found in done for row in found]
    print("\n".join([*summary(rows), "", *operations(rows)]))


if __name__ == "__main__":
    main()
