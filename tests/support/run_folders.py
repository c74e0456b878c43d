"""Run folders for tests of the report: as the commands write them, but made up."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

OPS = (
    *("skip_connect", "conv_3x1_1x3", "dil_conv_3x3", "conv_1x1", "conv_3x3", "sep_conv_3x3"),
    *(
        "sep_conv_5x5",
        "sep_conv_7x7",
        "avg_pool_3x3",
        "max_pool_3x3",
        "max_pool_5x5",
        "max_pool_7x7",
    ),
)
NODES = [[0, 1], [2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12, 13]]
GROUPS = ("normal", "reduce")


def make_rows(epochs: int, ops: int = 12, seed: int = 0) -> list[dict[str, Any]]:
    """The rows of a search over two cells of 14 edges, whose A drifts from epoch to epoch."""
    draw = random.Random(seed)
    A = {
        name: [[0.5 + draw.gauss(0, 0.02) for _ in range(ops)] for _ in range(14)]
        for name in GROUPS
    }
    rows = []
    for t in range(epochs):
        A = {
            name: [[min(1, max(0, a + draw.gauss(0, 0.04))) for a in row] for row in A[name]]
            for name in GROUPS
        }
        rows.append(_row(t + 1, A, draw))
    return rows


def _row(epoch: int, A: dict[str, list[list[float]]], draw: random.Random) -> dict[str, Any]:
    selected = {name: _selected(matrix) for name, matrix in A.items()}
    cells = {
        name: {"nodes": _nodes(pairs), "concat": [2, 3, 4, 5]} for name, pairs in selected.items()
    }
    return {
        "epoch": epoch,
        "step": 10 * epoch,
        "train_loss": 2.3 * 0.95**epoch,
        "train_accuracy": 1 - 0.9 * 0.95**epoch,
        "valid_loss": 2.3 * 0.96**epoch,
        "valid_accuracy": 1 - 0.9 * 0.96**epoch,
        "changes": draw.randrange(40),
        "params": 3_000_000 + draw.randrange(500_000),
        "A": A,
        "selected": selected,
        "genotype": {"schema": 1, "kind": "cnn", "space": "nasp12-full", "cells": cells},
        "seconds": {"arch": 1.5, "forward": 2.0, "backward": 3.0, "evaluate": 0.5, "other": 0.25},
    }


def _selected(matrix: list[list[float]]) -> list[list[int]]:
    """Of each node the two edges whose best candidates are the largest."""
    kept = [sorted(sorted(rows, key=lambda e: -max(matrix[e]))[:2]) for rows in NODES]
    return [[e, matrix[e].index(max(matrix[e]))] for rows in kept for e in rows]


def _nodes(pairs: list[list[int]]) -> list[list[Any]]:
    return [[[OPS[k], e - rows[0]] for e, k in pairs if e in rows] for rows in NODES]


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )


def make_run(
    folder: Path, epochs: int = 4, finished: bool = True, ops: int = 12, **config: Any
) -> Path:
    """A search of `epochs` epochs, or the beginning of one of 50."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = make_rows(epochs, ops, config.get("seed", 0))
    asked = {
        "data": "digits",
        "space": "nasp12-full",
        "method": "nasp",
        "seed": 0,
        "epochs": epochs if finished else 50,
    }
    write_json(folder / "config.json", {"proxnas": "0.1.0", "command": "search"} | asked | config)
    write_json(
        folder / "environment.json",
        {"python": "3.11.7", "command": ["proxnas", "search", "digits"]},
    )
    groups = {name: {"candidates": OPS[:ops], "nodes": NODES} for name in GROUPS}
    write_json(folder / "space.json", {"space": "nasp12-full", "groups": groups})
    write_rows(folder, rows)
    if rows:
        write_json(folder / "genotype.json", rows[-1]["genotype"])
    if finished:
        outcome = {name: rows[-1][name] for name in ("genotype", "params", "valid_accuracy")}
        kept = {name: (asked | config)[name] for name in ("method", "space", "data", "seed")}
        write_json(
            folder / "result.json",
            kept | outcome | {"flops": 123_456, "epochs": epochs, "seconds": 7.25 * epochs},
        )
    return folder


def make_training(folder: Path, epochs: int = 3, **result: Any) -> Path:
    """A training: no A, no changes; `result` besides what every one has."""
    folder.mkdir(parents=True, exist_ok=True)
    cell = make_rows(1)[0]["genotype"]
    write_json(
        folder / "config.json",
        {"command": "train", "cell": "../search", "data": "digits", "epochs": epochs},
    )
    write_json(folder / "genotype.json", cell)
    kept = ("epoch", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy", "seconds")
    write_rows(folder, [{name: row[name] for name in kept} for row in make_rows(epochs)])
    write_json(
        folder / "result.json", {"test_accuracy": 0.9876, "genotype": cell, "seconds": 3.0} | result
    )
    return folder
