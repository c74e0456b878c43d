"""Where everything of a drawn cell lies: straight lines, boxes and labels, for whoever puts them on
paper.

The drawing is a staircase. Every state has rows of its own; its output runs down a trunk below its
box, and each edge leaves that trunk on one row, towards the box it enters. A cnn has a column a
state, an rnn cell is a tree with a column a level. So a label can meet neither a box nor another
label, whatever the cell, and the way from every box to the output on the right is free. Lengths are
pixels, y points down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import CUSTOM, RECURRENT
from proxnas.cells.parts import Cell, Edge

TITLES = {
    "normal": "normal cell",
    "reduce": "reduction cell",
    "recurrent": "recurrent cell",
    "cell": "cell",
    "chain": "chain of blocks",
    "mobile": "chain of inverted residual blocks",
    "stage1": "stage 1",
    "stage2": "stage 2",
    "stage3": "stage 3",
}
INPUTS = {
    "cnn": ("c_{k-2}", "c_{k-1}"),
    RECURRENT: ("x_{t}, h_{t-1}",),
    "nasbench201": ("input",),
    "chain": ("image",),
    "mobile": ("stem",),
    "genet": ("node 0",),
    CUSTOM: ("input",),
}
OUTPUTS = {
    "cnn": ("c_{k}", "concat"),
    RECURRENT: ("h_{t}", "mean"),
    "nasbench201": ("output", ""),
    "chain": ("classifier", ""),
    "mobile": ("head", ""),
    "genet": ("output", "ends among"),
    CUSTOM: ("output", ""),
}

ROW, GAP, MARGIN = 26.0, 14.0, 24.0
INK, LINE, PALE = "#1f2933", "#52606d", "#c5ccd3"
FILLS = {"input": "#d9f2e3", "node": "#dbeafe", "output": "#fdebc8"}
# the first that is found
OP_FILLS = (("conv", "#eef4ff"), ("pool", "#fff3e0"), ("none", "#ffffff"), ("", "#f3f4f6"))


@dataclass(frozen=True)
class Stroke:
    """A straight line; one that is not solid stands for an edge that carries nothing."""

    start: tuple[float, float]
    end: tuple[float, float]
    solid: bool = True


@dataclass(frozen=True)
class Mark:
    """The tip of an arrow that points right, or the dot where an edge leaves its trunk."""

    tip: bool
    at: tuple[float, float]
    solid: bool = True


@dataclass(frozen=True)
class Label:
    """A text whose middle is at height y; x_{i} is a subscript."""

    x: float
    y: float
    text: str
    size: float
    middle: bool = True


@dataclass(frozen=True)
class Box:
    """A rectangle: an input, a node, the output, or (op) the label of an edge."""

    left: float
    top: float
    right: float
    bottom: float
    role: str = "node"
    fill: str = ""
    stroke: str = LINE

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


Shape = Stroke | Mark | Label | Box


@dataclass(frozen=True)
class Drawing:
    """One cell, its shapes in the order in which they are painted."""

    title: str
    shapes: Sequence[Shape]
    width: float
    height: float


def drawings(genotype: Genotype) -> list[Drawing]:
    """A drawing a cell."""
    return [
        _drawing(TITLES.get(name, name), _graph(genotype.kind, cell))
        for name, cell in genotype.cells.items()
    ]


def _drawing(title: str, graph: _Graph) -> Drawing:
    shapes, width, height = _draw(graph)
    return Drawing(title, shapes, max(width, _width(title, 14)), height)


def page(cells: Sequence[Drawing]) -> tuple[list[tuple[float, float]], float, float]:
    """(place of each drawing, width, height) when they stand side by side."""
    # where each begins, and where the last one ends
    lefts = list(accumulate((cell.width + 2 * MARGIN for cell in cells), initial=MARGIN))
    height = max(cell.height for cell in cells) + 2.5 * MARGIN
    return [(left, 1.5 * MARGIN) for left in lefts[:-1]], lefts[-1] - MARGIN, height


def operation(edge: Edge) -> str:
    """The label of an edge: its operation, with the factor if that is not 1."""
    return edge.op if edge.value == 1 else f"{edge.value:.3g}*{edge.op}"


def state_name(kind: str, state: int) -> str:
    """What state i of a cell is called in a drawing."""
    return INPUTS[kind][state] if kind != RECURRENT and state < len(INPUTS[kind]) else str(state)


@dataclass(frozen=True)
class _Graph:
    """What is drawn: a label and the incoming edges of each state, its column, and the order from
    top to bottom."""

    labels: list[str]
    edges: list[list[Edge]]
    outputs: list[int]
    columns: list[int]
    order: list[int]
    inputs: int
    output: tuple[str, str]


def _graph(kind: str, cell: Cell) -> _Graph:
    # its six are fixed
    shown = [[e for e in node if e.op != "none" or kind == "nasbench201"] for node in cell.nodes]
    # Latest input first: its trunk may end there, and then the edges below it need not cross it.
    edges: list[list[Edge]] = [sorted(node, key=lambda edge: -edge.input) for node in shown]
    first, outputs = len(INPUTS[kind]), list(cell.concat)
    # the first state is drawn as what it is, the tanh of the inputs, which come before it
    if kind == RECURRENT:
        edges = [[Edge("tanh", -1)], *edges]
        edges = [[edge._replace(input=edge.input + 1) for edge in node] for node in edges]
        outputs = [i + 1 for i in outputs]
    edges = [[] for _ in range(first)] + edges
    begin = first - 1 if kind == RECURRENT else first
    labels = [*INPUTS[kind], *map(str, range(begin, begin + len(edges) - first))]
    in_a_row = list(range(len(edges)))
    columns, order = _tree(edges) if kind == RECURRENT else (in_a_row, in_a_row)
    return _Graph(labels, edges, outputs, columns, order, first, OUTPUTS[kind])


def _tree(edges: Sequence[Sequence[Edge]]) -> tuple[list[int], list[int]]:
    """(depth of every state, states in preorder): in that order no edge of a tree crosses
    another."""
    depth = [0] * len(edges)
    children: list[list[int]] = [[] for _ in edges]
    for i, incoming in enumerate(edges):
        for edge in incoming:
            # states come in order: whatever one reads has its depth already
            depth[i] = depth[edge.input] + 1
            children[edge.input].append(i)
    order: list[int] = []
    stack = [i for i in reversed(range(len(edges))) if not edges[i]]
    while stack:  # not recursive: a chain may be longer than Python's stack
        order.append(stack.pop())
        stack += reversed(children[order[-1]])
    return depth, order


def _draw(graph: _Graph) -> tuple[list[Shape], float, float]:
    """(shapes, width, height) of one cell."""
    boxes = _boxes(graph)
    lines: list[Stroke | Mark] = []
    shapes: list[Shape] = []
    trunks: dict[
        tuple[bool, int], float
    ] = {}  # (is drawn solid, state) -> how far down its trunk runs
    for i, box in enumerate(boxes):
        shapes += _label_box(box, "input" if i < graph.inputs else "node", graph.labels[i])
        for row, edge in enumerate(graph.edges[i]):
            # the middle of the row: each incoming edge has one of its own
            y = box.top + ROW * (row + 0.5) - 2
            solid, trunk = edge.op != "none", boxes[edge.input].middle[0]
            # a trunk runs down to the last edge that leaves it; solid and dashed ones apart
            trunks[solid, edge.input] = max(y, trunks.get((solid, edge.input), y))
            lines += [*_arrow(trunk, box.left, y, solid), Mark(False, (trunk, y), solid)]
            shapes += _pill(box.left - GAP, y, operation(edge), edge.op)
    for (solid, i), y in trunks.items():
        lines.append(Stroke((boxes[i].middle[0], boxes[i].bottom), (boxes[i].middle[0], y), solid))
    lines.sort(key=lambda line: line.solid)  # solid lines over dashed ones
    ends = [boxes[i] for i in graph.outputs]
    left, top = max(box.right for box in boxes) + 3 * GAP, min(box.top for box in ends)
    low = max(top + 1.6 * ROW, *(box.bottom for box in ends))  # room for two lines
    output = Box(left, top, left + max(map(_width, graph.output)) + GAP, low)
    for box in ends:
        lines += _arrow(box.right, output.left, box.middle[1])
    shapes += _label_box(output, "output", *filter(None, graph.output))
    return [*lines, *shapes], output.right, max(box.bottom for box in [*boxes, output])


def _boxes(graph: _Graph) -> list[Box]:
    """A box a state, each below the one before it in the order; before a column there is room for
    its labels."""
    room = [GAP] * (max(graph.columns) + 1)
    for column, incoming in zip(graph.columns, graph.edges, strict=True):
        room[column] = max(
            [room[column], *(_width(operation(edge), 11) + 3 * GAP for edge in incoming)]
        )
    width = max(map(_width, graph.labels)) + GAP
    # A label may begin right of the trunk before it: the box of that trunk is above.
    lefts = list(accumulate((width / 2 + labels for labels in room[1:]), initial=0.0))
    boxes, top = {}, GAP
    # from top to bottom: no two boxes share a row, whatever their columns
    for i in graph.order:
        left, bottom = lefts[graph.columns[i]], top + ROW * max(1, len(graph.edges[i])) - 4
        boxes[i] = Box(left, top, left + width, bottom)
        top = bottom + GAP
    return [boxes[i] for i in range(len(boxes))]


def _width(label: str, size: float = 12) -> float:
    """Of a text in a monospace font: 0.61 em a letter, subscripts are smaller."""
    plain = re.sub(r"_\{(.*?)\}", "", label)
    # _{ and } take no room
    return 0.61 * size * (len(plain) + 0.75 * (len(label) - len(plain) - 3 * label.count("_{")))


def _label_box(box: Box, role: str, *lines: str) -> list[Shape]:
    x, y = box.middle
    texts = [
        Label(x, y + 16 * (i - (len(lines) - 1) / 2), line, 12) for i, line in enumerate(lines)
    ]
    return [Box(box.left, box.top, box.right, box.bottom, role, FILLS[role]), *texts]


def _pill(right: float, y: float, label: str, op: str) -> list[Shape]:
    fill = next(colour for word, colour in OP_FILLS if word in op)
    box = Box(right - _width(label, 11) - GAP, y - 9, right, y + 9, "op", fill, PALE)
    return [box, Label(box.middle[0], y, label, 11)]


def _arrow(start: float, end: float, y: float, solid: bool = True) -> list[Stroke | Mark]:
    return [Stroke((start, y), (end - 6, y), solid), Mark(True, (end, y), solid)]
