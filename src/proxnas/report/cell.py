"""A cell for people to read: as lines of text for the terminal, and as a drawing in SVG."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import CUSTOM, FIRST_NODE, RECURRENT
from proxnas.cells.parts import Cell
from proxnas.report.layout import (
    INK,
    INPUTS,
    LINE,
    OUTPUTS,
    PALE,
    TITLES,
    Box,
    Drawing,
    Label,
    Mark,
    Shape,
    Stroke,
    drawings,
    operation,
    page,
)


def cell_text(genotype: Genotype) -> str:
    """One line a node, such as `node 2 = sep_conv_3x3(c_{k-2}) + skip_connect(c_{k-1})`; a 'none'
    edge is absent.

    Of a module of the user's own one line a Choice.
    """
    lines = [headline(genotype)]
    if genotype.kind == CUSTOM:
        width = max(map(len, genotype.cells))
        chosen = (
            f"  {name:<{width}} = {operation(cell.nodes[0][0])}"
            for name, cell in genotype.cells.items()
        )
        return "\n".join([*lines, "", *chosen]) + "\n"
    for name, cell in genotype.cells.items():
        rows = _text_rows(genotype.kind, cell)
        width = max(len(left) for left, _ in rows)
        lines += ["", TITLES[name], *(f"  {left:<{width}} = {right}" for left, right in rows)]
    return "\n".join(lines) + "\n"


def cell_svg(genotype: Genotype) -> str:
    """A self-contained SVG of all cells side by side, on white."""
    return _svg(drawings(genotype), headline(genotype), cell_text(genotype))


def cell_svgs(genotype: Genotype) -> list[str]:
    """An SVG a cell, for pages that place them by themselves and tell in words what is drawn."""
    return [_svg([cell], cell.title, "") for cell in drawings(genotype)]


def _svg(cells: list[Drawing], title: str, description: str) -> str:
    places, width, height = page(cells)
    size = f'width="{width:g}" height="{height:g}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} viewBox="0 0 {width:g}'
        f' {height:g}"'
    )
    return "\n".join(
        [
            f'{head} font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">',
            f"<title>{escape(title)}</title>",
            *([f"<desc>{escape(description)}</desc>"] if description else []),
            f'<rect class="paper" {size} fill="#ffffff"/>',
            *(_group(cell, *place) for cell, place in zip(cells, places, strict=True)),
            "</svg>\n",
        ]
    )


def headline(genotype: Genotype) -> str:
    """What kind of cell it is, and of which space."""
    return f"{genotype.kind} genotype" + (f" of space {genotype.space}" if genotype.space else "")


def _text_rows(kind: str, cell: Cell) -> list[tuple[str, str]]:
    """(name of a state, how it is computed) for every line below the cell's title."""

    def name(i: int) -> str:  # state 0 of an rnn is a node like the others
        return INPUTS[kind][i] if i < FIRST_NODE[kind] and kind != RECURRENT else f"node {i}"

    rows = [("node 0", "tanh(x_{t}, h_{t-1})")] if kind == RECURRENT else []
    for i, node in enumerate(cell.nodes, FIRST_NODE[kind]):
        terms = (f"{operation(edge)}({name(edge.input)})" for edge in node if edge.op != "none")
        rows.append((name(i), " + ".join(terms) or "0"))
    output, how = OUTPUTS[kind]
    states = ", ".join(name(i) for i in cell.concat)
    return [*rows, (output, f"{how}({states})" if how else states)]


def _group(cell: Drawing, x: float, y: float) -> str:
    title = _text(Label(0, 0, cell.title, 14, middle=False), 'font-weight="bold"')
    return "\n".join(
        [f'<g transform="translate({x:g} {y:g})">', title, *map(_element, cell.shapes), "</g>"]
    )


def _element(shape: Shape) -> str:
    if isinstance(shape, Stroke):
        return _line(shape)
    if isinstance(shape, Mark):
        return _mark(shape)
    return _rect(shape) if isinstance(shape, Box) else _text(shape, 'text-anchor="middle"')


def _line(line: Stroke) -> str:
    (x, y), (right, low) = line.start, line.end
    # lines are level or upright
    way = f"H{right:g}" if low == y else f"V{low:g}"
    style = f'stroke="{LINE}"' if line.solid else f'stroke="{PALE}" stroke-dasharray="4 3"'
    return f'<path d="M{x:g} {y:g}{way}" fill="none" {style}/>'


def _mark(mark: Mark) -> str:
    (x, y), fill = mark.at, f'fill="{LINE if mark.solid else PALE}"'
    if mark.tip:
        return f'<path d="M{x:g} {y:g}l-7 -3.5v7z" {fill}/>'
    return f'<circle cx="{x:g}" cy="{y:g}" r="2.5" {fill}/>'


def _rect(box: Box) -> str:
    place = (
        f'x="{box.left:g}" y="{box.top:g}" width="{box.right - box.left:g}"'
        f' height="{box.bottom - box.top:g}"'
    )
    return f'<rect class="{box.role}" {place} rx="5" fill="{box.fill}" stroke="{box.stroke}"/>'


def _text(label: Label, style: str) -> str:
    """Subscripts are set by dy, because not every viewer knows 'sub'."""
    size = label.size
    small = f'<tspan dy="3" font-size="{0.75 * size:g}">\\1</tspan><tspan dy="-3">\\2</tspan>'
    # what follows a subscript is brought up again
    body = re.sub(r"_\{(.*?)\}([^_]*)", small, escape(label.text))
    return (
        f'<text x="{label.x:g}" y="{label.y + 0.35 * size:g}" font-size="{size:g}" fill="{INK}"'
        f" {style}>{body}</text>"
    )
