"""A judge of our own: every network of a small chain space, trained alike; and what searches find.

    python benchmarks/chain_table.py table [--seeds 0,1,2] [--folder chain]
    python benchmarks/chain_table.py searches [--seeds 100,101] [--methods nasp,random]
    python benchmarks/chain_table.py report

The space is a part of `resnet`: the bodies of its three stages and the entries of the last two
choose one of three kinds, so there are 3^5 = 243 networks. Each is trained from scratch with each
seed, in the same steps on the same batches of 600 digits, and tested on the other 1,197.
FOLDER/table.csv has a row a network, as `proxnas query` reads it.

A search sees the 600 digits only. What it finds is looked up: its rank among all 243 networks,
free and among those within half of the largest network's parameters. Resumable: rows that are there
are not made again.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import nn

from proxnas import methods
from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.cli.search import parse_search
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import Group, Row
from proxnas.core.size.complexity import parameters
from proxnas.domains.images.data.images import Images, from_arrays, load
from proxnas.domains.images.data.stream import ImageBatches, Stream
from proxnas.domains.images.evaluate import evaluate
from proxnas.domains.images.networks.chain import BODIES, ENTRIES, STAGES, Chain, chain_network
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.operations import Norm, final_norm, search_norm
from proxnas.runs.loop import run_epochs
from proxnas.runs.progress import shown
from proxnas.searching.job import Search
from proxnas.training.convolutions import MuonAndSgd, Rates
from proxnas.training.pace import rate_factor

ENTRY = ("conv_3x3", "conv_5x5", "sep_conv_3x3")
BODY = ("res_3x3", "bottleneck_4", "skip_connect")
FIRST = ENTRY[0]
"""The entry of the first stage, which is not searched."""
GROUPS = {
    "entry": Group(ENTRY, tuple((e,) for e in range(STAGES - 1)), max_inputs=1),
    "body": Group(BODY, tuple((e,) for e in range(STAGES)), max_inputs=1),
}
IMAGES, CHANNELS, BATCH, EPOCHS = 600, 8, 32, 5
SEARCH = ["--space", "resnet", "--epochs", "10", "--batch-size", "32", "--threads", "1"]
SEARCH += ["--channels", str(CHANNELS), "--final-channels", str(CHANNELS), "--device", "cpu"]
OWN = {"enas": ["--controller-steps", "1"]}
"""Of single methods. ENAS' controller has 30 updates of ten cells after each epoch, made for epochs
of 280 steps; here they have ten."""
LIMIT = 0.5
"""Of the largest network's parameters."""


def genotype_of(entries: tuple[str, ...], bodies: tuple[str, ...]) -> Genotype:
    """Of the kinds of the last two entries and of the three bodies."""
    pairs = zip((FIRST, *entries), bodies, strict=True)
    kinds = [kind for pair in pairs for kind in pair]
    nodes = tuple((Edge(kind, i),) for i, kind in enumerate(kinds))
    return Genotype("chain", {"chain": Cell(nodes, (len(nodes),))}, space="resnet")


def all_genotypes() -> list[Genotype]:
    """Every network of the space."""
    entries = list(itertools.product(ENTRY, repeat=STAGES - 1))
    bodies = list(itertools.product(BODY, repeat=STAGES))
    return [genotype_of(e, b) for e in entries for b in bodies]


def arch(genotype: Genotype) -> str:
    """The name of a network in the table."""
    return "+".join(node[0].op for node in genotype.cells["chain"].nodes)


@dataclass(frozen=True)
class SmallChain:
    """The space, for searches."""

    name: str = "resnet"

    @property
    def groups(self) -> Mapping[str, Group]:
        return GROUPS

    def search_network(self, size: Size) -> nn.Module:
        return _choices(size, search_norm)

    def choice_network(self, size: Size) -> nn.Module:
        return _choices(size, final_norm)

    def genotype(self, A_bar: Matrices) -> Genotype:
        picks = {name: A_bar[name].argmax(-1).tolist() for name in GROUPS}
        return genotype_of(
            tuple(ENTRY[k] for k in picks["entry"]), tuple(BODY[k] for k in picks["body"])
        )

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return chain_network(genotype, size, searched)


