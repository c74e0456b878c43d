"""The discrete cell a search returns: what it is made of, and how it is read_genotype and written.

States of a cell are numbered. cnn: 0 and 1 are the outputs of the two previous cells, node n (from
0) is n + 2. rnn: 0 is the first state (tanh of the linear map), node n is n + 1 and has one input.
nasbench201: 0 is the input, nodes 1, 2 and 3 have one edge from every state before them. chain: 0
is the image, every node has one edge, from the state before it, in turn an entry and a body. genet:
of a stage 0 is the first node, every other has one edge from every node before it. A node is the
sum of its edges. custom: a module of the user's own; its cells are its Choices by name, each
one node with one edge from the input, state 0.
"""

from __future__ import annotations

import json
import re
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from proxnas.common.errors import InputError, unknown
from proxnas.common.plugins import of_others

SCHEMA, MAX_BYTES = 1, 1_000_000
BY_HAND = "network"
"""Kind of what has a name in place of cells: designs.py."""

CHAIN_ENTRIES = ("conv_3x3", "conv_5x5", "sep_conv_3x3", "sep_conv_5x5")
CHAIN_BODIES = (
    *("res_one_3x3", "res_3x3", "res_3x3_se", "res_5x5", "res_group_3x3", "res_sep_3x3"),
    *("bottleneck_2", "bottleneck_2_se", "bottleneck_4", "skip_connect"),
)
MOBILE_FIRST = tuple(
    f"mb{expansion}_{kernel}x{kernel}{excite}"
    for kernel in (3, 5, 7)
    for expansion in (3, 6)
    for excite in ("", "_se")
)
"""Kinds of inverted residual blocks."""
SKIP = "skip_connect"
MOBILE_LATER = (*MOBILE_FIRST, SKIP)
MOBILE_BLOCKS = (4, 4, 4, 4, 4, 1)
"""Of every stage; the first of them cannot be skipped."""


class Stage(NamedTuple):
    """Of a network of Genetic CNN."""

    name: str
    nodes: int


GENET_STAGES = (Stage("stage1", 3), Stage("stage2", 4), Stage("stage3", 5))
"""As the paper has them on CIFAR-10."""
OPERATIONS: dict[str, tuple[str, ...]] = {
    "cnn": (
        *(
            "none",
            "skip_connect",
            "max_pool_2x2",
            "max_pool_3x3",
            "max_pool_5x5",
            "max_pool_7x7",
            "avg_pool_3x3",
        ),
        *(
            "sep_conv_3x3",
            "sep_conv_5x5",
            "sep_conv_7x7",
            "dil_conv_3x3",
            "dil_conv_5x5",
            "dil_sep_conv_5x5",
        ),
        *("conv_1x1", "conv_3x3", "conv_5x5", "conv_3x1_1x3", "conv_7x1_1x7"),
        *("group_conv_3x1_1x3", "max_pool_3x3_norm"),  # of GDAS' fixed reduction cell
    ),
    "rnn": ("none", "tanh", "relu", "sigmoid", "identity"),
    "nasbench201": ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"),
    "chain": (*CHAIN_ENTRIES, *CHAIN_BODIES),
    "mobile": MOBILE_LATER,
    "genet": ("none", SKIP),
}
CELLS: dict[str, tuple[str, ...]] = {
    "cnn": ("normal", "reduce"),
    "rnn": ("recurrent",),
    "nasbench201": ("cell",),
    "chain": ("chain",),
    "mobile": ("mobile",),
    "genet": tuple(stage.name for stage in GENET_STAGES),
}
CUSTOM = "custom"
"""The kind of any module that holds Choices: it has cells and operations of its own."""
KINDS = (*OPERATIONS, CUSTOM)
CHAIN_STAGES = 3
CHAINS: dict[str, tuple[tuple[str, ...], ...]] = {
    "chain": (CHAIN_ENTRIES, CHAIN_BODIES) * CHAIN_STAGES,
    "mobile": tuple(
        MOBILE_LATER if place else MOBILE_FIRST
        for blocks in MOBILE_BLOCKS
        for place in range(blocks)
    ),
}
"""Kinds in which every node reads the one before it: what each of their nodes may be."""
COMPLETE: dict[str, dict[str, tuple[int, tuple[int, ...]]]] = {
    "nasbench201": {"cell": (3, (3,))},
    "genet": {stage.name: (stage.nodes - 1, tuple(range(stage.nodes))) for stage in GENET_STAGES},
}
"""Kinds in which every node has an edge from every state before it, absent ones being `none`: the
nodes of each cell, and its output."""
FIRST_NODE: dict[str, int] = {
    **{"cnn": 2, "rnn": 1, "nasbench201": 1, "genet": 1, CUSTOM: 1},
    **dict.fromkeys(CHAINS, 1),
}


