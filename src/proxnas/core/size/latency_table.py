"""A table of measured operations: the seconds of each candidate at its places in the final networks
of a space, on one machine, by one runtime; from which the seconds of any of these networks follow.

    seconds(A_bar) = fixed + scale * sum of the selected entries

`fixed` and `scale` are fitted to whole networks, because operations side by side share caches and
overheads; how well that predicts others is measured and kept. A table holds for what it was built
for and is refused elsewhere: another space or size, another processor, runtime or number of
threads.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from proxnas.common.environment import processor_name
from proxnas.common.types import Matrices
from proxnas.core.groups import Group
from proxnas.core.size.costs import Sums
from proxnas.core.size.stopwatch import Runtime

SCHEMA = 1
"""Of its file."""
KIND = "latency"


@dataclass(frozen=True)
class About:
    """The networks that a table is for."""

    space: str
    image: tuple[int, int, int]
    """Channels, height, width."""
    classes: int
    cells: int
    channels: int


@dataclass(frozen=True)
class Machine:
    """What ran them: seconds of another say nothing."""

    processor: str
    device: str
    threads: int
    runtime: str


def machine(runtime: Runtime) -> Machine:
    """Of this process."""
    device = str(runtime.device)
    return Machine(processor_name(), device, torch.get_num_threads(), runtime.version)


@dataclass(frozen=True)
class Fit:
    """From the sum of a network's operations to its seconds."""

    fixed: float
    scale: float

    def __call__(self, total: float) -> float:
        return self.fixed + self.scale * total


@dataclass(frozen=True)
class Quality:
    """How well other networks than those of the fit were predicted."""

    networks: int
    rank_correlation: float
    mean_relative_error: float
    fastest: float
    """Seconds of the quickest of them, measured."""
    slowest: float


@dataclass(frozen=True)
class LatencyTable:
    """All of it."""

    about: About
    by: str
    machine: Machine
    operations: Sums
    fit: Fit
    quality: Quality

    @property
    def entries(self) -> Matrices:
        """Group -> (E, K): what each entry of A_bar adds to a network."""
        return {name: self.fit.scale * matrix for name, matrix in self.operations.total.items()}

    def seconds(self, A_bar: Matrices) -> float:
        """Of the network that A_bar selects, predicted."""
        return self.fit(selected_sum(self.operations, A_bar))

    def to_json(self, groups: Mapping[str, Group]) -> str:
        """As it is kept: a row for each operation of each edge."""
        head = {
            "schema": SCHEMA,
            "kind": KIND,
            "by": self.by,
            "about": asdict(self.about),
            "machine": asdict(self.machine),
            "fit": asdict(self.fit),
            "quality": asdict(self.quality),
        }
        rows = [json.dumps(row) for row in self._rows(groups)]
        # a line a row: a table of hundreds of operations stays readable, and so does a diff of two
        text = json.dumps(head, indent=2).removesuffix("\n}")
        return text + ',\n  "operations": [\n    ' + ",\n    ".join(rows) + "\n  ]\n}\n"

    def _rows(self, groups: Mapping[str, Group]) -> list[dict[str, Any]]:
        rows = []
        for name, group in groups.items():
            for e, seconds in enumerate(self.operations.total[name].tolist()):
                places = int(self.operations.number[name][e])
                for op, value in zip(group.candidates, seconds, strict=True):
                    row = {"group": name, "edge": e, "operation": op, "places": places}
                    rows.append(row | {"seconds": value})
        return rows


def selected_sum(operations: Sums, A_bar: Matrices) -> float:
    """Seconds of the selected operations."""
    parts = [operations.total[name][A_bar[name] != 0].sum() for name in operations.total]
    return float(torch.stack(parts).sum())


def fitted(sums: Sequence[float], measured: Sequence[float]) -> Fit:
    """By least squares of the relative errors, so that quick networks count as much as slow ones;
    where that makes no sense on a busy machine, the mean ratio."""
    scale, fixed = 0.0, 0.0
    if max(sums) > min(sums):
        # (networks, 2): (fixed + scale s) / m = 1 for each, s its sum and m its measured seconds
        X = torch.tensor(
            [[1 / m, s / m] for s, m in zip(sums, measured, strict=True)], dtype=torch.float64
        )
        unit = X.norm(dim=0)  # a sum of seconds is small beside 1
        found = torch.linalg.lstsq(X / unit, X.new_ones(len(sums), 1)).solution[:, 0] / unit
        fixed, scale = found.tolist()
    # noise can turn the line around, which would make quick networks of slow operations
    if scale <= 0 or fixed < 0:
        total = sum(sums)
        return Fit(0.0, sum(measured) / total) if total else Fit(statistics.mean(measured), 1.0)
    return Fit(fixed, scale)


def quality(predicted: Sequence[float], measured: Sequence[float]) -> Quality:
    """Of predictions beside what was measured."""
    errors = [abs(p - m) / m for p, m in zip(predicted, measured, strict=True)]
    return Quality(
        len(measured),
        rank_correlation(predicted, measured),
        statistics.mean(errors),
        min(measured),
        max(measured),
    )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's; 0 where one of them is the same everywhere."""
    if min(one) == max(one) or min(other) == max(other):
        return 0.0
    return statistics.correlation(_ranks(one), _ranks(other))


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equal values share the mean of their places."""
    ranks = []
    for value in values:
        below = sum(v < value for v in values)
        equal = sum(v == value for v in values)
        # the mean of the places below + 1 .. below + equal
        ranks.append((1 + 2 * below + equal) / 2)
    return ranks
