"""One look for all figures: sizes, colours that people with colour blindness can tell apart, and
how they are saved."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.common.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PANEL = (4.8, 3.4)  # inches


def panels(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = PANEL
) -> tuple[Figure, list[Any]]:
    """A figure of panels in one look; no window, no global state. The axes are listed row by
    row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    axes = [axis for row in figure.subplots(rows, columns, squeeze=False) for axis in row]
    for axis in axes:
        axis.set_prop_cycle(color=COLOURS, marker=MARKERS)
        axis.grid(alpha=0.3, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes `path` as .svg and .png; the same figure gives the same bytes."""
    from matplotlib import rc_context

    files = [path.with_suffix(".svg"), path.with_suffix(".png")]
    # names within the file by a fixed salt, and no date: the same bytes; texts stay texts
    with rc_context({"svg.hashsalt": "proxnas", "svg.fonttype": "none"}):
        write_figure(figure, files[0], metadata={"Date": None})
        write_figure(figure, files[1], dpi=150)
    return files


def write_figure(figure: Figure, path: Path, **how: Any) -> None:
    """The figure in a file, of the kind that its ending says; through no link."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix("."), **how)
    write_atomically(path, drawn.getvalue())


def matplotlib_label(label: str) -> str:
    """A label as matplotlib writes it: x_{i} with a subscript, and a $ as a $."""
    return re.sub(r"_\{(.*?)\}", r"$_{\\text{\1}}$", label.replace("$", r"\$"))
