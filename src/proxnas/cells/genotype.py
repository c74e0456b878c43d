"""The discrete cell a search returns: what it is made of, and how it is read and written.

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
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from proxnas.cells.kinds import BY_HAND, CELLS, CUSTOM, FIRST_NODE, KINDS, RECURRENT
from proxnas.cells.parts import Cell, Edge, check_cell, check_names, check_nodes, show
from proxnas.common.errors import InputError, unknown

SCHEMA, MAX_BYTES = 1, 1_000_000


@dataclass(frozen=True)
class Genotype:
    """The cells of one network: checked at birth, so whoever holds one can build from it without
    looking."""

    kind: str
    cells: Mapping[str, Cell]
    space: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise InputError(f"kind is one of {', '.join(KINDS)}, not {show(self.kind)}")
        if self.kind not in KINDS:
            raise unknown("kind", self.kind[:40], KINDS)
        # Printable: it goes into one-line messages, JSON and SVG, where control characters and lone
        # surrogates do harm.
        if self.space is not None and not (
            isinstance(self.space, str) and self.space.isprintable()
        ):
            raise InputError(f"space is a printable name or null, not {show(self.space)}")
        # in the order of the kind, so that equal genotypes are written alike
        names = CELLS[self.kind] if self.kind != CUSTOM else check_names(self.cells)
        for name in self.cells:
            if name not in names:
                raise unknown(f"cell of kind {self.kind}", str(name)[:40], names)
        cells = {name: check_cell(self.kind, name, self.cells.get(name)) for name in names}
        # frozen: this is the one way to put a checked value in, and nobody changes it later
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
            raise InputError(f"a genotype is a JSON object, not {show(data)}")
        return _native(data) if "cells" in data or "schema" in data else _read_published(data)

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
        words = []
        for node in nodes:
            words.append("|" + "".join(f"{edge.op}~{edge.input}|" for edge in node))
        return "+".join(words)

    @classmethod
    def from_string(cls, text: str) -> Genotype:
        """The cell with that NAS-Bench-201 name."""
        parts = text.strip().split("+")
        if not all(re.fullmatch(r"\|([^|~]+~[0-9]{1,3}\|)+", part) for part in parts):
            raise InputError(
                f"not a NAS-Bench-201 string like |op~0|+|op~0|op~1|+|op~0|op~1|op~2|: {show(text)}"
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
    except (RecursionError, ValueError) as error:
        # ValueError: Python refuses to parse such integers
        raise InputError(
            "not a genotype: nested too deeply, or a number of more than 4300 digits"
        ) from error


def _native(data: dict[str, Any]) -> Genotype:
    schema, cells = data.get("schema"), data.get("cells")
    if data.get("kind") == BY_HAND:
        raise InputError(
            f"{show(data.get('name'))} is a network made by hand: it has no cell to show or look up"
        )
    if type(schema) is not int or schema != SCHEMA:
        raise InputError(
            f"unknown schema version {show(schema)}: this version of proxnas reads {SCHEMA}"
        )
    if not isinstance(cells, dict) or not all(isinstance(cell, dict) for cell in cells.values()):
        raise InputError(
            f"cells is an object of cells, each an object with nodes and concat, not {show(cells)}"
        )
    named = {name: Cell(cell.get("nodes"), cell.get("concat")) for name, cell in cells.items()}
    return Genotype(data.get("kind", ""), named, data.get("space"))


def _read_published(data: dict[str, Any]) -> Genotype:
    """Cells as papers print them: NAME holds flat edges or NAME_nodes edges a node, NAME_concat the
    output."""
    kind = data.get("kind", RECURRENT if "recurrent" in data else "cnn")
    cells = {}
    for name in CELLS.get(str(kind), ()):
        nodes = data.get(f"{name}_nodes")
        flat = data.get(name)
        width = 1 if kind == RECURRENT else 2
        if nodes is None and isinstance(flat, list):
            if len(flat) % width:
                raise InputError(
                    f"cell {name}: {len(flat)} edges in a flat list do not make {width} a node"
                )
            # DARTS lists the edges of all nodes one after the other, two for each
            nodes = [flat[i : i + width] for i in range(0, len(flat), width)]
        if nodes is not None or flat is not None:
            concat = data.get(f"{name}_concat", data.get("concat"))
            cells[name] = _without_empty(
                check_nodes(name, nodes or flat, FIRST_NODE[kind]), concat, FIRST_NODE[kind]
            )
    return Genotype(kind, cells, data.get("space"))


def _without_empty(nodes: tuple[tuple[Edge, ...], ...], concat: Any, first: int) -> Cell:
    """FairDARTS prints empty nodes: one that is not part of the output becomes 'none', its edges
    are left out."""
    if concat == "leaves":  # ENAS: all nodes that no other node uses
        used = {edge.input for node in nodes for edge in node}
        concat = [i for i in range(first, first + len(nodes)) if i not in used]
    # what concat should be is checked later: here only what can be states counts
    seen = {i for i in concat if type(i) is int} if isinstance(concat, list) else set()
    empty = {i for i, node in enumerate(nodes, first) if not node and i not in seen}
    kept = []
    for i, node in enumerate(nodes, first):
        left = tuple(edge for edge in node if edge.input not in empty)
        kept.append((Edge("none", 0),) if i in empty else left)
    return Cell(tuple(kept), concat)


def _cell_json(cell: Cell) -> str:
    rows = []
    for node in cell.nodes:
        edges = [edge if edge.value != 1 else edge[:2] for edge in node]  # 1 goes without saying
        rows.append("        " + json.dumps(edges))
    lines = ",\n".join(rows)
    return (
        f'{{\n      "nodes": [\n{lines}\n      ],\n      "concat": {json.dumps(cell.concat)}\n '
        "   }"
    )
