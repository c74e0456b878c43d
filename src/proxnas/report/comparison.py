"""What a comparison found, read from its run folders: the runs of each method, and a row of figures for each.

Accuracies are shares of 1 as in result.json, also those of a table that gives them in percent.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxnas.errors import InputError

PARTS = ("arch", "forward", "backward", "other", "evaluate")
Row = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One finished search, and the training of its cell if that is finished too."""

    name: str
    seed: int
    config: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    trained: dict[str, Any] | None = None

    @property
    def second_order(self) -> bool:
        return self.config.get("order") == 2 or self.name.endswith("-2nd")


@dataclass(frozen=True)
class Comparison:
    """All that is finished, method by method in the order in which they were named."""

    config: dict[str, Any]
    names: list[str]
    entries: list[Entry]

    @property
    def figure(self) -> str:
        """What the methods are compared by: the best that the comparison was asked for."""
        if self.config["space"] == "rnn":
            return "test_perplexity" if self.config["train"] else "valid_perplexity"
        if self.config["train"]:
            return "test_accuracy"
        return "table_accuracy" if self.config["table"] else "valid_accuracy"

    def of(self, name: str) -> list[Entry]:
        """The runs of a method, by seed."""
        return sorted((entry for entry in self.entries if entry.name == name), key=lambda entry: entry.seed)


def read(folder: Path) -> Comparison:
    """The comparison in a folder, finished or not."""
    plan = _json(folder / "plan.json")
    places = {(name, seed): f"{name}-{seed}" for name in plan["methods"] for seed in plan["seeds"]}
    found = [
        _entry(name, seed, folder / "search" / place, folder / "train" / place)
        for (name, seed), place in places.items()
        if (folder / "search" / place / "result.json").exists()
    ]
    return Comparison(_json(folder / "config.json"), plan["methods"], found)


def _entry(name: str, seed: int, place: Path, trained: Path) -> Entry:
    lines = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    test = _json(trained / "result.json") if (trained / "result.json").exists() else None
    return Entry(
        name, seed, _json(place / "config.json"), _json(place / "result.json"), [json.loads(x) for x in lines], test
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}): restore it, or remove its folder") from error
    return value


def value(entry: Entry, figure: str) -> float | None:
    """A figure of a run; None if it has none (yet)."""
    if figure == "table_accuracy":
        return _table_accuracy(entry.result.get("table", {}))
    source = entry.trained if figure.startswith("test_") else entry.result
    found: float | None = (source or {}).get(figure)
    return found


def _table_accuracy(table: dict[str, Any]) -> float | None:
    """The first column of test accuracies, in percent or as a share."""
    for name, number in table.items():
        if "test" in name and isinstance(number, float):
            return number / 100 if number > 1 else number
    return None


def rows(found: Comparison, operations: int) -> list[Row]:
    """The rows of table.json: one a method that has at least one run."""
    return [_row(found, name, operations) for name in found.names if _judged(found, name)]


def _judged(found: Comparison, name: str) -> list[Entry]:
    return [entry for entry in found.of(name) if value(entry, found.figure) is not None]


def _row(found: Comparison, name: str, operations: int) -> Row:
    entries = _judged(found, name)
    figures = values(entries, found.figure)
    first = entries[0]
    return {
        "method": name,
        "order": 2 if first.second_order else 1,
        "space": found.config["space"],
        "data": found.config["data"],
        "seeds": [entry.seed for entry in entries],
        "figure": found.figure,
        **spread("", figures),
        "values": figures,
        **_others(entries),
        **spread("params", [(e.trained or e.result)["params"] for e in entries]),
        **spread("flops", [(e.trained or e.result)["flops"] for e in entries]),
        **spread("seconds", [e.result["seconds"] for e in entries]),
        "train_seconds": _mean_or_none([e.trained["seconds"] for e in entries if e.trained]),
        "epochs": statistics.mean(e.result["epochs"] for e in entries),
        "converged": sum(e.result["converged"] for e in entries),
        "ops": operations,
        "nodes": len(next(iter(first.result["genotype"]["cells"].values()))["nodes"]),
        "epoch_seconds": epoch_seconds(entries),
    }


def _others(entries: Sequence[Entry]) -> Row:
    """Means and spreads of every figure that all the runs have, besides the one that is compared."""
    names = ("valid_accuracy", "valid_perplexity", "test_accuracy", "test_perplexity", "table_accuracy")
    found = {name: values(entries, name) for name in names}
    return {
        key: number
        for name, figures in found.items() if len(figures) == len(entries)
        for key, number in spread(name, figures).items()
    }  # fmt: skip


def values(entries: Iterable[Entry], figure: str) -> list[float]:
    """The figure of each run that has it."""
    return [number for entry in entries if (number := value(entry, figure)) is not None]


def spread(name: str, numbers: Sequence[float]) -> Row:
    """Mean and sample standard deviation; of a single number the latter is 0, as in result.json."""
    std = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    prefix = f"{name}_" if name else ""
    return {f"{prefix}mean": statistics.mean(numbers), f"{prefix}std": std}


def _mean_or_none(numbers: Sequence[float]) -> float | None:
    return statistics.mean(numbers) if numbers else None


def epoch_seconds(entries: Iterable[Entry]) -> dict[str, float]:
    """Mean seconds of an epoch, by part."""
    epochs = [row["seconds"] for entry in entries for row in entry.metrics]
    parts = {part: statistics.mean(seconds.get(part, 0.0) for seconds in epochs) for part in PARTS}
    return parts | {"total": sum(parts.values())}


def better(figure: str) -> Callable[[float, float], bool]:
    """Whether the first of two figures is the better one."""
    return (lambda a, b: a < b) if figure.endswith("perplexity") else (lambda a, b: a > b)
