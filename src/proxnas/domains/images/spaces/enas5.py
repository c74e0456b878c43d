"""The micro space of ENAS and ASNG: five nodes, each the sum of two operations with freely chosen
inputs.

A side of a node is what a Group calls a node: rows of one side read the states before it, and one
of them is kept. So both sides may read the same state, and even run the same operation on it, each
with weights of its own.

Other than there the output of a cell is the concatenation of all its nodes, not of those that
nothing reads followed by a 1x1 convolution: the cell that is returned is the cell that was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice, Node
from proxnas.core.groups import Group, Row
from proxnas.core.space import selected_edges
from proxnas.domains.images.networks.cnn import CellPlace, Preprocess, Size, Stack, cell_network
from proxnas.domains.images.operations import FINAL, SEARCHED, Parts, on_part_of_channels

INPUTS, NODES, SIDES = 2, 5, 2
OPERATIONS = ("sep_conv_3x3", "sep_conv_5x5", "avg_pool_3x3", "max_pool_3x3", "skip_connect")
SOURCES = [i for n in range(NODES) for _ in range(SIDES) for i in range(INPUTS + n)]
"""The state that each of the 40 rows reads: 0, 1, 0, 1 | 0, 1, 2, 0, 1, 2 | ..."""


def _sides() -> tuple[tuple[int, ...], ...]:
    # both sides of node n read its INPUTS + n predecessors
    sizes = [INPUTS + n for n in range(NODES) for _ in range(SIDES)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(
        tuple(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)
    )


GROUP = Group(OPERATIONS, _sides(), max_inputs=1)


@dataclass(frozen=True)
class Enas5:
    """Normal and reduction cells over the same five operations."""

    name: str = "enas5"
    part: int = 1
    """In the search candidates read one in so many channels."""

    @property
    def groups(self) -> Mapping[str, Group]:
        return {"normal": GROUP, "reduce": GROUP}

    def search_network(self, size: Size) -> nn.Module:
        return self._stack(size, on_part_of_channels(SEARCHED, self.part))

    def choice_network(self, size: Size) -> nn.Module:
        return self._stack(size, FINAL)

    @staticmethod
    def _stack(size: Size, parts: Parts) -> nn.Module:
        def build(place: CellPlace) -> tuple[nn.Module, int]:
            return (
                SearchCell("reduce" if place.reduction else "normal", place, parts),
                place.C * NODES,
            )

        return Stack(size, build, parts.norm)

    def genotype(self, A_bar: Matrices) -> Genotype:
        cells = {name: self._cell(A_bar[name]) for name in self.groups}
        return Genotype("cnn", cells, space=self.name)

    @staticmethod
    def _cell(A_bar: Tensor) -> Cell:
        sides = selected_edges(GROUP, A_bar.tolist(), SOURCES)
        # two sides of one edge each make a node of two edges
        nodes = tuple(tuple(sides[i] + sides[i + 1]) for i in range(0, len(sides), SIDES))
        return Cell(nodes, tuple(range(INPUTS, INPUTS + NODES)))

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return cell_network(genotype, size, searched)


class SearchCell(nn.Module):
    """A cell whose nodes are sums of two sides; the cells of one kind share their rows of A."""

    def __init__(self, group: str, place: CellPlace, parts: Parts) -> None:
        super().__init__()
        self.preprocess = Preprocess(place, parts.norm)
        self.sides = nn.ModuleList(
            Node([self._choice(Row(group, e), place, parts) for e in rows]) for rows in GROUP.nodes
        )

    @staticmethod
    def _choice(row: Row, place: CellPlace, parts: Parts) -> Choice:
        stride = 2 if place.reduction and SOURCES[row.edge] < INPUTS else 1
        return Choice({op: parts.operation(op, place.C, stride) for op in OPERATIONS}, share=row)

    def forward(self, before_last: Tensor, last: Tensor) -> Tensor:
        states: list[Tensor] = self.preprocess(before_last, last)
        sides = list(self.sides)
        for one, other in zip(sides[::SIDES], sides[1::SIDES], strict=True):
            states.append(one(states) + other(states))
        return torch.cat(states[INPUTS:], dim=1)
