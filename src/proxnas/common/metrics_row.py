"""A line of metrics.jsonl as it is kept, sent and read: the row that crosses rooms. No torch."""

from __future__ import annotations

from typing import Any, Required, TypedDict

SCHEMA = 1
"""Of a line; those without one were written before it had a number, and are alike."""


class MetricsRow(TypedDict, total=False):
    """An epoch. A domain tells figures of its own besides: train_, valid_, supernet_ and what is
    measured; see `figures_in`."""

    epoch: Required[int]
    step: Required[int]
    seconds: Required[dict[str, float]]
    """Part -> seconds: what depends on the clock."""
    train_loss: float
    valid_loss: float
    learning_rate: float
    averaged: bool
    changes: int
    params: int
    eta: float
    A: dict[str, Any]
    selected: dict[str, Any]
    genotype: dict[str, Any]
    rollbacks: int
    schema: int


def figures_in(row: MetricsRow, *begin: str) -> dict[str, float]:
    """Those that an epoch has, by how their names begin."""
    found = {}
    for name, value in row.items():
        if name.startswith(begin) and isinstance(value, int | float):
            found[name] = value
    return found


def total_seconds(rows: list[MetricsRow]) -> float:
    """What all epochs took."""
    return sum(sum(row["seconds"].values()) for row in rows)
