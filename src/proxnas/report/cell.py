"""A cell for people to read: as lines of text for the terminal, and as a drawing.

The drawing is a staircase. Every state has rows of its own; its output runs down a trunk below its box, and each edge
leaves that trunk on one row, towards the box it enters. A cnn has a column a state, an rnn cell is a tree with a column
a level. So a label can meet neither a box nor another label, whatever the cell, and the way from every box to the
output on the right is free.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from xml.sax.saxutils import escape

from proxnas.genotype import CUSTOM, FIRST_NODE, Cell, Edge, Genotype

TITLES = {"normal": "normal cell", "reduce": "reduction cell", "recurrent": "recurrent cell", "cell": "cell"}
INPUTS = {"cnn": ("c_{k-2}", "c_{k-1}"), "rnn": ("x_{t}, h_{t-1}",), "nasbench201": ("input",), CUSTOM: ("input",)}
OUTPUTS = {"cnn": ("c_{k}", "concat"), "rnn": ("h_{t}", "mean"), "nasbench201": ("output", ""), CUSTOM: ("output", "")}

ROW, GAP, MARGIN = 26.0, 14.0, 24.0  # px
MIDDLE = 'text-anchor="middle"'
INK, LINE, PALE = "#1f2933", "#52606d", "#c5ccd3"
FILLS = {"input": "#d9f2e3", "node": "#dbeafe", "output": "#fdebc8"}
OP_FILLS = (("conv", "#eef4ff"), ("pool", "#fff3e0"), ("none", "#ffffff"), ("", "#f3f4f6"))  # the first that is found


def cell_text(genotype: Genotype) -> str:
    """One line a node, such as `node 2 = sep_conv_3x3(c_{k-2}) + skip_connect(c_{k-1})`; a 'none' edge is absent.

    Of a module of the user's own one line a Choice.
    """
    lines = [_headline(genotype)]
    if genotype.kind == CUSTOM:
        width = max(map(len, genotype.cells))
        chosen = (f"  {name:<{width}} = {_operation(cell.nodes[0][0])}" for name, cell in genotype.cells.items())
        return "\n".join([*lines, "", *chosen]) + "\n"
    for name, cell in genotype.cells.items():
        rows = _text_rows(genotype.kind, cell)
        width = max(len(left) for left, _ in rows)
        lines += ["", TITLES[name], *(f"  {left:<{width}} = {right}" for left, right in rows)]
    return "\n".join(lines) + "\n"


def cell_svg(genotype: Genotype) -> str:
    """A self-contained SVG of all cells side by side, on white."""
    x, height, groups = MARGIN, 0.0, []
    for name, cell in genotype.cells.items():
        elements, right, bottom = _draw(_graph(genotype.kind, cell))
        label = TITLES.get(name, name)
        title, right = _text(0, 0, label, 14, 'font-weight="bold"'), max(right, _width(label, 14))
        groups.append("\n".join([f'<g transform="translate({x:g} {1.5 * MARGIN:g})">', title, *elements, "</g>"]))
        x, height = x + right + 2 * MARGIN, max(height, bottom + 2.5 * MARGIN)
    size = f'width="{x - MARGIN:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} viewBox="0 0 {x - MARGIN:g} {height:g}"'
    return "\n".join(
        [
            f'{head} font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">',
            f"<title>{escape(_headline(genotype))}</title>",
            f"<desc>{escape(cell_text(genotype))}</desc>",
            f'<rect {size} fill="#ffffff"/>',
            *groups,
            "</svg>\n",
        ]
    )


def _headline(genotype: Genotype) -> str:
    return f"{genotype.kind} genotype" + (f" of space {genotype.space}" if genotype.space else "")


def _operation(edge: Edge) -> str:
    return edge.op if edge.value == 1 else f"{edge.value:.3g}*{edge.op}"


def _text_rows(kind: str, cell: Cell) -> list[tuple[str, str]]:
    """(name of a state, how it is computed) for every line below the cell's title."""

    def name(i: int) -> str:  # state 0 of an rnn is a node like the others
        return INPUTS[kind][i] if i < FIRST_NODE[kind] and kind != "rnn" else f"node {i}"

    rows = [("node 0", "tanh(x_{t}, h_{t-1})")] if kind == "rnn" else []
    for i, node in enumerate(cell.nodes, FIRST_NODE[kind]):
        terms = (f"{_operation(edge)}({name(edge.input)})" for edge in node if edge.op != "none")
        rows.append((name(i), " + ".join(terms) or "0"))
    output, how = OUTPUTS[kind]
    states = ", ".join(name(i) for i in cell.concat)
    return [*rows, (output, f"{how}({states})" if how else states)]