def _choices(size: Size, norm: Norm) -> Chain:
    def entry(stage: int, C_in: int, C: int, stride: int) -> nn.Module:
        if stage == 0:
            return ENTRIES[FIRST](C_in, C, stride, norm)
        kinds = {name: ENTRIES[name](C_in, C, stride, norm) for name in ENTRY}
        return Choice(kinds, share=Row("entry", stage - 1))

    def body(stage: int, C: int) -> nn.Module:
        return Choice({name: BODIES[name](C, norm) for name in BODY}, share=Row("body", stage))

    return Chain(size, entry, body)


def digits() -> Images:
    """The digits, divided anew: few to train on, so that networks differ, and many to test."""
    usual = load("digits")
    x = np.concatenate([usual.x_train, usual.x_test])
    y = np.concatenate([usual.y_train, usual.y_test])
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:IMAGES], order[IMAGES:]
    arrays = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    return from_arrays(arrays, "digits", "digits")


def train(genotype: Genotype, images: Images, seed: int) -> float:
    """Test accuracy of the network, trained from scratch."""
    torch.manual_seed(stable_seed(seed, "weights"))
    size = Size(1, CHANNELS, images.shape[0], images.num_classes)
    network = channels_last(chain_network(genotype, size))
    train_network(network, images, Lesson(EPOCHS, BATCH), seed)
    return test_network(network, images)


class Lesson(NamedTuple):
    """How networks are trained."""

    epochs: int
    batch_size: int


def train_network(network: nn.Module, images: Images, lesson: Lesson, seed: int) -> None:
    """The same steps on the same batches for every network."""
    part = ImageBatches(images, (images.x_train, images.y_train))
    stream = Stream(part, lesson.batch_size, seed, "train")
    optimizer = MuonAndSgd(network, Rates())
    steps = lesson.epochs * len(stream)
    network.train()
    for step in range(steps):
        batch = stream.next()
        loss = nn.functional.cross_entropy(network(batch.x), batch.y)
        loss.backward()
        optimizer.step(loss.detach(), rate_factor(step / steps))


def test_network(network: nn.Module, images: Images) -> float:
    """Its accuracy."""
    test = ImageBatches(images, (images.x_test, images.y_test))
    return evaluate(network.eval(), test, images.num_classes, torch.float32).accuracy


def known(path: Path) -> list[dict[str, Any]]:
    """Rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, row: dict[str, Any]) -> None:
    """One more."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def make_table(images: Images, seeds: list[int], folder: Path) -> None:
    """Trains what is missing, seed by seed, and writes the table."""
    rows = folder / "trained.jsonl"
    done = {(row["arch"], row["seed"]) for row in known(rows)}
    for seed, genotype in itertools.product(seeds, all_genotypes()):
        if (arch(genotype), seed) not in done:
            start = time.perf_counter()
            accuracy = train(genotype, images, seed)
            seconds = round(time.perf_counter() - start, 2)
            append(
                rows, {"arch": arch(genotype), "seed": seed, "test": accuracy, "seconds": seconds}
            )
    write_table(known(rows), images, folder / "table.csv")


def write_table(rows: list[dict[str, Any]], images: Images, path: Path) -> None:
    """A line a network: parameters, accuracy in percent of every seed, the mean."""
    seeds = sorted({row["seed"] for row in rows})
    found = {(row["arch"], row["seed"]): 100 * row["test"] for row in rows}
    size = Size(1, CHANNELS, images.shape[0], images.num_classes)
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["arch", "params", *(f"test_{seed}" for seed in seeds), "test"])
        for genotype in all_genotypes():
            name = arch(genotype)
            with torch.device("meta"):
                network = chain_network(genotype, size)
            tests = [found[name, seed] for seed in seeds]
            texts = [f"{test:.2f}" for test in (*tests, statistics.fmean(tests))]
            out.writerow([name, parameters(network), *texts])


def search(method: str, seed: int, limit: int, images: Images) -> Genotype:
    """What a search finds; a limit of 0 is none."""
    limited = ["--max-params", str(limit)] if limit else []
    own = [*OWN.get(method, []), *limited]
    flags = ["digits", *SEARCH, "--method", method, "--seed", str(seed), *own]
    this = Search(parse_search(flags), images, SmallChain())
    with shown(Console(), method, True) as bar:
        run_epochs(this, None, bar)
    return this.genotype()


