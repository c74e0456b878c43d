"""What a sweep found: tables, the paper's figure of the penalty, and the front of what is both
small and good."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.report.comparison import Comparison, Row, better, value
from proxnas.report.style import COLOURS, panels, save
from proxnas.report.tables import HEADINGS, grid, plus_minus, table_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = {"params": "Parameters", "flops": "Multiply-adds"}
Point = tuple[float, float]
"""(size, figure) of a row."""


def with_front(rows: Sequence[Row]) -> list[Row]:
    """The rows, each saying whether it is on the Pareto front: none is as small and better, or as
    good and smaller."""
    if not rows:
        return []
    is_better, size = better(rows[0]["figure"]), swept_size(rows[0])
    points = [(row[f"{size}_mean"], row["mean"]) for row in rows]

    def beaten(point: Point) -> bool:
        # as small and no worse, and smaller or better in one of them
        return any(
            other[0] <= point[0]
            and not is_better(point[1], other[1])
            and (other[0] < point[0] or other[1] != point[1])
            for other in points
        )

    return [row | {"front": not beaten(point)} for row, point in zip(rows, points, strict=True)]


def swept_size(row: Row) -> str:
    """The size that a sweep is about: multiply-adds under limits of them, else parameters."""
    return "flops" if row.get("of") == "flops" else "params"


def files(found: Comparison, rows: Sequence[Row], failed: Mapping[str, str]) -> dict[str, str]:
    """Name of a file -> its content."""
    return {
        "table.json": json.dumps(list(rows), indent=2) + "\n",
        "table.csv": table_csv(rows),
        "table.md": table_md(found, rows, failed),
    }


def table_md(found: Comparison, rows: Sequence[Row], failed: Mapping[str, str]) -> str:
    """All settings, then those on the front."""
    config = found.config
    sections = {
        "All settings": table(rows),
        "The Pareto front": table([row for row in rows if row["front"]]),
    }
    if failed:
        sections["Failed runs"] = "\n".join(
            f"- {name}: {message}" for name, message in failed.items()
        )
    head = f"# Sweep of {config['method']} on {config['data']}, space {config['space']}\n\n"
    head += f"{len(found.entries)} searches; mean ± standard deviation over seeds.\n"
    return head + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())


def table(rows: Sequence[Row]) -> str:
    """Markdown: what was set, the figure, the sizes."""
    heading = HEADINGS[rows[0]["figure"]] if rows else "Figure"
    lines = []
    for row in rows:
        n, mean, std = len(row["seeds"]), row["mean"], row["std"]
        if row["figure"].endswith("accuracy"):
            # shares become errors in percent; the spread stays
            mean, std = 100 - 100 * mean, 100 * std
        sizes = [
            plus_minus(row[f"{size}_mean"] / 1e6, row[f"{size}_std"] / 1e6, n) for size in SIZES
        ]
        lines.append([row["setting"], plus_minus(mean, std, n, 2), *sizes, str(n)])
    return grid(["Setting", heading, "Params (M)", "Multiply-adds (M)", "Seeds"], lines)


def draw_sweep(found: Comparison, rows: Sequence[Row], folder: Path) -> list[Path]:
    """penalty (size and accuracy against what was swept) and pareto (accuracy against size)."""
    figures = {"penalty": penalty(rows), "pareto": pareto(found, rows)} if rows else {}
    files: list[Path] = []
    for name, figure in figures.items():
        files += save(figure, folder / f"{name}.svg")
    return files


def penalty(rows: Sequence[Row]) -> Figure:
    """The paper's figure: parameters and accuracy against eta; under limits, against these."""
    swept = "eta" if "eta" in rows[0] else "limit"
    x = [row[swept] for row in rows]
    size = swept_size(rows[0])
    figure, (of_size, of_figure) = panels(1, 2)
    for axis, label, name in ((of_size, SIZES[size], size), (of_figure, _label(rows[0]), "")):
        prefix = f"{name}_" if name else ""
        means, stds = ([row[f"{prefix}{part}"] for row in rows] for part in ("mean", "std"))
        axis.errorbar(x, means, stds, color=COLOURS[0 if name else 1], capsize=3)
        axis.set(xlabel=swept if swept == "eta" else f"limit ({rows[0]['of']})", ylabel=label)
        if swept == "eta":
            # linear up to the smallest weight, then logarithmic
            least = min((value for value in x if value), default=1.0)
            axis.set_xscale("symlog", linthresh=least)  # eta = 0 has its place too
    # size and limit are of the same unit: what is above the line is too large
    if swept == "limit" and rows[0]["of"] == size:
        of_size.plot(x, x, color=COLOURS[-1], linestyle=":", marker="", label="limit")
        of_size.legend(frameon=False)
    return figure


def pareto(found: Comparison, rows: Sequence[Row]) -> Figure:
    """Each run a dot, each setting its mean, and a line through those that none beats in both."""
    size = swept_size(rows[0])
    figure, (axis,) = panels(size=(6.0, 4.2))
    for i, row in enumerate(rows):
        runs = [(e.trained or e.result, value(e, row["figure"])) for e in found.of(row["setting"])]
        # a run in the middle of a study may have no figure yet
        dots = [(result[size], figure_) for result, figure_ in runs if figure_ is not None]
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "linestyle": ""}
        axis.plot(*zip(*dots, strict=True), marker=".", alpha=0.4, **style)
        axis.plot(row[f"{size}_mean"], row["mean"], marker="o", label=row["setting"], **style)
    front = sorted((row[f"{size}_mean"], row["mean"]) for row in rows if row["front"])
    axis.plot(
        *zip(*front, strict=True),
        color=COLOURS[-1],
        marker="",
        linewidth=1,
        zorder=0,
        label="Pareto front",
    )
    axis.set(xlabel=SIZES[size], ylabel=_label(rows[0]))
    axis.legend(frameon=False, fontsize="small")
    return figure


def _label(row: Row) -> str:
    name: str = row["figure"]
    return name.replace("_", " ")
