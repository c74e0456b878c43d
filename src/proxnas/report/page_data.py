"""A run as the page shows it: a JSON object of texts, figures by epoch, and frames that replay the
search.

E edges, K candidates, T frames; A is (T, E, K). A frame is an epoch with its A and its cell; long
runs show a selection of theirs, so that the page stays small.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError
from proxnas.report.cell import cell_svgs, cell_text
from proxnas.report.examined import examined_figures, leaderboard_table
from proxnas.report.facts import command_of, duration, facts, number, reproduce, seconds_of
from proxnas.report.layout import TITLES, state_name
from proxnas.report.reading import Record, StoredRow

MOST_BYTES = 2_500_000  # of all data of a page, which is to stay below 3 MB
MOST_POINTS = 1000  # of a curve
CURVES = {
    "accuracy": ("train_accuracy", "valid_accuracy", "supernet_accuracy"),
    "R2": ("train_r2", "valid_r2"),
    "mean average precision": ("valid_map",),
    "perplexity": ("train_perplexity", "valid_perplexity", "supernet_perplexity"),
    "loss": ("train_loss", "valid_loss", "supernet_loss"),
    "changes of A_bar": ("changes",),
    "parameters of the final network": ("params",),
}
"""Title of a chart -> keys of a row."""


def page_data(records: Sequence[Record]) -> dict[str, Any]:
    """All runs of a page; with fewer frames where they would take too much room."""
    frames = max((len(record.rows) for record in records), default=0)
    while True:
        data = {"runs": _once([run_data(record, frames) for record in records])}
        # halved until it fits: a page that is opened at once is worth more than every epoch
        if frames <= 2 or len(json.dumps(data)) <= MOST_BYTES:
            return data
        frames //= 2


def _once(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A cell that is not replayed is drawn once: the search, the training and the whole of a fit
    have the same."""
    seen = {run["cell"] for run in runs if run["replay"] and run["replay"]["epochs"]}
    for run in runs:
        if run["replay"] and not run["replay"]["epochs"]:
            run["replay"] = None if run["cell"] in seen else run["replay"]
            seen.add(run["cell"])
    return runs


def run_data(record: Record, frames: int) -> dict[str, Any]:
    """One run, with at most so many frames."""
    rows = thin_rows(record.rows, MOST_POINTS)
    return {
        "name": text(record.name),
        "command": text(record.command),
        "status": record.status,
        "progress": _progress(record),
        "facts": [[label, text(value)] for label, value in facts(record).items()],
        "warning": text(record.result.get("warning", "")),
        "leaderboard": [[text(cell) for cell in row] for row in leaderboard_table(record.result)],
        "examined": examined_figures(record.test),
        "epochs": [row["epoch"] for row in rows],
        "charts": _charts(rows),
        "cell": cell_text(record.genotype) if record.genotype else "",
        "replay": _replay(record, frames),
        "reproduce": text(reproduce(record)),
        "called": text(command_of(record)),
        "config": _pairs(record.config),
        "environment": _pairs({k: v for k, v in record.environment.items() if k != "command"}),
    }


def thin_rows(rows: Sequence[StoredRow], most: int) -> list[StoredRow]:
    """At most so many of the rows, evenly spread, the first and the last among them."""
    if len(rows) <= most or most < 2:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]


def text(value: Any) -> str:
    """A text that can be written as UTF-8, whatever a file or a file system has put into it."""
    return str(value).encode("utf-8", "replace").decode()


def round_figure(value: Any) -> float | None:
    """Five digits are enough to look at; what is no finite number is no point of a curve."""
    if type(value) not in (int, float) or not math.isfinite(value):
        return None
    return value if type(value) is int else float(f"{value:.5g}")


def _pairs(values: dict[str, Any]) -> list[list[str]]:
    return [
        [text(name), text(value if isinstance(value, str) else json.dumps(value))]
        for name, value in values.items()
    ]


def _progress(record: Record) -> str:
    """Epochs done, and while it runs the time left."""
    total, done = record.config.get("epochs"), len(record.rows)
    if type(total) is not int or record.command not in ("search", "train"):
        return ""
    line = f"epoch {done} of {total}"
    if record.status == "running" and 0 < done < total:
        # seconds of an epoch so far
        each = sum(map(seconds_of, record.rows)) / done
        line += f", about {duration((total - done) * each)} left"
    return line