def make_searches(images: Images, seeds: list[int], names: list[str], folder: Path) -> None:
    """Searches by every method, free and within the limit, seed by seed."""
    rows = folder / "searches.jsonl"
    done = {(row["method"], row["seed"], row["limit"]) for row in known(rows)}
    limit = half_of_the_largest(images)
    for seed, method, most in itertools.product(seeds, names, (0, limit)):
        if (method, seed, most) not in done:
            start = time.process_time()
            found = arch(search(method, seed, most, images))
            seconds = round(time.process_time() - start, 2)
            row = {"method": method, "seed": seed, "limit": most}
            append(rows, row | {"arch": found, "seconds": seconds})


def half_of_the_largest(images: Images) -> int:
    """The limit in parameters."""
    size = Size(1, CHANNELS, images.shape[0], images.num_classes)
    with torch.device("meta"):
        counts = [parameters(chain_network(genotype, size)) for genotype in all_genotypes()]
    return int(LIMIT * max(counts))


def ranks(table: list[dict[str, Any]], limit: float) -> dict[str, int]:
    """Network -> its rank among those within the limit, 1 for the best."""
    allowed = [row for row in table if not limit or row["params"] <= limit]
    ordered = sorted(allowed, key=lambda row: -row["test"])
    return {row["arch"]: rank for rank, row in enumerate(ordered, 1)}


def report(table: list[dict[str, Any]], searches: list[dict[str, Any]]) -> list[str]:
    """Markdown: rank (mean, spread, worst) and accuracy of what each method found, free and
    limited, beside the mean of all networks, which is what one random network is worth."""
    limits = _limits(searches)
    columns = ("rank {}", "std", "worst", "test")
    heads = [column.format(_within(limit)) for limit in limits for column in columns]
    lines = [f"| method | seeds | {' | '.join(heads)} | CPU s |"]
    lines.append("|---|---|" + "---|" * (len(heads) + 1))
    everything: list[str] = []
    for limit in limits:
        of_all = ranks(table, limit)
        mean = statistics.fmean(row["test"] for row in table if row["arch"] in of_all)
        everything += [f"{(len(of_all) + 1) / 2:.0f} of {len(of_all)}", "", "", f"{mean:.2f}"]
    lines.append(f"| one random network | | {' | '.join(everything)} | |")
    for method in dict.fromkeys(row["method"] for row in searches):
        mine = [row for row in searches if row["method"] == method]
        figures = [text for limit in limits for text in _figures(table, mine, limit)]
        seconds = statistics.fmean(row["seconds"] for row in mine)
        lines.append(f"| `{method}` | {_seeds(mine)} | {' | '.join(figures)} | {seconds:.1f} |")
    return lines


def _figures(
    table: list[dict[str, Any]], mine: list[dict[str, Any]], limit: float
) -> tuple[str, str, str, str]:
    """Rank, its spread, the worst, accuracy."""
    tests, of_all = {row["arch"]: row["test"] for row in table}, ranks(table, limit)
    found = [row["arch"] for row in mine if row["limit"] == limit]
    if not found:
        return "", "", "", ""
    places = [of_all[name] for name in found]
    spread = f"{statistics.stdev(places):.0f}" if len(places) > 1 else ""
    accuracy = statistics.fmean(tests[name] for name in found)
    return f"{statistics.fmean(places):.1f}", spread, str(max(places)), f"{accuracy:.2f}"


def _seeds(mine: list[dict[str, Any]]) -> str:
    """How many: where free and limited searches differ, both."""
    numbers = {limit: len([r for r in mine if r["limit"] == limit]) for limit in _limits(mine)}
    return " and ".join(map(str, dict.fromkeys(numbers.values())))


def _limits(rows: list[dict[str, Any]]) -> list[float]:
    return sorted({row["limit"] for row in rows})


def _within(limit: float) -> str:
    return f"within {limit:,}" if limit else "free"


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of table.csv."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [row | {name: float(row[name]) for name in ("params", "test")} for row in rows]


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("table", "searches", "report"))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default="", help="of searches; all by itself")
    parser.add_argument("--folder", default="chain")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    images = digits()
    if options.part == "table":
        make_table(images, seeds, folder)
    elif options.part == "searches":
        names = options.methods.split(",") if options.methods else methods.names()
        make_searches(images, seeds, names, folder)
    else:
        print("\n".join(report(read_table(folder / "table.csv"), known(folder / "searches.jsonl"))))


if __name__ == "__main__":
    main()
