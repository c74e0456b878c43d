"""Are limits met, and are the cells found within them better than random cells within them?

    python benchmarks/budgets.py CIFAR_FOLDER [--parts limits,latency,training] [--folder budgets]

limits    digits, darts7: --max-params at 25%, 50% and 75% between the smallest and the largest
network, five seeds. latency   the same space: --max-latency at 30% and 60%, then the found network
timed again, in a process of its own. training  reduced CIFAR-10 (10,000 training images, all test
images, at 16x16): a cell found within each of the three
          limits on parameters, for some seeds, and random cells that use at least 85% of the same
              limit, all trained
          alike; the difference of their means is pooled over the limits, with a 95% interval (t).

One thread; a finished run is not repeated, an interrupted one goes on. Rows go into
FOLDER/<part>.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from found_cells import interval, proxnas, reduced, trained

from proxnas.cells.reading import read_genotype
from proxnas.core.selection import random_selection
from proxnas.core.size.complexity import parameters
from proxnas.core.size.latency import latency
from proxnas.domains import spaces
from proxnas.domains.images.networks.cnn import Size, channels_last

SPACE = "darts7"
SMALL = ["--space", SPACE, "--cells", "3", "--channels", "4", "--epochs", "3"]
SEARCH = [
    "--space",
    SPACE,
    "--cells",
    "5",
    "--channels",
    "8",
    "--epochs",
    "4",
    "--batch-size",
    "64",
]
CELLS, CHANNELS, EPOCHS = 5, 12, 3
TRAIN = [
    "--cells",
    str(CELLS),
    "--channels",
    str(CHANNELS),
    "--epochs",
    str(EPOCHS),
    "--protocol",
    "quick",
]
FINAL = ["--final-cells", str(CELLS), "--final-channels", str(CHANNELS)]
SHARES = (0.25, 0.5, 0.75)
USED = 0.85
"""Of a limit that a random cell uses at least: smaller ones would make the comparison one of
sizes."""


def found(data: str, run: Path, *flags: str) -> dict[str, Any]:
    """result.json of a search."""
    proxnas("search", data, *flags, "--run", str(run))
    result: dict[str, Any] = json.loads((run / "result.json").read_text())
    return result


def span(data: str, *flags: str) -> tuple[int, int]:
    """Parameters of the smallest and the largest network."""
    words = [
        sys.executable,
        "-m",
        "proxnas",
        "search",
        data,
        *flags,
        "--dry-run",
        "--json",
        "--threads",
        "1",
    ]
    plan = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return plan["params_smallest"], plan["params_largest"]


def at(share: float, smallest: float, largest: float) -> int:
    """The limit at a share of the span."""
    return round(smallest + share * (largest - smallest))


def limits(folder: Path, seeds: list[int]) -> list[dict[str, Any]]:
    """A search a limit and seed on the digits."""
    smallest, largest = span("digits", *SMALL)
    rows = []
    for share in SHARES:
        limit = at(share, smallest, largest)
        for seed in seeds:
            flags = [*SMALL, "--max-params", str(limit), "--seed", str(seed)]
            result = found("digits", folder / f"limits-{share}-{seed}", *flags)
            rows.append({"share": share, "limit": limit, "seed": seed, "params": result["params"]})
    return rows


def limits_text(rows: list[dict[str, Any]]) -> list[str]:
    """How many met their limit, and how much of it they use."""
    lines = [
        "| limit | share of the span | searches | met | mean of limit used | least |",
        "|---|---|---|---|---|---|",
    ]
    for share in dict.fromkeys(row["share"] for row in rows):
        mine = [row for row in rows if row["share"] == share]
        used = [row["params"] / row["limit"] for row in mine]
        counts = f"{len(mine)} | {sum(part <= 1 for part in used)}"
        lines.append(
            f"| {mine[0]['limit']:,} | {share:.0%} | {counts} | {statistics.mean(used):.3f} |"
            f" {min(used):.3f} |"
        )
    return lines


def latencies(folder: Path) -> list[dict[str, Any]]:
    """A search a limit on seconds, and the network timed again."""
    loose = found(
        "digits", folder / "latency-any", *SMALL, "--max-latency", "100s", "--epochs", "1"
    )["budget"]
    rows = []
    for share in (0.3, 0.6):
        limit = loose["smallest"] + share * (loose["largest"] - loose["smallest"])
        run = folder / f"latency-{share}"
        result = found("digits", run, *SMALL, "--max-latency", f"{1e6 * limit:.0f}us")
        size = Size(8, 16, 1, 10)
        network = channels_last(spaces.find(SPACE).network(read_genotype(run), size).eval())
        torch.set_num_threads(1)
        again = latency(network, (1, 8, 8), runs=200).seconds
        rows.append(
            loose | {"share": share, "limit": limit, "measured": result["latency"], "again": again}
        )
    return rows


def latencies_text(rows: list[dict[str, Any]]) -> list[str]:
    """Limits and what was measured, in milliseconds."""
    lines = [
        "| limit (ms) | smallest | largest | at the end of the search | timed again | again /"
        " limit |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        times = [1e3 * row[name] for name in ("limit", "smallest", "largest", "measured", "again")]
        lines.append(
            "| "
            + " | ".join(f"{ms:.2f}" for ms in times)
            + f" | {row['again'] / row['limit']:.2f} |"
        )
    return lines


def random_cells(limit: int, number: int, folder: Path) -> list[Path]:
    """Random cells, as files, whose networks are within the limit and use most of it."""
    space, generator = spaces.find(SPACE), torch.Generator().manual_seed(limit)
    cells: list[Path] = []
    while len(cells) < number:
        genotype = space.genotype(
            {name: random_selection(g, generator) for name, g in space.groups.items()}
        )
        with torch.device("meta"):
            params = parameters(space.network(genotype, Size(CELLS, CHANNELS, 3, 10)))
        if USED * limit <= params <= limit:
            cells.append(folder / f"random-{limit}-{len(cells)}.json")
            cells[-1].write_text(genotype.to_json())
    return cells


def training(cifar: str, folder: Path, seeds: list[int], number: int) -> list[dict[str, Any]]:
    """Found and random cells at each limit, trained from scratch."""
    data = str(reduced(cifar, folder / "reduced.npz"))
    smallest, largest = span(data, *SEARCH, *FINAL)
    rows = []
    for share in SHARES:
        limit = at(share, smallest, largest)
        runs = {f"found-{seed}": folder / f"search-{share}-{seed}" for seed in seeds}
        for seed, run in zip(seeds, runs.values(), strict=True):
            found(data, run, *SEARCH, *FINAL, "--max-params", str(limit), "--seed", str(seed))
        for name, cell in (
            runs | {path.stem: path for path in random_cells(limit, number, folder)}
        ).items():
            measured = trained(cell, data, folder / f"train-{share}-{name}", *TRAIN)
            rows.append({"share": share, "limit": limit, "cell": name} | measured)
    return rows


def training_text(rows: list[dict[str, Any]]) -> list[str]:
    """Test accuracies at each limit, and the pooled difference."""
    lines = ["| limit | found | params | random mean | params | std |", "|---|---|---|---|---|---|"]
    groups = []
    for limit in dict.fromkeys(row["limit"] for row in rows):
        mine, others = (
            [r for r in rows if r["limit"] == limit and r["cell"].startswith(k)]
            for k in ("found", "random")
        )
        tests = [row["test_accuracy"] for row in others]
        groups.append(([row["test_accuracy"] for row in mine], tests))
        ours = ", ".join(f"{row['test_accuracy']:.4f}" for row in mine)
        sizes = [statistics.mean(row["params"] for row in group) for group in (mine, others)]
        lines.append(
            f"| {limit:,} | {ours} | {sizes[0]:,.0f} | {statistics.mean(tests):.4f} |"
            f" {sizes[1]:,.0f} | {statistics.stdev(tests):.4f} |"
        )
    mean, half = interval(groups)
    return [
        *lines,
        "",
        f"found - random, pooled: {mean:+.4f} +- {half:.4f} (95%, {len(rows)} cells)",
    ]


def main() -> None:
    """Runs what is missing and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cifar")
    parser.add_argument("--parts", default="limits,latency,training")
    parser.add_argument("--folder", default="budgets")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument(
        "--found", type=int, default=2, help="seeds that training takes, the first ones"
    )
    parser.add_argument("--random", type=int, default=4, help="random cells a limit")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    parts = {
        "limits": (lambda: limits(folder, seeds), limits_text),
        "latency": (lambda: latencies(folder), latencies_text),
        "training": (
            lambda: training(options.cifar, folder, seeds[: options.found], options.random),
            training_text,
        ),
    }
    for name in options.parts.split(","):
        run, text = parts[name]
        rows = run()
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        print("\n".join(text(rows)), flush=True)


if __name__ == "__main__":
    main()
