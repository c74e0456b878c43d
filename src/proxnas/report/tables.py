"""The tables of a comparison: table.md in the forms of the paper, table.csv and table.json with
everything."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from proxnas.common.significance import FEWEST
from proxnas.report.comparison import Comparison, Row, better, value
from proxnas.report.paired import LEVEL, Pair, compare_pairs

HEADINGS = {
    "valid_accuracy": "Validation error in the search (%)",
    "test_accuracy": "Test error (%)",
    "table_accuracy": "Test error by the table (%)",
    "valid_perplexity": "Validation perplexity in the search",
    "test_perplexity": "Test perplexity",
}
ABSENT = "-"
SHARED = (
    "The errors are those of the search network with its shared weights on the half of the data for"
    " A: they say how a search went, not how good the trained network will be (--train, --table)."
)


def files(found: Comparison, rows: Sequence[Row], failed: Mapping[str, str]) -> dict[str, str]:
    """Name of a file -> its content."""
    pairs = tests(found)
    listed = [dataclasses.asdict(pair) | {"verdict": pair.verdict} for pair in pairs]
    return {
        "table.json": json.dumps(list(rows), indent=2) + "\n",
        "table.csv": table_csv(rows),
        "table.md": table_md(found, rows, pairs, failed),
        "tests.json": json.dumps(listed, indent=2) + "\n",
    }


def tests(found: Comparison) -> list[Pair]:
    """The paired tests of the figure that is compared."""
    figures: dict[str, dict[int, float]] = {name: {} for name in found.names}
    for entry in found.entries:
        figure = value(entry, found.figure)
        if figure is not None:
            figures[entry.name][entry.seed] = figure
    return compare_pairs(figures)


def table_csv(rows: Sequence[Row]) -> str:
    """A line a method; lists with blanks between, parts of an epoch in columns of their own."""
    flat = [_flat(row) for row in rows]
    # all columns that any row has, in the order in which they come up
    columns = list(dict.fromkeys(name for row in flat for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Row) -> Row:
    found: Row = {}
    for name, item in row.items():
        if isinstance(item, dict):
            found |= {f"{name}_{key}": inner for key, inner in item.items()}
        else:
            found[name] = " ".join(map(str, item)) if isinstance(item, list) else item
    return found


def table_md(
    found: Comparison, rows: Sequence[Row], pairs: Sequence[Pair], failed: Mapping[str, str]
) -> str:
    """The forms of the paper's tables, one section each."""
    config = found.config
    sections = {
        "Error, size and search time": costs(rows),
        "Operations and nodes": costs(rows, spaces=True),
        "Seconds of an epoch": timing(rows),
        "Which methods differ": differences(found, pairs),
    }
    if failed:
        sections["Failed runs"] = "\n".join(
            f"- {name}: {message}" for name, message in failed.items()
        )
    head = (
        f"# Comparison on {config['data']}, space"
        f" {config['space']}\n\n{_introduction(found, rows)}\n"
    )
    return head + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())


def _introduction(found: Comparison, rows: Sequence[Row]) -> str:
    runs = (
        f"{len(found.entries)} searches by {len(rows)} methods; mean ± standard deviation over"
        " seeds."
    )
    if found.figure == "valid_accuracy":
        return f"{runs} {SHARED}"
    return runs


def costs(rows: Sequence[Row], spaces: bool = False) -> str:
    """The paper's tables of errors, parameters and search cost; with `spaces` as for the concurrent
    works."""
    # a column a figure that at least one method has
    figures = [name for name in HEADINGS if any(_has(row, name) for row in rows)]
    # as the paper's table of concurrent works has them
    middle = ["Ops", "Nodes"] if spaces else []
    named = [HEADINGS[name] for name in figures]
    headings = ["Method", *named, "Params (M)", *middle, "Time (min)", "Time (days)", "Seeds"]
    lines = []
    for row in rows:
        errors = [_error(row, name) for name in figures]
        counts = [str(row["ops"]), str(row["nodes"])] if spaces else []
        params = plus_minus(row["params_mean"] / 1e6, row["params_std"] / 1e6, len(row["seeds"]))
        time = [
            f"{row['seconds_mean'] / 60:.3g}",
            f"{row['seconds_mean'] / 86400:.2g}",
            str(len(row["seeds"])),
        ]
        lines.append([row["method"], *errors, params, *counts, *time])
    return grid(headings, lines)