@dataclass(frozen=True)
class _Graph:
    """What is drawn: a label and the incoming edges of each state, its column, and the order from top to bottom."""

    labels: list[str]
    edges: list[list[Edge]]
    outputs: list[int]
    columns: list[int]
    order: list[int]
    inputs: int
    output: tuple[str, str]


def _graph(kind: str, cell: Cell) -> _Graph:
    shown = [[e for e in node if e.op != "none" or kind == "nasbench201"] for node in cell.nodes]  # its six are fixed
    # Latest input first: its trunk may end there, and then the edges below it need not cross it.
    edges: list[list[Edge]] = [sorted(node, key=lambda edge: -edge.input) for node in shown]
    first, outputs = len(INPUTS[kind]), list(cell.concat)
    if kind == "rnn":  # the first state is drawn as what it is, the tanh of the inputs, which come before it
        edges = [[Edge("tanh", -1)], *edges]
        edges = [[edge._replace(input=edge.input + 1) for edge in node] for node in edges]
        outputs = [i + 1 for i in outputs]
    edges = [[] for _ in range(first)] + edges
    labels = [*INPUTS[kind], *(str(i if kind != "rnn" else i - 1) for i in range(first, len(edges)))]
    columns, order = _tree(edges) if kind == "rnn" else (list(range(len(edges))), list(range(len(edges))))
    return _Graph(labels, edges, outputs, columns, order, first, OUTPUTS[kind])


def _tree(edges: Sequence[Sequence[Edge]]) -> tuple[list[int], list[int]]:
    """(depth of every state, states in preorder): in that order no edge of a tree crosses another."""
    depth = [0] * len(edges)
    children: list[list[int]] = [[] for _ in edges]
    for i, incoming in enumerate(edges):
        for edge in incoming:
            depth[i] = depth[edge.input] + 1
            children[edge.input].append(i)
    order: list[int] = []
    stack = [i for i in reversed(range(len(edges))) if not edges[i]]
    while stack:  # not recursive: a chain may be longer than Python's stack
        order.append(stack.pop())
        stack += reversed(children[order[-1]])
    return depth, order


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def svg(self, role: str, *lines: str) -> str:
        x, y = self.middle
        texts = (_text(x, y + 16 * (i - (len(lines) - 1) / 2), line, 12, MIDDLE) for i, line in enumerate(lines))
        return _rect(self, role, f'fill="{FILLS[role]}" stroke="{LINE}"') + "".join(texts)


