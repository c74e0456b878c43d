"""A list of runs that is quick with thousands of them: small files only, and the last line of the
metrics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from proxnas.common.say import plain
from proxnas.report.facts import figures, seconds_of, value_text
from proxnas.report.reading import (
    children,
    in_use,
    last_row,
    read_config,
    read_result,
    run_folders,
    status,
)

HEAD = ["run", "status", "epochs", "valid", "test", "parameters", "time"]
UNITS = {"accuracy": "", "r2": " R2", "map": " mAP", "perplexity": " ppl"}
"""What is behind the main figure of a run, by its name."""


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """An object a run at or below the folder: run, status, command and what is known of it."""
    tops = [folder] if (folder / "config.json").is_file() else children(folder)
    return [_entry(path, folder) for top in tops for path in run_folders(top)]


def _entry(path: Path, folder: Path) -> dict[str, Any]:
    config, result = read_config(path), read_result(path)
    # a finished run says everything in its result
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


def table(entries: Iterable[dict[str, Any]]) -> str:
    """The list in columns; parts of a run are indented below it. Written plainly, which takes no
    time."""
    rows = [HEAD, *([plain(cell) for cell in _cells(entry)] for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # words, figures
    aligned = [f"{{:<{width}}}" if i < 2 else f"{{:>{width}}}" for i, width in enumerate(widths)]
    return "\n".join("  ".join(aligned).format(*row).rstrip() for row in rows)


def _cells(entry: dict[str, Any]) -> list[str]:
    indent = "  " * entry["run"].count("/")
    done, total = entry.get("epochs"), entry["of_epochs"]
    stopped = entry["status"] != "finished" and done is not None and total is not None
    about = "~" if entry["seconds_estimated"] else ""
    epochs = "" if done is None else str(done)
    return [
        indent + entry["run"],
        entry["status"],
        f"{done}/{total}" if stopped else epochs,
        _score(entry, "valid"),
        _score(entry, "test"),
        value_text("params", entry["params"]) if "params" in entry else "",
        about + value_text("seconds", entry["seconds"]) if "seconds" in entry else "",
    ]


def _score(entry: dict[str, Any], part: str) -> str:
    for figure, unit in UNITS.items():
        if (name := f"{part}_{figure}") in entry:
            return value_text(name, entry[name]) + unit
    return ""
