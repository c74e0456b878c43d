"""`--start CELL`: a known cell as the A_bar of a space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Edge
from proxnas.cells.reading import read_genotype
from proxnas.common.errors import InputError, OptionError
from proxnas.common.types import Matrices
from proxnas.core.groups import Group
from proxnas.core.space import Space


def start(cell: str, space: Space[Any]) -> Matrices:
    """The A_bar that selects it, or an InputError that names the cell and the space."""
    A_bar = selecting(read_genotype(cell), space)
    if A_bar is None:
        advice = f"is no cell of {{space}} {space.name}: give one that was found there"
        raise OptionError("start", cell, advice)
    return A_bar


def selecting(cell: Genotype, space: Space[Any]) -> Matrices | None:
    """The A_bar that selects a cell; None if it is none of the space."""
    genotype = cell.without_values()
    try:
        A_bar = {
            name: _entries(genotype.cells[name].nodes, group)
            for name, group in space.groups.items()
        }
        # there and back: only a cell of the space comes back as it went
        known = space.genotype(A_bar)
    except (KeyError, IndexError, ValueError, InputError):
        return None
    return A_bar if _sort_edges(known) == _sort_edges(genotype) else None


def _sort_edges(genotype: Genotype) -> dict[str, Any]:
    """The same in whatever order the edges of a node are named."""
    return {
        name: (list(map(sorted, cell.nodes)), sorted(cell.concat))
        for name, cell in genotype.cells.items()
    }


def _entries(nodes: Sequence[Sequence[Edge]], group: Group) -> torch.Tensor:
    """1 at each edge's row and candidate: the rows of a node read the states before it in their
    order."""
    A_bar = torch.zeros(group.shape, dtype=torch.float64)
    if len(nodes) != len(group.nodes):  # enas5: each side of a node chooses by itself
        nodes = [(edge,) for edges in nodes for edge in edges]
    for edges, rows in zip(nodes, group.nodes, strict=True):
        for edge in edges:
            A_bar[rows[edge.input], group.candidates.index(edge.op)] = 1.0
    return A_bar