def _draw(graph: _Graph) -> tuple[list[str], float, float]:
    """(SVG elements, width, height) of one cell."""
    boxes = _boxes(graph)
    lines, shapes = [], []
    trunks: dict[tuple[bool, int], float] = {}  # (is drawn solid, state) -> how far down its trunk runs
    for i, box in enumerate(boxes):
        shapes.append(box.svg("input" if i < graph.inputs else "node", graph.labels[i]))
        for row, edge in enumerate(graph.edges[i]):
            y = box.top + ROW * (row + 0.5) - 2
            solid, trunk = edge.op != "none", boxes[edge.input].middle[0]
            trunks[solid, edge.input] = max(y, trunks.get((solid, edge.input), y))
            dot = f'<circle cx="{trunk:g}" cy="{y:g}" r="2.5" fill="{LINE if solid else PALE}"/>'
            lines.append(_arrow(trunk, box.left, y, solid) + dot)
            shapes.append(_pill(box.left - GAP, y, _operation(edge), edge.op))
    for (solid, i), y in trunks.items():
        lines.append(_path(f"M{boxes[i].middle[0]:g} {boxes[i].bottom:g}V{y:g}", solid))
    lines.sort(key=lambda line: PALE not in line)  # solid lines over dashed ones
    ends = [boxes[i] for i in graph.outputs]
    left, top = max(box.right for box in boxes) + 3 * GAP, min(box.top for box in ends)
    low = max(top + 1.6 * ROW, *(box.bottom for box in ends))  # room for two lines
    output = _Box(left, top, left + max(map(_width, graph.output)) + GAP, low)
    lines += [_arrow(box.right, output.left, box.middle[1]) for box in ends]
    shapes.append(output.svg("output", *filter(None, graph.output)))
    return lines + shapes, output.right, max(box.bottom for box in [*boxes, output])


def _boxes(graph: _Graph) -> list[_Box]:
    """A box a state, each below the one before it in the order; before a column there is room for its labels."""
    room = [GAP] * (max(graph.columns) + 1)
    for column, incoming in zip(graph.columns, graph.edges, strict=True):
        room[column] = max([room[column], *(_width(_operation(edge), 11) + 3 * GAP for edge in incoming)])
    width = max(map(_width, graph.labels)) + GAP
    # A label may begin right of the trunk before it: the box of that trunk is above.
    lefts = list(accumulate((width / 2 + labels for labels in room[1:]), initial=0.0))
    boxes, top = {}, GAP
    for i in graph.order:
        left, bottom = lefts[graph.columns[i]], top + ROW * max(1, len(graph.edges[i])) - 4
        boxes[i] = _Box(left, top, left + width, bottom)
        top = bottom + GAP
    return [boxes[i] for i in range(len(boxes))]


def _width(label: str, size: float = 12) -> float:
    """Of a text in a monospace font: 0.61 em a letter, subscripts are smaller."""
    plain = re.sub(r"_\{(.*?)\}", "", label)
    return 0.61 * size * (len(plain) + 0.75 * (len(label) - len(plain) - 3 * label.count("_{")))


def _text(x: float, y: float, label: str, size: float, style: str = "") -> str:
    """A text whose middle is at height y; x_{i} is set as a subscript, by dy because not every viewer knows 'sub'."""
    small = f'<tspan dy="3" font-size="{0.75 * size:g}">\\1</tspan><tspan dy="-3">\\2</tspan>'
    body = re.sub(r"_\{(.*?)\}([^_]*)", small, escape(label))
    return f'<text x="{x:g}" y="{y + 0.35 * size:g}" font-size="{size:g}" fill="{INK}" {style}>{body}</text>'


def _rect(box: _Box, role: str, style: str) -> str:
    place = f'x="{box.left:g}" y="{box.top:g}" width="{box.right - box.left:g}" height="{box.bottom - box.top:g}"'
    return f'<rect class="{role}" {place} rx="5" {style}/>'


def _pill(right: float, y: float, label: str, op: str) -> str:
    box = _Box(right - _width(label, 11) - GAP, y - 9, right, y + 9)
    fill = next(colour for word, colour in OP_FILLS if word in op)
    return _rect(box, "op", f'fill="{fill}" stroke="{PALE}"') + _text(box.middle[0], y, label, 11, MIDDLE)


def _path(d: str, solid: bool) -> str:
    style = f'stroke="{LINE}"' if solid else f'stroke="{PALE}" stroke-dasharray="4 3"'
    return f'<path d="{d}" fill="none" {style}/>'


def _arrow(start: float, end: float, y: float, solid: bool = True) -> str:
    head = f'<path d="M{end:g} {y:g}l-7 -3.5v7z" fill="{LINE if solid else PALE}"/>'
    return _path(f"M{start:g} {y:g}H{end - 6:g}", solid) + head
