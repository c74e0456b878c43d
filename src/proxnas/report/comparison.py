"""What a comparison found, read from its run folders: the runs of each method, and a row of figures
for each.

Accuracies are shares of 1 as in result.json, also those of a table that gives them in percent.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxnas.common import stored
from proxnas.common.errors import InputError

PARTS = ("arch", "forward", "backward", "other", "evaluate")
SIZED = ("params", "flops", "seconds")
SEARCHED = (*SIZED, "epochs", "converged", "genotype")
"""What a row of the table needs of a result."""
RESTORE = "restore it, or remove its folder"
Row = dict[str, Any]


@dataclass(frozen=True)
class RunEntry:
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
    entries: list[RunEntry]

    @property
    def figure(self) -> str:
        """What the methods are compared by: the best that the comparison was asked for."""
        if self.of_text:
            return "test_perplexity" if self.config["train"] else "valid_perplexity"
        if self.config["train"]:
            return "test_accuracy"
        return "table_accuracy" if self.config["table"] else "valid_accuracy"

    @property
    def of_text(self) -> bool:
        """Whether perplexities are compared: what the runs say, not which space they are of."""
        return any("valid_perplexity" in entry.result for entry in self.entries)

    def of(self, name: str) -> list[RunEntry]:
        """The runs of a method, by seed."""
        return sorted(
            (entry for entry in self.entries if entry.name == name), key=lambda entry: entry.seed
        )


@dataclass(frozen=True)
class StudyPlan:
    """Which runs a study has. Kept beside its configuration: `all` may be more in a later
    version."""

    methods: list[str]
    """Or other settings that runs are named by."""
    seeds: list[int]

    def runs(self) -> Iterator[tuple[str, int]]:
        """(method, seed), seed by seed, so that an early look has something of every method."""
        return ((name, seed) for seed in self.seeds for name in self.methods)


def read_plan(folder: Path) -> StudyPlan:
    """The plan in a folder; the names and seeds in it become names of folders, and can be nothing
    else."""
    fields = {"methods": stored.list_of(stored.is_name), "seeds": stored.list_of(stored.is_whole)}
    return StudyPlan(
        **{
            name: value
            for name, value in _json(folder / "plan.json", fields, fields).items()
            if name in fields
        }
    )


def read_comparison(folder: Path) -> Comparison:
    """The comparison in a folder, finished or not."""
    plan = read_plan(folder)
    # folders of other runs may lie there too: the plan says which are of the study
    places = {(name, seed): f"{name}-{seed}" for name, seed in plan.runs()}
    found = [
        _entry(name, seed, folder / "search" / place, folder / "train" / place)
        for (name, seed), place in places.items()
        if (folder / "search" / place / "result.json").exists()
    ]
    config = _json(folder / "config.json", stored.CONFIG, ("space", "data", "train", "table"))
    return Comparison(config, plan.methods, found)


def _entry(name: str, seed: int, place: Path, trained: Path) -> RunEntry:
    config = _json(place / "config.json", stored.CONFIG)
    result = _json(place / "result.json", stored.RESULT, SEARCHED)
    if not nodes_of(result["genotype"]):
        raise InputError(f"{place / 'result.json'}: genotype has no cell with nodes: {RESTORE}")
    if (trained / "result.json").exists():
        test = _json(trained / "result.json", stored.RESULT, SIZED)
    else:
        test = None
    return RunEntry(name, seed, config, result, _rows(place / "metrics.jsonl"), test)


def nodes_of(genotype: Any) -> int:
    """The nodes of the first cell; 0 if that cannot be said."""
    # step by step: a file may hold anything
    cells = genotype.get("cells") if isinstance(genotype, dict) else None
    first = next(iter(cells.values()), None) if isinstance(cells, dict) else None
    nodes = first.get("nodes") if isinstance(first, dict) else None
    return len(nodes) if isinstance(nodes, list) else 0


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = stored.read_bytes(path, stored.MOST_LINES_BYTES).splitlines()
        rows = [
            stored.check(stored.parse_json(line), stored.ROW, ("epoch", "seconds"))
            for line in lines
        ]
        _check_alike(rows)
    except (OSError, ValueError) as error:
        raise stored.unreadable(path, error, RESTORE) from error
    return rows


def _check_alike(rows: Sequence[Row]) -> None:
    """A ValueError unless all epochs tell of the same matrices, so that they can be drawn one after
    the other."""
    if not rows:
        raise ValueError("no epoch")
    # group -> (E, K), epoch by epoch
    forms = [{name: (len(A), len(A[0])) for name, A in row.get("A", {}).items()} for row in rows]
    for row, form in zip(rows, forms, strict=True):
        if row.keys() != rows[0].keys() or form != forms[0]:
            raise ValueError(f"epoch {row['epoch']} tells of other things than the first")
        for name, pairs in row.get("selected", {}).items():
            edges, candidates = form.get(name, (0, 0))
            if not all(e < edges and k < candidates for e, k in pairs):
                raise ValueError(f"epoch {row['epoch']} selects what is not there")


def _json(
    path: Path, fields: Mapping[str, stored.Check], needed: Iterable[str] = ()
) -> dict[str, Any]:
    try:
        return stored.check(stored.read_json(path), fields, needed)
    except (OSError, ValueError) as error:
        raise stored.unreadable(path, error, RESTORE) from error


def value(entry: RunEntry, figure: str) -> float | None:
    """A figure of a run; None if it has none (yet)."""
    if figure == "table_accuracy":
        # the first column of test accuracies, in percent or as a share
        table = entry.result.get("table", {})
        for name, number in table.items():
            if "test" in name and isinstance(number, float):
                return number / 100 if number > 1 else number
        return None
    # a test is of the trained network, everything else of the search
    source = entry.trained if figure.startswith("test_") else entry.result
    found: float | None = (source or {}).get(figure)
    return found


def rows(found: Comparison, operations: int) -> list[Row]:
    """The rows of table.json: one a method that has at least one run."""
    return [
        _row(found, name, operations) for name in found.names if _entries_with_figure(found, name)
    ]


def _entries_with_figure(found: Comparison, name: str) -> list[RunEntry]:
    return [entry for entry in found.of(name) if value(entry, found.figure) is not None]


def _row(found: Comparison, name: str, operations: int) -> Row:
    entries = _entries_with_figure(found, name)
    figures = values(entries, found.figure)
    first = entries[0]
    numbers = [e.trained["seconds"] for e in entries if e.trained]
    train_seconds = statistics.mean(numbers) if numbers else None
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
        # of the network that was trained, where it was: a protocol has sizes of its own
        **spread("params", [(e.trained or e.result)["params"] for e in entries]),
        **spread("flops", [(e.trained or e.result)["flops"] for e in entries]),
        **spread("seconds", [e.result["seconds"] for e in entries]),
        "train_seconds": train_seconds,
        "epochs": statistics.mean(e.result["epochs"] for e in entries),
        # of how many runs
        "converged": sum(e.result["converged"] for e in entries),
        "ops": operations,
        "nodes": nodes_of(first.result["genotype"]),
        "epoch_seconds": epoch_seconds(entries),
    }


def _others(entries: Sequence[RunEntry]) -> Row:
    """Means and spreads of every figure that all the runs have, besides the one that is
    compared."""
    names = (
        "valid_accuracy",
        "valid_perplexity",
        "test_accuracy",
        "test_perplexity",
        "table_accuracy",
    )
    found = {name: values(entries, name) for name in names}
    row: Row = {}
    for name, figures in found.items():
        if len(figures) == len(entries):
            row |= spread(name, figures)
    return row


def values(entries: Iterable[RunEntry], figure: str) -> list[float]:
    """The figure of each run that has it."""
    return [number for entry in entries if (number := value(entry, figure)) is not None]


def spread(name: str, numbers: Sequence[float]) -> Row:
    """Mean and sample standard deviation; of a single number the latter is 0, as in result.json."""
    std = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    prefix = f"{name}_" if name else ""
    return {f"{prefix}mean": statistics.mean(numbers), f"{prefix}std": std}


def epoch_seconds(entries: Iterable[RunEntry]) -> dict[str, float]:
    """Mean seconds of an epoch, by part."""
    epochs = [row["seconds"] for entry in entries for row in entry.metrics]
    parts = {part: statistics.mean(seconds.get(part, 0.0) for seconds in epochs) for part in PARTS}
    return parts | {"total": sum(parts.values())}


def better(figure: str) -> Callable[[float, float], bool]:
    """Whether the first of two figures is the better one."""
    return (lambda a, b: a < b) if figure.endswith("perplexity") else (lambda a, b: a > b)
