"""Who judges the cells of the quality study, and the random cells that they are compared with.

NAS-Bench-201 has a table of all its cells (csv); for cells of DARTS a folder with a judge.py is
asked, whose `judge` takes (normal, reduce), each 8 pairs (operation, input), and gives accuracies
in %.

E edges, K candidates; costs are (E, K) for each group: the parameters that an entry of A_bar adds.
"""

from __future__ import annotations

import csv
import functools
import gzip
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proxnas.cells.genotype import Genotype
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import NONE, SKIP
from proxnas.core.selection import one_hot, random_selection
from proxnas.core.size.complexity import parameters
from proxnas.domains import spaces
from proxnas.domains.images.data.images import load, split
from proxnas.domains.images.networks.cnn import Size

Judge = Callable[[Sequence[Genotype]], list[float]]
"""Cells -> accuracies in %."""
TEST = "cifar10_test"
TOLERANCE = 0.1
"""Cells are of the same size if their parameters differ by no more than this share."""
SIZES = {
    "nasbench201": Size(1, 16, 3, 10),
    "darts7": Size(5, 8, 3, 10),
    "darts8": Size(5, 8, 3, 10),
}
"""Of the networks that are searched, and whose parameters are compared."""


def judge_of(place: str) -> Judge:
    """A folder with judge.py, or a table."""
    ask = _by_file(Path(place)) if Path(place).is_dir() else _by_table(Path(place))
    return lambda cells: [float(value) for value in ask(cells)]


def _by_table(path: Path) -> Callable[[Sequence[Genotype]], Any]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        accuracies = {row["arch"]: float(row[TEST]) for row in csv.DictReader(file)}
    return lambda cells: [accuracies[cell.without_values().to_string()] for cell in cells]