def operations_of(kind: str) -> tuple[str, ...]:
    """What an edge of such a cell may be; in cells of images also what other packages add (entry
    point `proxnas.operations`)."""
    return (*OPERATIONS[kind], *of_others("operations")) if kind == "cnn" else OPERATIONS[kind]


class Edge(NamedTuple):
    """value * op(state number input); the factor is 1 unless the search ran with the value rule
    a_k."""

    op: str
    input: int
    value: float = 1.0


@dataclass(frozen=True)
class Cell:
    """The edges into each node, and the states whose concatenation (rnn: mean) is the output."""

    nodes: tuple[tuple[Edge, ...], ...]
    concat: tuple[int, ...]


@dataclass(frozen=True)
class Genotype:
    """The cells of one network: checked at birth, so whoever holds one can build from it without
    looking."""

    kind: str
    cells: Mapping[str, Cell]
    space: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise InputError(f"kind is one of {', '.join(KINDS)}, not {_show(self.kind)}")
        if self.kind not in KINDS:
            raise unknown("kind", self.kind[:40], KINDS)
        # Printable: it goes into one-line messages, JSON and SVG, where control characters and lone
        # surrogates do harm.
        if self.space is not None and not (
            isinstance(self.space, str) and self.space.isprintable()
        ):
            raise InputError(f"space is a printable name or null, not {_show(self.space)}")
        names = CELLS[self.kind] if self.kind != CUSTOM else _check_names(self.cells)
        for name in self.cells:
            if name not in names:
                raise unknown(f"cell of kind {self.kind}", str(name)[:40], names)
        cells = {name: _check_cell(self.kind, name, self.cells.get(name)) for name in names}
        object.__setattr__(self, "cells", MappingProxyType(cells))

    def __hash__(self) -> int:
        return hash((self.kind, tuple(self.cells.items()), self.space))

    def __reduce__(self) -> tuple[Any, ...]:  # a MappingProxyType can be neither pickled nor copied
        return Genotype, (self.kind, dict(self.cells), self.space)

    def to_json(self) -> str:
        """The genotype as JSON, one node a line; equal genotypes give equal text."""
        head = (
            f'"schema": {SCHEMA},\n  "kind": {json.dumps(self.kind)},\n  "space":'
            f" {json.dumps(self.space)}"
        )
        cells = ",\n".join(
            f"    {json.dumps(name)}: {_cell_json(cell)}" for name, cell in self.cells.items()
        )
        return f'{{\n  {head},\n  "cells": {{\n{cells}\n  }}\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> Genotype:
        """What `to_json` wrote, or a published cell in the manner of DARTS (flat lists, two edges a
        node)."""
        return cls.from_object(_parse(text))

    @classmethod
    def from_object(cls, data: Any) -> Genotype:
        """The same from JSON that is parsed already, as it stands in results and metrics."""
        if not isinstance(data, dict):
            raise InputError(f"a genotype is a JSON object, not {_show(data)}")
        return _native(data) if "cells" in data or "schema" in data else _published(data)

    @classmethod
    def of_choices(
        cls, choices: Mapping[str, str], values: Mapping[str, float] | None = None
    ) -> Genotype:
        """Choice -> candidate of a module of the user's own, and the factors of those that are not
        1."""
        edges = {name: Edge(op, 0, (values or {}).get(name, 1.0)) for name, op in choices.items()}
        return cls(CUSTOM, {name: Cell(((edge,),), (1,)) for name, edge in edges.items()}, CUSTOM)

    def choices(self) -> dict[str, str]:
        """The same as `of_choices` takes it."""
        if self.kind != CUSTOM:
            raise InputError(
                f"a cell of kind {self.kind} selects no Choices by name: give one of kind {CUSTOM}"
            )
        return {name: cell.nodes[0][0].op for name, cell in self.cells.items()}

    def without_values(self) -> Genotype:
        """The same cells with all factors 1."""
        cells = {
            name: Cell(
                tuple(tuple(Edge(*edge[:2]) for edge in node) for node in cell.nodes), cell.concat
            )
            for name, cell in self.cells.items()
        }
        return Genotype(self.kind, cells, self.space)

    def to_string(self) -> str:
        """The NAS-Bench-201 name of the cell: |op~0|+|op~0|op~1|+|op~0|op~1|op~2|."""
        if self.kind != "nasbench201":
            raise InputError(
                f"only a nasbench201 cell has a NAS-Bench-201 string, not one of kind {self.kind}"
            )
        nodes = self.cells["cell"].nodes
        if any(edge.value != 1 for node in nodes for edge in node):
            raise InputError(
                "a NAS-Bench-201 string cannot hold the factors of this cell: use JSON"
            )
        return "+".join(
            "|" + "".join(f"{edge.op}~{edge.input}|" for edge in node) for node in nodes
        )

    @classmethod
    def from_string(cls, text: str) -> Genotype:
        """The cell with that NAS-Bench-201 name."""
        parts = text.strip().split("+")
        if not all(re.fullmatch(r"\|([^|~]+~[0-9]{1,3}\|)+", part) for part in parts):
            raise InputError(
                "not a NAS-Bench-201 string like |op~0|+|op~0|op~1|+|op~0|op~1|op~2|:"
                f" {_show(text)}"
            )
        nodes = tuple(
            tuple(Edge(op, int(i)) for op, i in re.findall(r"([^|~]+)~([0-9]+)", part))
            for part in parts
        )
        return cls("nasbench201", {"cell": Cell(nodes, (3,))}, "nasbench201")


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from error
    except (
        RecursionError,
        ValueError,
    ) as error:  # ValueError: Python refuses to parse such integers
        raise InputError(
            "not a genotype: nested too deeply, or a number of more than 4300 digits"
        ) from error


