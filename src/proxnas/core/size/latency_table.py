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
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from proxnas.common.environment import processor_name
from proxnas.common.errors import InputError, OptionError, escape
from proxnas.common.onnx_runtime import onnx_available
from proxnas.common.stored import Check, check, is_amount, is_figure, is_text, is_whole, read_json
from proxnas.common.types import Matrices
from proxnas.core.groups import Group
from proxnas.core.size.costs import Sums
from proxnas.core.size.stopwatch import Runtime, choose

SCHEMA, KIND = 1, "latency"
REBUILD = "build one that does: proxnas latency build"


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


# ------------------------------------------------------------- how good it is


def fitted(sums: Sequence[float], measured: Sequence[float]) -> Fit:
    """By least squares of the relative errors, so that quick networks count as much as slow ones;
    where that makes no sense on a busy machine, the mean ratio."""
    scale, fixed = 0.0, 0.0
    if max(sums) > min(sums):
        X = torch.tensor(
            [[1 / m, s / m] for s, m in zip(sums, measured, strict=True)], dtype=torch.float64
        )
        unit = X.norm(dim=0)  # a sum of seconds is small beside 1
        found = torch.linalg.lstsq(X / unit, X.new_ones(len(sums), 1)).solution[:, 0] / unit
        fixed, scale = found.tolist()
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
    return [
        (1 + 2 * sum(v < value for v in values) + sum(v == value for v in values)) / 2
        for value in values
    ]


# ------------------------------------------------------------- its file


def kept_place(about: About, by: str, threads: int) -> Path:
    """Where a table is kept, unless it is told where."""
    C, H, W = about.image
    size = f"{about.cells}x{about.channels}-{C}x{H}x{W}-{about.classes}"
    return kept_folder() / f"{about.space}-{size}-{by}-{threads}.json"


def kept_folder() -> Path:
    """The user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "proxnas" / "latency"


HEAD: dict[str, Check] = {
    "schema": lambda value: value == SCHEMA,
    "kind": lambda value: value == KIND,
    "by": lambda value: value in ("torch", "onnx"),
    "operations": lambda value: isinstance(value, list) and bool(value),
}
ABOUT: dict[str, Check] = {
    "space": is_text,
    "image": lambda value: (
        isinstance(value, list) and len(value) == 3 and all(map(is_whole, value))
    ),
    "classes": is_whole,
    "cells": is_whole,
    "channels": is_whole,
}
MACHINE: dict[str, Check] = {
    "processor": is_text,
    "device": is_text,
    "threads": is_whole,
    "runtime": is_text,
}
FIT: dict[str, Check] = {"fixed": is_amount, "scale": lambda value: is_figure(value) and value > 0}
QUALITY: dict[str, Check] = {
    "networks": is_whole,
    "rank_correlation": is_figure,
    "mean_relative_error": is_amount,
    "fastest": is_amount,
    "slowest": is_amount,
}
ROW: dict[str, Check] = {
    "group": is_text,
    "edge": is_whole,
    "operation": is_text,
    "places": is_whole,
    "seconds": is_amount,
}


def read_rows(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(what stands above the rows, the rows) of a table's file; an InputError if it is none."""
    try:
        data = check(read_json(path), HEAD, HEAD)
        parts = {"about": ABOUT, "machine": MACHINE, "fit": FIT, "quality": QUALITY}
        for name, fields in parts.items():
            check(data.get(name), fields, fields)
        rows = [check(row, ROW, ROW) for row in data["operations"]]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path}: no table of latencies ({reason}): build one: proxnas latency build"
        ) from error
    return data, rows


def read_table(path: Path, groups: Mapping[str, Group]) -> LatencyTable:
    """The table in a file, for a space with these groups."""
    data, rows = read_rows(path)
    about = {name: data["about"][name] for name in ABOUT}
    return LatencyTable(
        About(**about | {"image": tuple(about["image"])}),
        data["by"],
        Machine(**{name: data["machine"][name] for name in MACHINE}),
        _operations(path, rows, groups),
        Fit(**{name: float(data["fit"][name]) for name in FIT}),
        Quality(**{name: data["quality"][name] for name in QUALITY}),
    )


def _operations(path: Path, rows: Sequence[Mapping[str, Any]], groups: Mapping[str, Group]) -> Sums:
    found = {(row["group"], row["edge"], row["operation"]): row for row in rows}
    total, number = {}, {}
    for name, group in groups.items():
        edges, _ = group.shape
        keys = [[(name, e, op) for op in group.candidates] for e in range(edges)]
        for key in (key for row in keys for key in row):
            if key not in found:
                raise InputError(
                    f"{path}: has no row for {key[2]} on edge {key[1]} of {name}: {REBUILD}"
                )
        seconds = [[found[key]["seconds"] for key in row] for row in keys]
        total[name] = torch.tensor(seconds, dtype=torch.float64).reshape(group.shape)
        places = [[found[row[0]]["places"]] for row in keys]
        number[name] = torch.tensor(places, dtype=torch.float64)
    return Sums(total, number)


def misfit(path: Path, about: About, here: Machine) -> str:
    """What of a table does not fit, in words; empty if all does."""
    data, _ = read_rows(path)
    for part, mine in (("about", asdict(about)), ("machine", asdict(here))):
        for name, value in mine.items():
            theirs = data[part][name]
            if theirs != (list(value) if isinstance(value, tuple) else value):
                return f"was built for {name} {_shown(theirs)}, not for {_shown(value)}"
    return ""


def _shown(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def find_table(
    by: str, about: About, groups: Mapping[str, Group], device: torch.device
) -> LatencyTable | None:
    """The table for these networks on this machine; None where they are to be measured.

    `auto` takes the kept one if it fits; `table` and the name of a file demand one that does.
    """
    if by in ("onnx", "torch"):
        return None
    asked = by != "auto"
    for path in [Path(by)] if by.endswith(".json") else _kept(about, device):
        if not path.is_file() and not by.endswith(".json"):
            continue
        why = misfit(path, about, machine(choose(read_rows(path)[0]["by"], device)))
        if not why:
            return read_table(path, groups)
        if asked:
            raise OptionError("latency_by", by, f"{escape(path)} {escape(why)}: {REBUILD}")
    if asked:
        raise OptionError("latency_by", by, "there is none for this space and size: " + REBUILD)
    return None


def _kept(about: About, device: torch.device) -> list[Path]:
    """Where tables would be kept, the preferred runtime first."""
    threads = torch.get_num_threads()
    runtimes = ["onnx"] if onnx_available() and device.type == "cpu" else []
    return [kept_place(about, by, threads) for by in (*runtimes, "torch")]
