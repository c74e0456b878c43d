"""The file of a table of measured operations: where it is kept, how it is read, whether it fits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from proxnas.common.errors import InputError, OptionError, escape
from proxnas.common.onnx_runtime import onnx_available
from proxnas.common.stored import Check, check, is_amount, is_figure, is_text, is_whole, read_json
from proxnas.core.groups import Group
from proxnas.core.size.costs import Sums
from proxnas.core.size.latency_table import (
    KIND,
    SCHEMA,
    About,
    Fit,
    LatencyTable,
    Machine,
    Quality,
    machine,
)
from proxnas.core.size.stopwatch import choose

REBUILD = "build one that does: proxnas latency build"


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
        # every field has to be there: the second HEAD names those that must not be missing
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
        # an edge stands at its places whatever its operation: the first row of it tells
        places = [[found[row[0]]["places"]] for row in keys]
        number[name] = torch.tensor(places, dtype=torch.float64)
    return Sums(total, number)


def misfit(path: Path, about: About, here: Machine) -> str:
    """What of a table does not fit, in words; empty if all does."""
    data, _ = read_rows(path)
    for part, mine in (("about", asdict(about)), ("machine", asdict(here))):
        for name, value in mine.items():
            theirs = data[part][name]
            # JSON has lists where we have tuples
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
        # one of the usual places may be empty; a file that was named must be there
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