def _native(data: dict[str, Any]) -> Genotype:
    schema, cells = data.get("schema"), data.get("cells")
    if data.get("kind") == BY_HAND:
        raise InputError(
            f"{_show(data.get('name'))} is a network made by hand: it has no cell to show or"
            " look up"
        )
    if type(schema) is not int or schema != SCHEMA:
        raise InputError(
            f"unknown schema version {_show(schema)}: this version of proxnas reads {SCHEMA}"
        )
    if not isinstance(cells, dict) or not all(isinstance(cell, dict) for cell in cells.values()):
        raise InputError(
            f"cells is an object of cells, each an object with nodes and concat, not {_show(cells)}"
        )
    named = {name: Cell(cell.get("nodes"), cell.get("concat")) for name, cell in cells.items()}
    return Genotype(data.get("kind", ""), named, data.get("space"))


def _published(data: dict[str, Any]) -> Genotype:
    """Cells as papers print them: NAME holds flat edges or NAME_nodes edges a node, NAME_concat the
    output."""
    kind = data.get("kind", "rnn" if "recurrent" in data else "cnn")
    cells = {}
    for name in CELLS.get(str(kind), ()):
        nodes, flat, width = data.get(f"{name}_nodes"), data.get(name), 1 if kind == "rnn" else 2
        if nodes is None and isinstance(flat, list):
            if len(flat) % width:
                raise InputError(
                    f"cell {name}: {len(flat)} edges in a flat list do not make {width} a node"
                )
            nodes = [flat[i : i + width] for i in range(0, len(flat), width)]
        if nodes is not None or flat is not None:
            concat = data.get(f"{name}_concat", data.get("concat"))
            cells[name] = _without_empty(
                _check_nodes(name, nodes or flat, FIRST_NODE[kind]), concat, FIRST_NODE[kind]
            )
    return Genotype(kind, cells, data.get("space"))


