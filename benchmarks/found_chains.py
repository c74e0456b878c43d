"""Chains found within a limit beside random ones, and beside a cell of equal parameters.

    python benchmarks/found_chains.py CIFAR_FOLDER [--spaces resnet,mobile] [--seeds 100,...,104]
                                      [--random 8] [--folder found_chains]

On 10,000 training images of CIFAR-10 and its test images, averaged down to 16x16: NASP searches
within half of the largest network's parameters; 8 networks drawn uniformly within the same limit;
and DARTS' second cell, in networks as wide as brings them next to the found ones' parameters. All
are trained in the same steps on the same batches. Seconds of training are those of the process,
latencies those of ONNX Runtime for one image.

Resumable: FOLDER/rows.jsonl has a row a network, FOLDER/found.jsonl what was found, and those that
are there are not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from chain_table import Lesson, append, known, test_network, train_network
from found_cells import interval, reduced
from rich.console import Console
from torch import nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.cli.search import parse_search
from proxnas.common.seeds import stable_seed
from proxnas.core.choice import Source
from proxnas.core.selection import random_selection
from proxnas.core.size.complexity import parameters
from proxnas.core.size.stopwatch import ROUNDS, Onnx, Stopwatch
from proxnas.domains import spaces
from proxnas.domains.images import networks
from proxnas.domains.images.data.images import Images, load
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.runs.loop import run_epochs
from proxnas.runs.progress import shown
from proxnas.searching.job import Search
from proxnas.searching.sizing import sizes


class Plan(NamedTuple):
    """Of a space: the size of its networks, and how long they are searched and trained."""

    cells: int
    channels: int
    search_epochs: int
    lesson: Lesson


PLANS = {"resnet": Plan(1, 12, 12, Lesson(16, 64)), "mobile": Plan(1, 4, 1, Lesson(4, 64))}
CELL, CELLS = "zoo:DARTS_V2", 5
SHARE = 0.5
"""Of the largest network's parameters."""
SEED = 0
"""Of all trainings."""


def flags(space: str, seed: int) -> list[str]:
    """Of a search without its limit."""
    plan = PLANS[space]
    own = ["--space", space, "--cells", str(plan.cells), "--channels", str(plan.channels)]
    own += ["--final-cells", str(plan.cells), "--final-channels", str(plan.channels)]
    own += ["--epochs", str(plan.search_epochs), "--batch-size", "64", "--seed", str(seed)]
    return ["data.npz", *own, "--device", "cpu", "--threads", "1"]


def limit_of(space: str, images: Images) -> int:
    """Half of the parameters that the largest network has."""
    search = Search(parse_search(flags(space, SEED)), images, spaces.find(space))
    return int(SHARE * sizes("params", search.task, search.space).largest)


def find(space: str, seed: int, limit: int, images: Images) -> Genotype:
    """What a search within the limit finds."""
    words = [*flags(space, seed), "--max-params", str(limit)]
    search = Search(parse_search(words), images, spaces.find(space))
    with shown(Console(), space, True) as bar:
        run_epochs(search, None, bar)
    return search.genotype()


def find_once(space: str, seed: int, limit: int, images: Images, path: Path) -> dict[str, Any]:
    """What the file has of that search; made and written there if it has not."""
    for row in known(path):
        if (row["space"], row["seed"], row["limit"]) == (space, seed, limit):
            return row
    start = time.process_time()
    genotype = find(space, seed, limit, images)
    row = {"space": space, "seed": seed, "limit": limit}
    row["search_seconds"] = round(time.process_time() - start, 1)
    row["genotype"] = json.loads(genotype.to_json())
    append(path, row)
    return row


def draw(space: str, number: int, limit: int, images: Images) -> Genotype:
    """The network of that number among those drawn uniformly that are within the limit."""
    generator = torch.Generator().manual_seed(0)
    this, drawn = spaces.find(space), -1
    while drawn < number:
        groups = this.groups.items()
        genotype = this.genotype({name: random_selection(g, generator) for name, g in groups})
        with torch.device("meta"):
            drawn += parameters(network_of(genotype, space, images)) <= limit
    return genotype


def network_of(genotype: Genotype, space: str, images: Images) -> nn.Module:
    """The network of a chain."""
    plan = PLANS[space]
    size = Size(plan.cells, plan.channels, images.shape[0], images.num_classes)
    return spaces.find(space).network(genotype, size)


