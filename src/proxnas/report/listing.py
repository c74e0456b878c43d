"""A list of runs that is quick with thousands of them: small files only, and the last line of the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from proxnas.report.facts import figures, seconds_of, shown
from proxnas.report.reading import children, in_use, last_row, read_object, run_folders, status
from proxnas.report.terminal import console, printable


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """An object a run at or below the folder: run, status, command and what is known of it."""
    tops = [folder] if (folder / "config.json").is_file() else children(folder)
    return [_entry(path, folder) for top in tops for path in run_folders(top)]


def _entry(path: Path, folder: Path) -> dict[str, Any]:
    config, result = read_object(path / "config.json"), read_object(path / "result.json")
    row = {} if result else last_row(path / "metrics.jsonl")
    known = figures(config, row, result)
    if row:  # all epochs would have to be read to know it exactly
        known["seconds"] = seconds_of(row) * row["epoch"]
    entry = {
        "run": str(path.relative_to(folder)) if path != folder else path.resolve().name,
        "status": status(bool(result), not result and in_use(path)),
        "command": config.get("command"),
        "of_epochs": config.get("epochs"),
    }
    return {**entry, **known, "seconds_estimated": bool(row)}


def print_runs(entries: Iterable[dict[str, Any]]) -> None:
    """The list as a table; parts of a run are indented below it."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("run", "status", "epochs", "valid", "test", "parameters", "time"):
        table.add_column(name, justify="left" if name in ("run", "status") else "right", overflow="fold")
    for entry in entries:
        table.add_row(*(escape(cell) for cell in _cells(entry)))
    console().print(table)


def _cells(entry: dict[str, Any]) -> list[str]:
    indent = "  " * entry["run"].count("/")
    done, total = entry.get("epochs"), entry["of_epochs"]
    stopped = entry["status"] != "finished" and done is not None and total is not None
    about = "~" if entry["seconds_estimated"] else ""
    return [
        indent + printable(entry["run"]),
        entry["status"],
        f"{done}/{total}" if stopped else "" if done is None else str(done),
        _score(entry, "valid"),
        _score(entry, "test"),
        shown("params", entry["params"]) if "params" in entry else "",
        about + shown("seconds", entry["seconds"]) if "seconds" in entry else "",
    ]


def _score(entry: dict[str, Any], part: str) -> str:
    for name, unit in ((f"{part}_accuracy", ""), (f"{part}_perplexity", " ppl")):
        if name in entry:
            return shown(name, entry[name]) + unit
    return ""