def _without_empty(nodes: tuple[tuple[Edge, ...], ...], concat: Any, first: int) -> Cell:
    """FairDARTS prints empty nodes: one that is not part of the output becomes 'none', its edges
    are left out."""
    if concat == "leaves":  # ENAS: all nodes that no other node uses
        used = {edge.input for node in nodes for edge in node}
        concat = [i for i in range(first, first + len(nodes)) if i not in used]
    seen = {i for i in concat if type(i) is int} if isinstance(concat, list) else set()
    empty = {i for i, node in enumerate(nodes, first) if not node and i not in seen}
    kept = (tuple(edge for edge in node if edge.input not in empty) for node in nodes)
    return Cell(
        tuple((Edge("none", 0),) if i in empty else node for i, node in enumerate(kept, first)),
        concat,
    )


def _cell_json(cell: Cell) -> str:
    lines = ",\n".join(
        "        " + json.dumps([e if e.value != 1 else e[:2] for e in node]) for node in cell.nodes
    )
    return (
        f'{{\n      "nodes": [\n{lines}\n      ],\n      "concat": {json.dumps(cell.concat)}\n '
        "   }"
    )


def _check_names(cells: Mapping[str, Cell]) -> tuple[str, ...]:
    """The names of Choices: any, as long as they can be shown."""
    if not cells or not all(isinstance(name, str) and name.isprintable() for name in cells):
        raise InputError(
            f"a genotype of kind {CUSTOM} has at least one cell, and their names are printable"
        )
    return tuple(cells)


def _check_cell(kind: str, name: str, cell: Cell | None) -> Cell:
    """The cell in tuples, or an InputError that names the place."""
    if cell is None:
        raise InputError(f"cell {name} is missing: kind {kind} has {' and '.join(CELLS[kind])}")
    nodes = _check_nodes(name, cell.nodes, FIRST_NODE[kind])
    for i, node in enumerate(nodes, FIRST_NODE[kind]):
        _check_node(kind, f"cell {name}, node {i}", i, node)
    if kind == CUSTOM and ([len(node) for node in nodes] != [1] or cell.concat not in ([1], (1,))):
        raise InputError(f"cell {name}: a Choice is one node with one edge, and concat [1]")
    if kind in COMPLETE:
        wanted, concat = COMPLETE[kind][name]
        if len(nodes) != wanted or tuple(cell.concat or ()) != concat:
            title = {"nasbench201": "NAS-Bench-201 cell"}.get(kind, f"{name} of kind {kind}")
            raise InputError(
                f"cell {name}: a {title} has {wanted} nodes (not {len(nodes)}) and concat"
                f" {list(concat)}"
            )
        nodes = tuple(tuple(sorted(node, key=lambda edge: edge.input)) for node in nodes)
    if kind in CHAINS:
        _check_chain(name, CHAINS[kind], nodes, cell.concat)
    return Cell(nodes, _check_concat(name, cell.concat, states=FIRST_NODE[kind] + len(nodes)))


