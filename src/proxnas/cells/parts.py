"""Cells and their edges, as data, and what is wrong with those that cannot be."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from proxnas.cells.kinds import (
    CELLS,
    CHAINS,
    COMPLETE,
    CUSTOM,
    FIRST_NODE,
    RECURRENT,
    operations_of,
)
from proxnas.common.errors import InputError, unknown


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


def check_names(cells: Mapping[str, Cell]) -> tuple[str, ...]:
    """The names of Choices: any, as long as they can be shown."""
    if not cells or not all(isinstance(name, str) and name.isprintable() for name in cells):
        raise InputError(
            f"a genotype of kind {CUSTOM} has at least one cell, and their names are printable"
        )
    return tuple(cells)


def check_cell(kind: str, name: str, cell: Cell | None) -> Cell:
    """The cell in tuples, or an InputError that names the place."""
    if cell is None:
        raise InputError(f"cell {name} is missing: kind {kind} has {' and '.join(CELLS[kind])}")
    nodes = check_nodes(name, cell.nodes, FIRST_NODE[kind])
    for i, node in enumerate(nodes, FIRST_NODE[kind]):
        check_node(kind, f"cell {name}, node {i}", i, node)
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
        # every state is read once: the order of edges says nothing, and one is kept to
        nodes = tuple(tuple(sorted(node, key=lambda edge: edge.input)) for node in nodes)
    if kind in CHAINS:
        check_chain(name, CHAINS[kind], nodes, cell.concat)
    return Cell(nodes, check_concat(name, cell.concat, states=FIRST_NODE[kind] + len(nodes)))


def check_chain(
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


def check_nodes(name: str, nodes: Any, first: int) -> tuple[tuple[Edge, ...], ...]:
    """The nodes in tuples, their types checked but not their meaning."""
    if not isinstance(nodes, (list, tuple)) or not nodes:
        raise InputError(f"cell {name}: nodes is a list of at least one node, not {show(nodes)}")
    for i, node in enumerate(nodes, first):
        if not isinstance(node, (list, tuple)):
            raise InputError(f"cell {name}, node {i}: a node is a list of edges, not {show(node)}")
    return tuple(
        tuple(check_edge(f"cell {name}, node {i}", e) for e in node)
        for i, node in enumerate(nodes, first)
    )


def check_edge(where: str, edge: Any) -> Edge:
    if (
        not isinstance(edge, (list, tuple))
        or len(edge) not in (2, 3)
        or not isinstance(edge[0], str)
    ):
        raise InputError(
            f"{where}: an edge is [operation, input] or [operation, input, value], not {show(edge)}"
        )
    op, source, value = (*edge, 1.0)[:3]
    if type(source) is not int:  # bool is an int to isinstance
        raise InputError(
            f"{where}: the input of {show(op)} is the whole number of a state, not {show(source)}"
        )
    # NaN, infinity, 10**400
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise InputError(f"{where}: the value of {show(op)} is a finite number, not {show(value)}")
    return Edge(op, source, float(value))


def check_node(kind: str, where: str, index: int, node: tuple[Edge, ...]) -> None:
    if not node:
        raise InputError(f"{where} has no edges: every node needs at least one input")
    for edge in node:
        if kind == CUSTOM and not edge.op.isprintable():
            raise InputError(f"{where}: {show(edge.op)} is no printable name of a candidate")
        if kind != CUSTOM and edge.op not in operations_of(kind):
            raise InputError(f"{where}: {unknown('operation', edge.op[:40], operations_of(kind))}")
        if not 0 <= edge.input < index:
            raise InputError(
                f"{where}: {edge.op} reads state {show(edge.input)}, allowed are 0 to {index - 1}"
            )
    if kind == RECURRENT and len(node) != 1:
        raise InputError(f"{where} has {len(node)} edges: a node of an rnn cell has one")
    if kind in COMPLETE and sorted(edge.input for edge in node) != list(range(index)):
        raise InputError(
            f"{where} needs one edge from each of the states 0 to {index - 1} (absent ones are"
            " 'none')"
        )


def check_concat(name: str, concat: Any, states: int) -> tuple[int, ...]:
    if not isinstance(concat, (list, tuple)) or not concat:
        raise InputError(f"cell {name}: concat is a list of at least one state, not {show(concat)}")
    left = set(range(states))
    for i in concat:
        if type(i) is not int or i not in left:
            raise InputError(
                f"cell {name}: concat names state {show(i)}, allowed are 0 to {states - 1}, each"
                " once"
            )
        # named once: a second time it is no longer there
        left.remove(i)
    return tuple(concat)


def show(value: object) -> str:
    """A value in a message: short, on one line, whatever it is."""
    return f"{reprlib.repr(value):.80}"