def _charts(rows: Sequence[StoredRow]) -> list[dict[str, Any]]:
    """Title and lines of every chart that has something to show."""
    found: list[dict[str, Any]] = []
    for title, keys in CURVES.items():
        lines = []
        for key in keys:
            values = [round_figure(row.get(key)) for row in rows]
            if any(value is not None for value in values):
                lines.append({"name": key.split("_")[0], "values": values})
        if lines:
            found.append({"title": title, "lines": lines})
    parts: dict[str, None] = {}  # in the order in which they are met
    for row in rows:
        if isinstance(row.get("seconds"), dict):
            parts |= dict.fromkeys(row["seconds"])
    if parts:
        shares = []
        for part in parts:
            values = [round_figure(_second(row, part)) for row in rows]
            shares.append({"name": text(part), "values": values})
        found.append({"title": "seconds of an epoch", "lines": shares, "stacked": True})
    return found


def _second(row: StoredRow, part: str) -> float:
    seconds = row.get("seconds")
    return number(seconds.get(part)) if isinstance(seconds, dict) else 0.0


def _replay(record: Record, most: int) -> dict[str, Any] | None:
    """The frames: the cell of each as numbers of drawings, A and what is selected; None if no cell
    is known."""
    known = [(row, genotype) for row in record.rows if (genotype := row_genotype(row))]
    kept = thin_rows([row | {"genotype": genotype} for row, genotype in known], most)
    if not kept and not record.genotype:
        return None
    shown = [row["genotype"] for row in kept] or [record.genotype]
    drawings: dict[str, int] = {}  # drawing -> its number: most epochs change little
    cells: list[list[int]] = []
    for genotype in shown:
        cells.append([])
        for svg in cell_svgs(genotype):
            cells[-1].append(drawings.setdefault(svg, len(drawings)))
    return {
        "epochs": [row["epoch"] for row in kept],
        "cells": cells,
        "drawings": list(drawings),
        "groups": groups(record, kept),
    }


def row_genotype(row: StoredRow) -> Genotype | None:
    """The cell of an epoch, if its row tells it."""
    try:
        return Genotype.from_object(row["genotype"])
    except (KeyError, InputError):
        return None


def groups(record: Record, rows: Sequence[StoredRow]) -> list[dict[str, Any]]:
    """For each group of A: names of its edges and candidates, its values and what is selected,
    frame by frame."""
    kind = record.genotype.kind if record.genotype else ""
    found = []
    for name in rows[0].get("A") or {} if rows else {}:
        values = [matrix(row, name) for row in rows]
        if not values[0] or any(_form(frame) != _form(values[0]) for frame in values):
            continue  # not what we wrote
        edges, candidates = names(record, name, kind, len(values[0]), len(values[0][0]))
        # one scale for all edges and epochs of a group
        flat: list[float] = []
        for frame in values:
            for line in frame:
                flat += [a for a in line if a is not None]
        found.append(
            {
                "title": TITLES.get(name, text(name)),
                "edges": edges,
                "candidates": candidates,
                "A": values,
                "selected": [selected_entries(row, name) for row in rows],
                "range": [min(flat, default=0.0), max(flat, default=1.0)],
            }
        )
    return found


def matrix(row: StoredRow, group: str) -> list[list[float | None]]:
    """A of a group in an epoch, (E, K); empty if it is none."""
    A = row.get("A")
    values = A.get(group) if isinstance(A, dict) else None
    if not isinstance(values, list) or not all(isinstance(line, list) for line in values):
        return []
    return [[round_figure(a) for a in line] for line in values]


def _form(frame: Sequence[Sequence[object]]) -> tuple[int, ...]:
    """(K, ...): how many values each edge has."""
    return tuple(map(len, frame))


def selected_entries(row: StoredRow, group: str) -> list[list[int]]:
    """The entries (edge, candidate) of A_bar that are not zero."""
    chosen = row.get("selected")
    pairs = chosen.get(group) if isinstance(chosen, dict) else None
    if not isinstance(pairs, list):
        return []
    return [
        pair for pair in pairs if isinstance(pair, list) and [type(i) for i in pair] == [int, int]
    ]


def names(record: Record, group: str, kind: str, E: int, K: int) -> tuple[list[str], list[str]]:
    """What the rows and columns of A are called: `c_{k-2} → 2` and `sep_conv_3x3`, or numbers where
    nobody says."""
    described = record.space.get("groups")
    found = described.get(group) if isinstance(described, dict) else None
    found = found if isinstance(found, dict) else {}
    candidates, nodes = found.get("candidates"), found.get("nodes")
    edges = [f"edge {e}" for e in range(E)]
    if kind and isinstance(nodes, list) and all(isinstance(rows, list) for rows in nodes):
        # a node reads all states before it, so the number of its rows is its own number
        edges = [f"{state_name(kind, i)} → {len(rows)}" for rows in nodes for i in range(len(rows))]
    if not isinstance(candidates, list) or len(candidates) != K:
        candidates = [f"candidate {k}" for k in range(K)]
    return edges if len(edges) == E else [f"edge {e}" for e in range(E)], list(
        map(text, candidates)
    )