def _has(row: Row, figure: str) -> bool:
    return f"{figure}_mean" in row


def _error(row: Row, figure: str) -> str:
    if not _has(row, figure):
        return ABSENT
    mean, std, n = row[f"{figure}_mean"], row[f"{figure}_std"], len(row["seeds"])
    if figure.endswith("accuracy"):
        mean, std = 100 - 100 * mean, 100 * std
    return plus_minus(mean, std, n, 2)


def plus_minus(mean: float, std: float, n: int, digits: int | None = None) -> str:
    """Mean ± standard deviation; a single seed has none."""
    form = ".3g" if digits is None else f".{digits}f"
    if n <= 1:
        return f"{mean:{form}}"
    return f"{mean:{form}} ± {std:{'.2g' if digits is None else form}}"


def timing(rows: Sequence[Row]) -> str:
    """The paper's timing table: update of A by order, forward and backward for w, all of it, error
    and parameters."""
    parts = [
        "Update A, 1st order",
        "Update A, 2nd order",
        "Forward",
        "Backward",
        "Other",
        "Evaluate",
        "Total",
    ]
    headings = [
        "Ops",
        "Method",
        *parts,
        "Error (%)" if _is_error(rows) else "Perplexity",
        "Params (M)",
    ]
    lines = []
    for row in rows:
        seconds = row["epoch_seconds"]
        # the paper's two columns, of which a method fills one
        times: list[float | None] = [None, None]  # of A, by order
        times[row["order"] - 1] = seconds["arch"]
        for part in ("forward", "backward", "other", "evaluate", "total"):
            times.append(seconds[part])
        figures = [_error(row, row["figure"]), f"{row['params_mean'] / 1e6:.3g}"]
        lines.append([str(row["ops"]), row["method"], *map(_seconds, times), *figures])
    return grid(headings, lines)


def _is_error(rows: Sequence[Row]) -> bool:
    return not rows or not rows[0]["figure"].endswith("perplexity")


def _seconds(number: float | None) -> str:
    return ABSENT if number is None else f"{number:.3g}"


def differences(found: Comparison, pairs: Sequence[Pair]) -> str:
    """What the tests say; nothing is called different without one."""
    told = [pair for pair in pairs if pair.corrected is not None]
    most = max((pair.seeds for pair in pairs), default=0)
    # too few seeds for any test: say how many it takes
    if not told and most < FEWEST:
        seeds = f"{most} seed{'s' * (most != 1)}"
        return (
            f"With {seeds} in common it cannot be told which methods differ: give at least"
            f" {FEWEST}."
        )
    note = (
        f"Paired t tests over common seeds, p values corrected by Holm for {len(told)} pairs; "
        "all of them are in tests.json."
    )
    unlike = [pair for pair in told if pair.verdict == "different"]
    if not unlike:
        return f"No two methods could be told apart at the level {LEVEL}. {note}"
    headings = [
        "Better",
        "Worse",
        f"Difference in {found.figure.replace('_', ' ')}",
        "Seeds",
        "Corrected p",
    ]
    return f"{grid(headings, _difference_lines(found, unlike))}\n\n{note}"


def _difference_lines(found: Comparison, unlike: Sequence[Pair]) -> list[list[str]]:
    """A line a pair, the surest first."""
    is_better = better(found.figure)
    lines = []
    for pair in sorted(unlike, key=lambda pair: pair.corrected or 0.0):
        ahead = is_better(pair.difference, 0)
        names = [pair.first, pair.second] if ahead else [pair.second, pair.first]
        lines.append(
            [*names, f"{abs(pair.difference):.4g}", str(pair.seeds), f"{pair.corrected:.2g}"]
        )
    return lines


def grid(headings: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    rule = ["---"] * len(headings)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *lines))