def _check_chain(
    name: str,
    allowed: tuple[tuple[str, ...], ...],
    nodes: tuple[tuple[Edge, ...], ...],
    concat: Any,
) -> None:
    """As many nodes as blocks, each reading the one before it."""
    blocks = len(allowed)
    if len(nodes) != blocks or concat not in ([blocks], (blocks,)):
        raise InputError(
            f"cell {name}: a chain has {blocks} nodes (not {len(nodes)}) and concat [{blocks}]"
        )
    for i, (node, kinds) in enumerate(zip(nodes, allowed, strict=True)):
        if len(node) != 1 or node[0].input != i or node[0].op not in kinds:
            raise InputError(
                f"cell {name}, node {i + 1}: needs one edge from state {i}, one of"
                f" {', '.join(kinds)}"
            )


def _check_nodes(name: str, nodes: Any, first: int) -> tuple[tuple[Edge, ...], ...]:
    """The nodes in tuples, their types checked but not their meaning."""
    if not isinstance(nodes, (list, tuple)) or not nodes:
        raise InputError(f"cell {name}: nodes is a list of at least one node, not {_show(nodes)}")
    for i, node in enumerate(nodes, first):
        if not isinstance(node, (list, tuple)):
            raise InputError(f"cell {name}, node {i}: a node is a list of edges, not {_show(node)}")
    return tuple(
        tuple(_check_edge(f"cell {name}, node {i}", e) for e in node)
        for i, node in enumerate(nodes, first)
    )


def _check_edge(where: str, edge: Any) -> Edge:
    if (
        not isinstance(edge, (list, tuple))
        or len(edge) not in (2, 3)
        or not isinstance(edge[0], str)
    ):
        raise InputError(
            f"{where}: an edge is [operation, input] or [operation, input, value], not"
            f" {_show(edge)}"
        )
    op, source, value = (*edge, 1.0)[:3]
    if type(source) is not int:  # bool is an int to isinstance
        raise InputError(
            f"{where}: the input of {_show(op)} is the whole number of a state, not {_show(source)}"
        )
    if (
        type(value) not in (int, float) or not abs(value) <= sys.float_info.max
    ):  # NaN, infinity, 10**400
        raise InputError(
            f"{where}: the value of {_show(op)} is a finite number, not {_show(value)}"
        )
    return Edge(op, source, float(value))


def _check_node(kind: str, where: str, index: int, node: tuple[Edge, ...]) -> None:
    if not node:
        raise InputError(f"{where} has no edges: every node needs at least one input")
    for edge in node:
        if kind == CUSTOM and not edge.op.isprintable():
            raise InputError(f"{where}: {_show(edge.op)} is no printable name of a candidate")
        if kind != CUSTOM and edge.op not in operations_of(kind):
            raise InputError(f"{where}: {unknown('operation', edge.op[:40], operations_of(kind))}")
        if not 0 <= edge.input < index:
            raise InputError(
                f"{where}: {edge.op} reads state {_show(edge.input)}, allowed are 0 to {index - 1}"
            )
    if kind == "rnn" and len(node) != 1:
        raise InputError(f"{where} has {len(node)} edges: a node of an rnn cell has one")
    if kind in COMPLETE and sorted(edge.input for edge in node) != list(range(index)):
        raise InputError(
            f"{where} needs one edge from each of the states 0 to {index - 1} (absent ones are"
            " 'none')"
        )


def _check_concat(name: str, concat: Any, states: int) -> tuple[int, ...]:
    if not isinstance(concat, (list, tuple)) or not concat:
        raise InputError(
            f"cell {name}: concat is a list of at least one state, not {_show(concat)}"
        )
    left = set(range(states))
    for i in concat:
        if type(i) is not int or i not in left:
            raise InputError(
                f"cell {name}: concat names state {_show(i)}, allowed are 0 to {states - 1}, each"
                " once"
            )
        left.remove(i)
    return tuple(concat)


def _show(value: object) -> str:
    """A value in a message: short, on one line, whatever it is."""
    return f"{reprlib.repr(value):.80}"
