"""Where a score of cells leads when it is followed: climbs by the score alone, judged.

    python benchmarks/quality_climb.py CIFAR_FOLDER JUDGE [--space darts7] [--seeds 0,1]
        [--score capacity] [--starts random] [--shuffle] [--folder climbs]

A climb begins at a random cell, at the largest, or at what the searches in `--starts FOLDER` found
(rows.jsonl of quality.py: NAME of the configuration after a colon); neighbours that differ in one
decision are drawn at random, and one with a better score is taken at once. Nothing is trained.
Resumable: one row a climb in FOLDER/rows.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from quality_judges import (
    SIZES,
    Judge,
    judge_of,
    largest,
    random_genotypes,
    reduced,
    size_of,
    skips,
)
from quality_signals import HALF, Data, depth, naswot, network, read
from torch import nn

from proxnas.cells.genotype import Genotype
from proxnas.domains import spaces
from proxnas.methods.cells import Cell, Cells
from proxnas.searching.start import selecting

EVALUATIONS, MARK = 150, 30
SAMPLE = 20
"""Random cells by which the parts of a score are brought to one scale."""
DRAWS = 1
"""Of first weights, each with a batch of its own: the mean counts."""

Parts = dict[str, float]


def gradient(genotype: Genotype, space: str, data: Data) -> Parts:
    """naswot, and the logarithm of the gradient's norm: how much a network tells apart, and how
    steep its loss is at the first weights."""
    capacity, steepness = [], []
    for draw in range(DRAWS):
        net = network(genotype, space, SIZES[space], draw)
        x, y = data.batch(draw, HALF)
        capacity.append(naswot(net, x))
        loss = nn.functional.cross_entropy(net(x), y)
        weights = [w for w in net.parameters() if w.ndim > 1]
        found = torch.autograd.grad(loss, weights, allow_unused=True)
        steepness.append(math.log(sum(float(g.norm()) for g in found if g is not None)))
    return {"capacity": statistics.mean(capacity), "steepness": -statistics.mean(steepness)}


def size_and_steepness(genotype: Genotype, space: str, data: Data) -> Parts:
    parts = gradient(genotype, space, data)
    return {"size": math.log(size_of(genotype, space)), "steepness": parts["steepness"]}


def size_and_depth(genotype: Genotype, space: str, data: Data) -> Parts:
    return {"size": math.log(size_of(genotype, space)), "depth": -depth(genotype)}


SCORES: dict[str, Callable[[Genotype, str, Data], Parts]] = {
    "capacity": gradient,
    "size and steepness": size_and_steepness,
    "size and depth": size_and_depth,
}


def climb(
    start: Genotype, space: str, measure: Callable[[Genotype], Parts], seed: int
) -> list[tuple[int, Genotype]]:
    """The cells on the way with the number of evaluations before them."""
    groups = spaces.find(space).groups
    cells, generator = Cells(groups), torch.Generator().manual_seed(seed)
    sample = [measure(cell) for cell in random_genotypes(space, SAMPLE, seed=seed + 1000)]
    scales = {name: statistics.stdev(parts[name] for parts in sample) for name in sample[0]}

    def score(cell: Genotype) -> float:
        return sum(value / scales[name] for name, value in measure(cell).items())

    A_bar = selecting(start, spaces.find(space))
    assert A_bar is not None
    middle = cells.of(A_bar)
    best, way, seen = score(start), [(0, start)], {middle}
    waiting = _shuffled(cells, middle, generator)
    for evaluation in range(1, EVALUATIONS + 1):
        waiting = [cell for cell in waiting if cell not in seen]
        if not waiting:
            break
        cell = waiting.pop()
        seen.add(cell)
        genotype = spaces.find(space).genotype(cells.A_bar(cell))
        value = score(genotype)
        if value > best:
            best, middle = value, cell
            way.append((evaluation, genotype))
            waiting = _shuffled(cells, middle, generator)
    return way


def _shuffled(cells: Cells, middle: Cell, generator: torch.Generator) -> list[Cell]:
    around = [cell for cell in cells.neighbours(middle) if cells.allows(cell)]
    order = torch.randperm(len(around), generator=generator).tolist()
    return [around[i] for i in order]


def starts(words: str, space: str, seeds: list[int]) -> dict[int, Genotype]:
    """Seed -> the cell to begin with."""
    if words == "random":
        return {seed: random_genotypes(space, 1, seed)[0] for seed in seeds}
    if words == "largest":
        return {seed: largest(space, seed) for seed in seeds}
    folder, _, name = words.partition(":")
    rows = [json.loads(line) for line in (Path(folder) / "rows.jsonl").read_text().splitlines()]
    return {
        row["seed"]: Genotype.from_object(row["genotype"])
        for row in rows
        if row["space"] == space and row["configuration"] == name and row["seed"] in seeds
    }


def row_of(way: list[tuple[int, Genotype]], judge: Judge, space: str) -> dict[str, Any]:
    """What is known of a climb: the judge's values at the start, on the way and at the end."""
    values = judge([cell for _, cell in way])
    at = [
        next(v for (e, _), v in reversed(list(zip(way, values, strict=True))) if e <= mark)
        for mark in range(0, EVALUATIONS + 1, MARK)
    ]
    end = way[-1][1]
    return {
        "values": at,
        "params": size_of(end, space),
        "skips": skips(end),
        "depth": depth(end),
        "genotype": json.loads(end.to_json()),
    }


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown rows: the mean over seeds on the way, and at the end the spread and the worst."""
    marks = [str(mark) for mark in range(0, EVALUATIONS + 1, MARK)]
    heads = ["space", "score", "from", "labels", "seeds", *marks, "std", "worst", "depth"]
    heads += ["parameters", "seconds"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    kinds = dict.fromkeys((r["space"], r["score"], r["starts"], r["shuffled"]) for r in rows)
    for kind in kinds:
        mine = [r for r in rows if (r["space"], r["score"], r["starts"], r["shuffled"]) == kind]
        ends = [row["values"][-1] for row in mine]
        words = [*kind[:3], "shuffled" if kind[3] else "true"]
        words.append(",".join(str(row["seed"]) for row in mine))
        ways = zip(*(row["values"] for row in mine), strict=True)
        words += [f"{statistics.mean(values):.2f}" for values in ways]
        words += [f"{statistics.stdev(ends) if len(ends) > 1 else 0.0:.2f}", f"{min(ends):.2f}"]
        words += [f"{statistics.mean(row['depth'] for row in mine):.2f}"]
        words += [f"{statistics.mean(row[k] for row in mine):,.0f}" for k in ("params", "seconds")]
        lines.append(f"| {' | '.join(words)} |")
    return lines


def main() -> None:
    """Climbs what is missing and prints all climbs of that kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cifar")
    parser.add_argument("judge")
    parser.add_argument("--space", default="darts7")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--score", default="capacity", choices=SCORES)
    parser.add_argument("--starts", default="random")
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--folder", default="climbs")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    data = read(reduced(options.cifar, folder / "reduced.npz"))
    if options.shuffle:
        order = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))
        data = replace(data, y=data.y[order])
    judge = judge_of(options.judge)
    measure = partial(SCORES[options.score], space=options.space, data=data)
    kind = {"space": options.space, "score": options.score, "starts": options.starts}
    kind |= {"shuffled": options.shuffle}
    stored = folder / "rows.jsonl"
    stored.touch()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    for seed, start in starts(options.starts, options.space, seeds).items():
        known = [json.loads(line) for line in stored.read_text().splitlines()]
        if any(row.items() >= (kind | {"seed": seed}).items() for row in known):
            continue
        begin = time.process_time()
        way = climb(start, options.space, measure, seed)
        row = kind | {"seed": seed, "seconds": time.process_time() - begin}
        row |= row_of(way, judge, options.space)
        with stored.open("a") as file:
            file.write(json.dumps(row) + "\n")
    rows = [json.loads(line) for line in stored.read_text().splitlines()]
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
