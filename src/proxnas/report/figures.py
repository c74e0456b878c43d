"""Figures of a run for papers and slides: one function a figure, each from what the run folder
holds.

E edges, K candidates, T epochs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError
from proxnas.common.files import make_folder, write_atomically
from proxnas.report.cell import cell_svg
from proxnas.report.cell_figure import save_cell
from proxnas.report.page_data import CURVES, groups
from proxnas.report.reading import Record, StoredRow
from proxnas.report.style import COLOURS, matplotlib_label, panels, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = ("arch", "forward", "backward", "update", "evaluate", "other")
"""Of the seconds of an epoch, from the bottom up."""

CALLED = {"train": "training", "valid": "validation", "supernet": "validation of the supernet"}
"""First word of a key -> what its line is called."""


def curves(record: Record) -> Figure | None:
    """Training and validation: accuracy or perplexity, and loss."""
    pairs = {title: keys for title, keys in CURVES.items() if len(keys) > 1}
    # keys that some row has a number for
    known = {
        title: [key for key in keys if _any_known(record, key)] for title, keys in pairs.items()
    }
    wanted = {title: keys for title, keys in known.items() if keys}
    if not wanted:
        return None
    figure, axes = panels(1, len(wanted))
    for axis, (title, keys) in zip(axes, wanted.items(), strict=True):
        for key in keys:
            _line(axis, record, key, CALLED[key.split("_")[0]])
        axis.set(xlabel="epoch", ylabel=title)
        axis.legend(frameon=False)
    return figure


def changes(record: Record) -> Figure | None:
    """How many entries of A_bar an epoch switched on or off."""
    return _single(record, "changes", r"changes of $\bar{A}$")


def params(record: Record) -> Figure | None:
    """Parameters of the final network, by the cell of each epoch."""
    return _single(record, "params", "parameters of the final network")


def time_split(record: Record) -> Figure | None:
    """Where the seconds of each epoch went."""
    rows = [row for row in record.rows if isinstance(row.get("seconds"), dict)]
    parts = [part for part in PARTS if any(part in row["seconds"] for row in rows)]
    if not parts:
        return None
    figure, (axis,) = panels()
    floor = [0.0] * len(rows)
    for part in parts:
        values = [_value(row["seconds"], part) for row in rows]
        heights = [0.0 if math.isnan(value) else value for value in values]
        axis.bar(
            [row["epoch"] for row in rows], heights, 1.0, bottom=floor, label=part, linewidth=0
        )
        # bars stand on those below
        floor = [low + high for low, high in zip(floor, heights, strict=True)]
    axis.set(xlabel="epoch", ylabel="seconds of an epoch")
    axis.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
    return figure


def stability(record: Record) -> Iterator[tuple[str, Figure]]:
    """For each group of A (its name, a panel an edge): a by candidate and epoch, what A_bar selects
    marked."""
    rows = [row for row in record.rows if isinstance(row.get("A"), dict)]
    for group in groups(record, rows):
        yield group["title"], _heat_maps(group, [row["epoch"] for row in rows])


def _heat_maps(group: dict[str, Any], epochs: Sequence[int]) -> Figure:
    E, K = len(group["edges"]), len(group["candidates"])
    columns = 6
    if E <= 20:
        columns = 3 if E <= 6 else 5
    lines = -(-E // columns)
    figure, axes = panels(lines, columns, (2.1, 0.7 + 0.15 * K))
    for e, axis in enumerate(axes):
        if e >= E:
            axis.set_axis_off()
            continue
        image = _heat_map(axis, group, e, epochs)
        axis.set_yticks(
            range(K),
            # names at the first column only: there are many panels
            [matplotlib_label(name) for name in group["candidates"]]
            if e % columns == 0
            else [""] * K,
        )
        if e + columns >= E:
            axis.set_xlabel("epoch", fontsize=7)
    figure.suptitle(
        matplotlib_label(f"A of the {group['title']}; marked: ") + r"selected by $\bar{A}$",
        fontsize=9,
    )
    _place(figure, image, lines)
    return figure


def _place(figure: Figure, image: Any, lines: int) -> None:
    """Room in inches for names, title and scale: what the general layout finds too, but for dozens
    of panels slowly."""
    figure.set_layout_engine(None)
    width, height = figure.get_size_inches()
    right, low, high = 1 - 0.75 / width, 0.4 / height, 1 - 0.55 / height
    # half an inch, by the height of a panel
    gap = 0.5 * lines / (height - 0.95 - 0.5 * (lines - 1))
    figure.subplots_adjust(
        left=1.1 / width, right=right, bottom=low, top=high, wspace=0.08, hspace=gap
    )
    scale = figure.add_axes((right + 0.15 / width, low, 0.12 / width, high - low))
    figure.colorbar(image, cax=scale).ax.tick_params(labelsize=7)
    scale.set_title("a", fontsize=8)


def _heat_map(axis: Any, group: dict[str, Any], e: int, epochs: Sequence[int]) -> Any:
    """One edge: candidates from top to bottom, epochs from left to right."""
    image = [
        [_number(frame[e][k]) for frame in group["A"]] for k in range(len(group["candidates"]))
    ]
    low, high = group["range"]
    # pixels are centred at (epoch, k)
    extent = (epochs[0] - 0.5, epochs[-1] + 0.5, len(image) - 0.5, -0.5)
    shown = axis.imshow(
        image,
        aspect="auto",
        cmap="Blues",
        vmin=low,
        vmax=high,
        extent=extent,
        interpolation="nearest",
    )
    marks = []
    for epoch, pairs in zip(epochs, group["selected"], strict=True):
        marks += [(epoch, k) for edge, k in pairs if edge == e]
    # no gaps between epochs
    left, right = ([epoch + side for epoch, _ in marks] for side in (-0.51, 0.51))
    axis.hlines([k for _, k in marks], left, right, colors=COLOURS[1], linewidth=1.6)
    axis.grid(False)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.tick_params(labelsize=6, length=2)
    axis.set_title(matplotlib_label(group["edges"][e]), fontsize=8)
    return shown


FIGURES: dict[str, Callable[[Record], Figure | None]] = {
    "curves": curves,
    "changes": changes,
    "params": params,
    "time": time_split,
}
"""Name of the file -> figure; None if the run has nothing to show."""


def write_figures(records: Sequence[Record], folder: Path) -> list[Path]:
    """All figures of all runs as .svg and .png; with several runs each has a folder of its own."""
    written_files: list[Path] = []
    for record in records:
        place = folder if len(records) == 1 else folder / slug(record.name)
        make_folder(place)
        # made by somebody else, it may lead anywhere
        if place != folder and place.is_symlink():
            raise InputError(
                f"{place}: is a symbolic link, through which nothing is written: remove it"
            )
        for name, figure in _all(record):
            written_files += save(figure, place / name)
        if record.genotype:
            written_files += _write_cell(record.genotype, place)
    return written_files


def _write_cell(genotype: Genotype, folder: Path) -> list[Path]:
    vector, *others = (folder / f"cell.{kind}" for kind in ("svg", "png", "pdf"))
    write_atomically(vector, cell_svg(genotype))
    for path in others:
        save_cell(genotype, path)
    return [vector, *others]


def slug(name: str) -> str:
    """A name that is safe for a file."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.") or "run"


def _all(record: Record) -> Iterator[tuple[str, Figure]]:
    for name, make in FIGURES.items():
        if figure := make(record):
            yield name, figure
    for title, figure in stability(record):
        yield f"stability-{slug(title)}", figure


def _single(record: Record, key: str, label: str) -> Figure | None:
    if not _any_known(record, key):
        return None
    figure, (axis,) = panels()
    _line(axis, record, key, "")
    axis.set(xlabel="epoch", ylabel=label)
    return figure


def _line(axis: Any, record: Record, key: str, name: str) -> None:
    sparse = len(record.rows) <= 30  # else markers hide the line
    style = {} if sparse else {"marker": ""}
    axis.plot(
        [row["epoch"] for row in record.rows],
        [_value(row, key) for row in record.rows],
        label=name,
        **style,
    )
    axis.xaxis.get_major_locator().set_params(integer=True)


def _any_known(record: Record, key: str) -> bool:
    return any(not math.isnan(_value(row, key)) for row in record.rows)


def _value(row: StoredRow, key: str) -> float:
    return _number(row.get(key))


def _number(value: Any) -> float:
    """What matplotlib leaves out is not a number."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else math.nan