def cell_network(wanted: float, images: Images) -> nn.Module:
    """The network of the cell whose parameters are next to those wanted."""

    def build(channels: int) -> nn.Module:
        size = Size(CELLS, channels, images.shape[0], images.num_classes)
        return networks.build_network(read_genotype(CELL), size)

    with torch.device("meta"):
        counts = {C: parameters(build(C)) for C in range(1, 33)}
    return build(min(counts, key=lambda C: abs(counts[C] - wanted)))


def row_of(network: nn.Module, images: Images, lesson: Lesson) -> dict[str, Any]:
    """Trains a network: accuracy, seconds and latency."""
    network = channels_last(network)
    start = time.process_time()
    train_network(network, images, lesson, SEED)
    seconds = time.process_time() - start
    accuracy = test_network(network, images)
    watch, image = Stopwatch(Onnx()), Source.of((torch.zeros(1, *images.shape),), {})
    latency = [watch.seconds(network.eval(), image) for _ in range(ROUNDS)][-1]
    figures = {"params": parameters(network), "test": accuracy, "seconds": round(seconds, 1)}
    return figures | {"latency_ms": round(1e3 * latency, 4)}


def compare(space: str, images: Images, options: argparse.Namespace, folder: Path) -> None:
    """Makes the rows of a space that are missing."""
    path, limit, lesson = folder / "rows.jsonl", limit_of(space, images), PLANS[space].lesson
    done = {row["network"] for row in known(path) if row["space"] == space}

    def add(name: str, network: nn.Module, **more: Any) -> None:
        row = {"space": space, "network": name, "limit": limit}
        append(path, row | row_of(network, images, lesson) | more)

    for seed in map(int, options.seeds.split(",")):
        if f"found-{seed}" not in done:
            found = find_once(space, seed, limit, images, folder / "found.jsonl")
            torch.manual_seed(stable_seed(SEED, "weights"))
            network = network_of(Genotype.from_json(json.dumps(found["genotype"])), space, images)
            add(f"found-{seed}", network, search_seconds=found["search_seconds"])
    for number in range(options.random):
        if f"random-{number}" not in done:
            genotype = draw(space, number, limit, images)
            torch.manual_seed(stable_seed(SEED, "weights"))
            add(f"random-{number}", network_of(genotype, space, images))
    if "cell" not in done:
        found = [row["params"] for row in of_kind(known(path), space, "found")]
        torch.manual_seed(stable_seed(SEED, "weights"))
        add("cell", cell_network(statistics.fmean(found), images))


def of_kind(rows: list[dict[str, Any]], space: str, kind: str) -> list[dict[str, Any]]:
    """The rows of found or random networks, or of the cell's."""
    return [row for row in rows if row["space"] == space and row["network"].startswith(kind)]


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown: a line for each kind of network in each space, and the differences."""
    lines = ["| space | networks | parameters | test | std | training s | ONNX ms |"]
    lines.append("|---|---|---|---|---|---|---|")
    ends = []
    for space in dict.fromkeys(row["space"] for row in rows):
        tests = {}
        for kind in ("found", "random", "cell"):
            mine = of_kind(rows, space, kind)
            tests[kind] = [row["test"] for row in mine]
            if mine:
                lines.append(f"| {space} | {len(mine)} {kind} | {_figures(mine)} |")
        if len(tests["found"]) > 1 and len(tests["random"]) > 1:
            mean, half = interval([(tests["found"], tests["random"])])
            ends.append(f"{space}: found less random {100 * mean:+.2f} +- {100 * half:.2f} points")
    return [*lines, "", *ends]


def _figures(rows: list[dict[str, Any]]) -> str:
    def mean(key: str) -> float:
        return statistics.fmean(row[key] for row in rows)

    tests = [100 * row["test"] for row in rows]
    spread = f"{statistics.stdev(tests):.2f}" if len(tests) > 1 else ""
    return (
        f"{mean('params'):,.0f} | {statistics.fmean(tests):.2f} | {spread} | {mean('seconds'):.0f}"
        f" | {mean('latency_ms'):.3f}"
    )


def main() -> None:
    """Runs what is missing and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cifar")
    parser.add_argument("--spaces", default="resnet,mobile")
    parser.add_argument("--seeds", default="100,101,102,103,104", help="of searches")
    parser.add_argument("--random", type=int, default=8, help="random networks")
    parser.add_argument("--folder", default="found_chains")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    images = load(str(reduced(options.cifar, folder / "reduced.npz")))
    for space in options.spaces.split(","):
        compare(space, images, options, folder)
    print("\n".join(summary(known(folder / "rows.jsonl"))))


if __name__ == "__main__":
    main()
