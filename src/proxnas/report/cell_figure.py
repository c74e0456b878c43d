"""The drawing of a cell by matplotlib, for files that SVG does not serve: PNG and PDF, without any
other program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.cells.genotype import Genotype
from proxnas.report.layout import INK, LINE, PALE, Box, Drawing, Label, Mark, Stroke, drawings, page
from proxnas.report.style import matplotlib_label, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS, POINTS = 96.0, 0.75  # px of an inch, as in a browser; points of a px
FONT = "DejaVu Sans Mono"  # comes with matplotlib


def cell_figure(genotype: Genotype) -> Figure:
    """All cells side by side, where the SVG has them."""
    from matplotlib.figure import Figure

    cells = drawings(genotype)
    places, width, height = page(cells)
    figure = Figure(figsize=(width / PIXELS, height / PIXELS))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(height, 0))  # y points down
    axis.set_axis_off()
    for cell, (x, y) in zip(cells, places, strict=True):
        _paint(axis, cell, x, y)
    return figure


def save_cell(genotype: Genotype, path: Path) -> None:
    """Writes the drawing; the ending of the name says as what (.png, .pdf). The same cell gives the
    same bytes."""
    as_pdf = path.suffix == ".pdf"
    metadata = {"CreationDate": None} if as_pdf else None
    write_figure(cell_figure(genotype), path, dpi=2 * PIXELS, metadata=metadata)


def _paint(axis: Any, cell: Drawing, x: float, y: float) -> None:
    _write(axis, Label(x, y, cell.title, 14, middle=False), weight="bold")
    for order, shape in enumerate(cell.shapes, start=1):
        # matplotlib paints by zorder, not by the order of calls
        if isinstance(shape, Stroke):
            (x0, y0), (x1, y1) = shape.start, shape.end
            style = {"color": LINE} if shape.solid else {"color": PALE, "dashes": (4, 3)}
            axis.plot([x + x0, x + x1], [y + y0, y + y1], linewidth=POINTS, zorder=order, **style)
        elif isinstance(shape, Mark):
            _mark(axis, shape, x, y, order)
        elif isinstance(shape, Box):
            _box(axis, shape, x, y, order)
        else:
            _write(axis, Label(x + shape.x, y + shape.y, shape.text, shape.size), zorder=order)


def _mark(axis: Any, mark: Mark, x: float, y: float, order: int) -> None:
    from matplotlib.patches import Circle, Polygon

    left, top = x + mark.at[0], y + mark.at[1]
    style: dict[str, Any] = {"color": LINE if mark.solid else PALE, "linewidth": 0, "zorder": order}
    # as in the SVG: report/cell.py
    tip = [(left, top), (left - 7, top - 3.5), (left - 7, top + 3.5)]
    axis.add_patch(Polygon(tip, **style) if mark.tip else Circle((left, top), 2.5, **style))


def _box(axis: Any, box: Box, x: float, y: float, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner, width, height = (x + box.left, y + box.top), box.right - box.left, box.bottom - box.top
    style: dict[str, Any] = {
        "facecolor": box.fill,
        "edgecolor": box.stroke,
        "linewidth": POINTS,
        "zorder": order,
    }
    axis.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=5", **style)
    )


def _write(axis: Any, label: Label, **style: Any) -> None:
    text = matplotlib_label(label.text)
    side = "center" if label.middle else "left"
    place = {"horizontalalignment": side, "verticalalignment": "center_baseline"}
    axis.text(
        label.x,
        label.y,
        text,
        fontsize=POINTS * label.size,
        family=FONT,
        color=INK,
        **place,
        **style,
    )
