"""What a finished run says in the terminal: the cell and a table of what came out and where it
is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError
from proxnas.common.say import note, plain, say
from proxnas.report.cell import cell_text
from proxnas.report.facts import (
    duration,
    figures,
    int8_facts,
    label_values,
    leaderboard,
    leaderboard_texts,
)
from proxnas.report.page import FILE, write_report
from proxnas.report.reading import find_runs

WIDE = 1000  # columns where the output is no terminal: nothing is cut


def console() -> Console:
    """Where tables go: as wide as the terminal, or as they need."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=WIDE)


def print_cell(result: Mapping[str, Any]) -> None:
    """The cell of a result as text, if it has one."""
    try:
        say(cell_text(Genotype.from_object(result["genotype"])))
    except (KeyError, InputError):
        return


def print_summary(result: Mapping[str, Any], folder: Path, more: Mapping[str, object] = {}) -> None:
    """What came out of a run and where it is."""
    _print(
        {**label_values(figures({}, {}, result)), **more},
        folder,
        {"to see it": f"proxnas report {quote(str(folder))}"},
    )


def print_warning(result: Mapping[str, Any]) -> None:
    """What is doubtful about a result, where it cannot be missed: after all else."""
    if "warning" in result:
        note(f"warning: {result['warning']}")


def print_fit(result: Mapping[str, Any], folder: Path) -> None:
    """The same for a fit; its report is written here, the last of its files."""
    files: dict[str, object] = {
        "exported, checked": folder / result["exported"],
        "model card": folder / result["model_card"],
        "report": write_report(find_runs(folder), folder / FILE),
    }
    times = {f"time of {part}": duration(result[part]["seconds"]) for part in ("search", "train")}
    if result.get("use_model"):
        files["to use it"] = f"python {quote(str(folder / result['use_model']))} IMAGE..."
    _print(label_values(figures({}, {}, result)) | times | int8_facts(result), folder, files)
    if rows := leaderboard(result):
        # what was held against the network that is delivered, and how right each was
        table = Table("", "validation", "test", "parameters", "time", "ms an image", box=None)
        for row in rows:
            mark = " (delivered)" if row["delivered"] else ""
            table.add_row(escape(plain(row["name"])) + mark, *leaderboard_texts(row))
        console().print(table)
        say(plain(result["search"].get("said", "")))


def _print(rows: Mapping[str, object], folder: Path, files: Mapping[str, object]) -> None:
    table = Table.grid(padding=(0, 2))
    rows = {**rows, "run folder": folder, **files}
    for label, value in rows.items():
        table.add_row(escape(plain(label)), escape(plain(value)))
    console().print(table)