def _by_file(folder: Path) -> Callable[[Sequence[Genotype]], Any]:
    spec = importlib.util.spec_from_file_location("judge", folder / "judge.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda cells: module.judge([pairs(cell) for cell in cells])


def pairs(genotype: Genotype) -> tuple[list[tuple[str, int]], ...]:
    """(normal, reduce) as DARTS writes them."""
    return tuple(
        [(edge.op, edge.input) for node in genotype.cells[kind].nodes for edge in node]
        for kind in ("normal", "reduce")
    )


def skips(genotype: Genotype) -> int:
    """Skip connections of the cell, or of the normal one."""
    cell = genotype.cells["normal" if genotype.kind == "cnn" else "cell"]
    return sum(edge.op == SKIP for node in cell.nodes for edge in node)


def size_of(genotype: Genotype, space: str) -> int:
    """Parameters of the cell's own network."""
    with torch.device("meta"):
        return parameters(spaces.find(space).network(genotype, SIZES[space]))


def random_genotypes(space: str, number: int, seed: int) -> list[Genotype]:
    """Uniformly random cells of a space."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(number):
        groups = spaces.find(space).groups
        A_bar = {name: random_selection(group, generator) for name, group in groups.items()}
        found.append(spaces.find(space).genotype(A_bar))
    return found


class Costs(NamedTuple):
    """What a network has whatever is selected, and what each entry of A_bar adds."""

    base: float
    entries: Matrices


@functools.cache
def costs_of(space: str) -> Costs:
    """Parameters, counted in the network of all candidates."""
    with torch.device("meta"):
        net = spaces.find(space).choice_network(SIZES[space])
    assert net is not None
    entries = {
        name: torch.zeros(group.shape, dtype=torch.float64)
        for name, group in spaces.find(space).groups.items()
    }
    for choice in net.modules():
        if isinstance(choice, Choice) and choice.row:
            counts = [float(parameters(candidate)) for candidate in choice.candidates]
            entries[choice.row.group][choice.row.edge] += torch.tensor(counts)
    base = parameters(net) - sum(float(cost.sum()) for cost in entries.values())
    return Costs(base, entries)


def largest(space: str, seed: int) -> Genotype:
    """The cell with most parameters; where several have as many, by the seed."""
    generator = torch.Generator().manual_seed(seed)
    found = spaces.find(space)
    A_bar = {}
    for name, cost in costs_of(space).entries.items():
        chance = torch.rand(cost.shape, generator=generator, dtype=torch.float64)
        A_bar[name] = one_hot(cost + 1e-3 * chance, found.groups[name])
    return found.genotype(A_bar)


def largest_and_flat(space: str, seed: int) -> Genotype:
    """The largest of the flat cells."""
    entries = costs_of(space).entries
    return _flat(space, {name: cost / (1 + cost.max()) for name, cost in entries.items()}, seed)


def random_flat(space: str, seed: int) -> Genotype:
    """A random one of the flat cells."""
    groups = spaces.find(space).groups
    return _flat(space, {name: torch.zeros(group.shape) for name, group in groups.items()}, seed)


def _flat(space: str, A: Matrices, seed: int) -> Genotype:
    """The best cell by A, then by the seed, whose nodes read the inputs of the cell and no other
    node: no way is longer than it must be. In nasbench201 every edge is there, and A decides
    alone."""
    generator = torch.Generator().manual_seed(seed)
    found = spaces.find(space)
    A_bar = {}
    for name, group in found.groups.items():
        chance = torch.rand(group.shape, generator=generator, dtype=torch.float64)
        wanted = A[name] + 1e-6 * chance
        for rows in group.nodes if group.max_inputs is not None else ():
            wanted[list(rows[: group.max_inputs])] += 10.0
        A_bar[name] = one_hot(wanted, group)
    return found.genotype(A_bar)


def of_size(space: str, wanted: float, number: int, seed: int = 0) -> list[Genotype]:
    """Random cells with about so many parameters, all such cells equally likely (nearly).

    Hardly any uniformly random cell is as large as one that was found. So operations are drawn with
    chances that grow or fall exponentially with their mean cost: among cells of one size that
    changes nothing, and those of the wanted size are drawn often.
    """
    found, costs = spaces.find(space), costs_of(space)
    tilt = _tilt(space, costs, wanted)
    generator = torch.Generator().manual_seed(seed)
    cells: list[Genotype] = []
    for _ in range(200 * number):
        A_bar = {}
        for name, group in found.groups.items():
            chances = _chances(costs.entries[name], group.candidates, tilt, group.max_inputs)
            rows = chances.expand(group.shape).clone()
            drawn = torch.multinomial(rows, 1, generator=generator)
            strength = torch.rand(group.shape[0], 1, generator=generator, dtype=torch.float64)
            A = torch.zeros(group.shape, dtype=torch.float64).scatter_(1, drawn, 0.1 + strength)
            A_bar[name] = one_hot(A, group)
        size = costs.base + sum(float((A_bar[n] * c).sum()) for n, c in costs.entries.items())
        if abs(size / wanted - 1) <= TOLERANCE:
            cells.append(found.genotype(A_bar))
        if len(cells) == number:
            break
    return cells


def _chances(
    cost: Tensor, candidates: Sequence[str], tilt: float, max_inputs: int | None
) -> Tensor:
    """(K,): exp(tilt times the mean cost of the candidate), `none` only where a node may do
    without."""
    chances = torch.exp(tilt * (cost.mean(0) - cost.mean(0).max()))
    if max_inputs is not None and NONE in candidates:
        chances[list(candidates).index(NONE)] = 0.0
    return chances / chances.sum()


def _tilt(space: str, costs: Costs, wanted: float) -> float:
    """The tilt under which cells have the wanted size in the mean, by bisection."""
    groups = spaces.find(space).groups

    def expected(tilt: float) -> float:
        size = costs.base
        for name, group in groups.items():
            kept = sum(min(len(rows), group.max_inputs or len(rows)) for rows in group.nodes)
            cost = costs.entries[name]
            chances = _chances(cost, group.candidates, tilt, group.max_inputs)
            size += kept * float((chances * cost.mean(0)).sum())
        return size

    unit = max(float(cost.mean(0).max()) for cost in costs.entries.values())
    low, high = -12.0 / unit, 12.0 / unit
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < wanted else (low, middle)
    return low


def reduced(cifar: str, path: Path, images: int = 50_000) -> Path:
    """Training images at 16x16, as an npz file, of equal classes; no test images are needed."""
    if not path.exists():
        full = load(cifar)
        N = len(full.y_train)
        x = full.x_train.reshape(N, 16, 2, 16, 2, 3).mean((2, 4)).round().astype(np.uint8)
        y = full.y_train
        if images < N:
            unit = math.gcd(N, images)
            part = np.sort(np.concatenate(split(y, N // unit, seed=0)[: images // unit]))
            x, y = x[part], y[part]
        np.savez(path, x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])
    return path


def with_shuffled_labels(data: Path, seed: int, path: Path) -> Path:
    """The same images with each other's labels."""
    if not path.exists():
        arrays = dict(np.load(data))
        generator = np.random.default_rng(seed)
        arrays["y_train"] = generator.permutation(arrays["y_train"])
        np.savez(path, **arrays)
    return path
