"""report/cell.py: the text says what the cell computes; in the drawing nothing lies on anything
else."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import OPERATIONS
from proxnas.cells.parts import Cell, Edge
from proxnas.report.cell import cell_svg, cell_text
from support.places import SHARED

SVG = "{http://www.w3.org/2000/svg}"
NB201 = "|nor_conv_3x3~0|+|none~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"


def cnn(
    nodes: tuple[tuple[Edge, ...], ...], concat: tuple[int, ...], space: str | None = None
) -> Genotype:
    return Genotype("cnn", {"normal": Cell(nodes, concat), "reduce": Cell(nodes, concat)}, space)


DARTS_V1 = cnn(
    (
        (Edge("sep_conv_3x3", 1), Edge("sep_conv_3x3", 0)),
        (Edge("skip_connect", 0), Edge("sep_conv_3x3", 1)),
        (Edge("skip_connect", 0), Edge("sep_conv_3x3", 1)),
        (Edge("sep_conv_3x3", 0), Edge("skip_connect", 2)),
    ),
    (2, 3, 4, 5),
)
RNN = Genotype(
    "rnn",
    {
        "recurrent": Cell(
            tuple((Edge(op, i),) for op, i in [("relu", 0), ("tanh", 1), ("identity", 0)]),
            (1, 2, 3),
        )
    },
)


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float
    text: str

    def meets(self, other: Box) -> bool:
        x = min(self.right, other.right) - max(self.left, other.left)
        y = min(self.bottom, other.bottom) - max(self.top, other.top)
        # Coordinates are printed with six digits, and a line has no width.
        return min(x, y) > 0.01 or (max(x, y) > 0.01 and min(x, y) >= 0 and 0 in self.size)

    @property
    def size(self) -> tuple[float, float]:
        return self.right - self.left, self.bottom - self.top


def groups(svg: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(f"{SVG}g"))


def boxes(group: ET.Element, *roles: str) -> list[Box]:
    """The rectangles of these roles, each with the text that follows it."""
    found, children = [], list(group)
    for rect, text in itertools.pairwise(children):
        if rect.tag == f"{SVG}rect" and rect.get("class") in roles:
            x, y, width, height = (
                float(rect.get(name, "")) for name in ("x", "y", "width", "height")
            )
            found.append(Box(x, y, x + width, y + height, "".join(text.itertext())))
    return found


def strokes(group: ET.Element) -> list[Box]:
    """The straight lines (arrowheads, drawn by l and v, aside) as boxes without area."""
    found = []
    for path in group.iter(f"{SVG}path"):
        x, _, rest = path.get("d", "")[1:].partition(" ")
        if "V" in rest:
            y, end = rest.split("V")
            found.append(Box(float(x), float(y), float(x), float(end), ""))
        elif "H" in rest:
            y, end = rest.split("H")
            found.append(Box(float(x), float(y), float(end), float(y), ""))
    return found


def assert_readable(genotype: Genotype) -> None:
    for group in groups(cell_svg(genotype)):
        shapes = boxes(group, "input", "node", "output", "op")
        for a, b in itertools.combinations(shapes, 2):
            assert not a.meets(b), (a, b)
        for op in boxes(group, "op"):  # 0.602 em is the width of a letter of DejaVu Sans Mono
            assert 0.602 * 11 * len(op.text) < op.right - op.left
        for line in strokes(group):
            assert not any(line.meets(box) for box in boxes(group, "input", "node", "output")), line
            if line.left == line.right:  # trunks pass no label
                assert not any(line.meets(box) for box in boxes(group, "op")), line


def published() -> list[Any]:
    path = SHARED / "facts" / "cells.json"
    if not path.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason="no table of published cells"))]
    table = json.loads(path.read_text())
    readable = {
        name: cell
        for name, cell in table.items()
        if name != "_meta" and not cell.get("reduce_fixed")
    }
    return [pytest.param(cell, id=name) for name, cell in readable.items()]


@pytest.mark.parametrize("data", published())
def test_published_cells_are_readable(data: dict[str, Any]) -> None:
    assert_readable(Genotype.from_json(json.dumps(data)))


@pytest.mark.parametrize(
    "genotype", [DARTS_V1, RNN, Genotype.from_string(NB201)], ids=lambda g: g.kind
)
def test_drawing_is_complete(genotype: Genotype) -> None:
    assert_readable(genotype)
    svg = cell_svg(genotype)
    assert len(groups(svg)) == len(genotype.cells)
    for group, cell in zip(groups(svg), genotype.cells.values(), strict=True):
        drawn = sorted(box.text for box in boxes(group, "op"))
        first = ["tanh"] if genotype.kind == "rnn" else []  # of the inputs
        assert drawn == sorted([edge.op for node in cell.nodes for edge in node] + first)
        assert len(boxes(group, "output")) == 1


@st.composite
def cnns(draw: st.DrawFn) -> Genotype:
    def node(index: int) -> tuple[Edge, ...]:
        edges = st.builds(
            Edge, st.sampled_from(OPERATIONS["cnn"]), st.integers(0, index - 1), st.floats(0, 1)
        )
        return tuple(draw(st.lists(edges, min_size=1, max_size=5)))

    count = draw(st.integers(1, 7))
    concat = draw(st.lists(st.integers(0, count + 1), min_size=1, unique=True))
    return cnn(tuple(node(2 + n) for n in range(count)), tuple(concat))


@st.composite
def rnns(draw: st.DrawFn) -> Genotype:
    count = draw(st.integers(1, 12))
    ops = st.sampled_from(OPERATIONS["rnn"])
    nodes = tuple((Edge(draw(ops), draw(st.integers(0, n))),) for n in range(count))
    concat = draw(st.lists(st.integers(0, count), min_size=1, unique=True))
    return Genotype("rnn", {"recurrent": Cell(nodes, tuple(concat))})


@given(cnns() | rnns())
@settings(deadline=None, max_examples=60)
def test_any_cell_is_readable(genotype: Genotype) -> None:
    assert_readable(genotype)
    assert cell_text(genotype).isascii()


def test_svg_stands_alone_and_is_described() -> None:
    root = ET.fromstring(cell_svg(replace(DARTS_V1, space='a<b> & "c"')))
    title, desc, background = list(root)[:3]
    assert title.tag == f"{SVG}title" and title.text == 'cnn genotype of space a<b> & "c"'
    assert desc.tag == f"{SVG}desc" and "node 2 = sep_conv_3x3(c_{k-1})" in (desc.text or "")
    assert background.get("fill") == "#ffffff" and background.get("width") == root.get("width")
    assert root.get("role") == "img"
    # Several drawings may share an HTML page, so none may have ids, and none may need a file.
    assert not any({"id", "href"} & set(element.attrib) for element in root.iter())


def test_nothing_leaves_the_page() -> None:
    svg = cell_svg(DARTS_V1)
    right = 0.0
    for group in groups(svg):
        x = float(group.get("transform", "").removeprefix("translate(").split()[0])
        assert x > right
        right = x + max(box.right for box in boxes(group, "output", "node"))
    assert right < float(ET.fromstring(svg).get("width", 0))


def test_none_is_dashed_in_nasbench201_and_absent_elsewhere() -> None:
    assert (
        cell_svg(Genotype.from_string(NB201)).count("stroke-dasharray") == 4
    )  # two trunks and two rows
    with_none = cnn(((Edge("none", 0), Edge("skip_connect", 1)),), (2,))
    assert ">none<" not in cell_svg(with_none)
    assert "node 2 = skip_connect(c_{k-1})\n" in cell_text(with_none)


def test_text_of_a_cnn() -> None:
    lines = cell_text(replace(DARTS_V1, space="darts8")).splitlines()
    assert lines[:4] == [
        "cnn genotype of space darts8",
        "",
        "normal cell",
        "  node 2 = sep_conv_3x3(c_{k-1}) + sep_conv_3x3(c_{k-2})",
    ]
    assert "  node 5 = sep_conv_3x3(c_{k-2}) + skip_connect(node 2)" in lines
    assert "  c_{k}  = concat(node 2, node 3, node 4, node 5)" in lines
    assert "reduction cell" in lines


def test_text_of_factors_and_empty_nodes() -> None:
    text = cell_text(cnn(((Edge("conv_1x1", 0, 0.5),), (Edge("none", 2),)), (2, 3)))
    assert "node 2 = 0.5*conv_1x1(c_{k-2})" in text
    assert "node 3 = 0\n" in text


def test_text_of_an_rnn_and_nasbench201() -> None:
    assert "  node 2 = tanh(node 1)\n" in cell_text(RNN)
    assert "  h_{t}  = mean(node 1, node 2, node 3)\n" in cell_text(RNN)
    text = cell_text(Genotype.from_string(NB201))
    assert "  node 3 = skip_connect(input) + nor_conv_3x3(node 1)\n" in text
    assert "  output = node 3\n" in text
