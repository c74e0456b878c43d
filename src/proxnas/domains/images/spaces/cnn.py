"""The cell spaces of DARTS and of the paper: two input states, four nodes, each reading all states
before it.

darts7       the seven DARTS operations, split as the paper: normal cell identity and convolutions,
reduction cell
             identity and pooling
darts8       all of DARTS' operations with `none` in both cells, as DARTS itself searches
nasp12       the paper's twelve operations (Appendix B.3), split likewise
nasp12-full  all twelve in both cells
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

INPUTS, NODES = 2, 4
SOURCES = [i for n in range(NODES) for i in range(INPUTS + n)]
"""The state that each of the 14 rows reads: 0, 1 | 0, 1, 2 | 0, 1, 2, 3 | 0, 1, 2, 3, 4."""

DARTS_CONVOLUTIONS = ("sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5")
DARTS_POOLING = ("max_pool_3x3", "avg_pool_3x3")
PAPER_CONVOLUTIONS = (
    "conv_3x1_1x3",
    "dil_conv_3x3",
    "conv_1x1",
    "conv_3x3",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "sep_conv_7x7",
)
PAPER_POOLING = ("avg_pool_3x3", "max_pool_3x3", "max_pool_5x5", "max_pool_7x7")

BENCH_ORDER = (
    *("skip_connect", "sep_conv_3x3", "dil_conv_3x3", "max_pool_3x3"),
    *("sep_conv_5x5", "dil_conv_5x5", "avg_pool_3x3", "conv_1x1"),
    *("conv_3x3", "conv_3x1_1x3", "sep_conv_7x7", "max_pool_5x5"),
    *("max_pool_7x7", "conv_7x1_1x7", "conv_5x5", "dil_sep_conv_5x5"),
)
"""The order in which `bench --candidates N` adds operations."""


@dataclass(frozen=True)
class CellSpace:
    """Normal and reduction cells over given candidates."""

    name: str
    normal: tuple[str, ...]
    reduce: tuple[str, ...]
    part: int = 1
    """In the search candidates read one in so many channels."""

    @property
    def groups(self) -> Mapping[str, Group]:
        # node n reads its INPUTS + n predecessors: rows 0, 1 | 2, 3, 4 | 5 .. 8 | 9 .. 13
        starts = [sum(INPUTS + m for m in range(n)) for n in range(NODES)]
        nodes = tuple(tuple(range(start, start + INPUTS + n)) for n, start in enumerate(starts))
        return {
            "normal": Group(self.normal, nodes, max_inputs=2),
            "reduce": Group(self.reduce, nodes, max_inputs=2),
        }

    def search_network(self, size: Size) -> nn.Module:
        return self._stack(size, on_part_of_channels(SEARCHED, self.part))

    def choice_network(self, size: Size) -> nn.Module:
        return self._stack(size, FINAL)

    def _stack(self, size: Size, parts: Parts) -> nn.Module:
        def build(place: CellPlace) -> tuple[nn.Module, int]:
            group = "reduce" if place.reduction else "normal"
            return SearchCell(group, self.groups[group], place, parts), place.C * NODES

        return Stack(size, build, parts.norm)

    def genotype(self, A_bar: Matrices) -> Genotype:
        concat = tuple(range(INPUTS, INPUTS + NODES))
        cells = {
            name: Cell(
                tuple(map(tuple, selected_edges(group, A_bar[name].tolist(), SOURCES))), concat
            )
            for name, group in self.groups.items()
        }
        return Genotype("cnn", cells, space=self.name)

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return cell_network(genotype, size, searched)


class SearchCell(nn.Module):
    """A cell whose every edge is a Choice; the cells of one kind share their rows of A."""

    def __init__(self, name: str, group: Group, place: CellPlace, parts: Parts = SEARCHED) -> None:
        super().__init__()
        self.preprocess = Preprocess(place, parts.norm)
        self.nodes = nn.ModuleList(
            Node([self._choice(Row(name, e), group.candidates, place, parts) for e in rows])
            for rows in group.nodes
        )

    @staticmethod
    def _choice(row: Row, candidates: Sequence[str], place: CellPlace, parts: Parts) -> Choice:
        # states of a reduction cell are halved where they come from outside, once
        stride = 2 if place.reduction and SOURCES[row.edge] < INPUTS else 1
        return Choice({op: parts.operation(op, place.C, stride) for op in candidates}, share=row)

    def forward(self, before_last: Tensor, last: Tensor) -> Tensor:
        states: list[Tensor] = self.preprocess(before_last, last)
        for node in self.nodes:
            states.append(node(states))
        # (N, 4 C, H, W)
        return torch.cat(states[INPUTS:], dim=1)


def _space_of(name: str, convolutions: tuple[str, ...], pooling: tuple[str, ...]) -> CellSpace:
    return CellSpace(name, ("skip_connect", *convolutions), ("skip_connect", *pooling))


def _full(name: str, candidates: tuple[str, ...]) -> CellSpace:
    return CellSpace(name, candidates, candidates)


def darts7() -> CellSpace:
    """Seven operations, split."""
    return _space_of("darts7", DARTS_CONVOLUTIONS, DARTS_POOLING)


def darts8() -> CellSpace:
    """DARTS' own eight in both cells."""
    return _full("darts8", ("none", *DARTS_POOLING, "skip_connect", *DARTS_CONVOLUTIONS))


def nasp12() -> CellSpace:
    """The paper's twelve, split: eight in the normal cell, five in the reduction cell."""
    return _space_of("nasp12", PAPER_CONVOLUTIONS, PAPER_POOLING)


def nasp12_full() -> CellSpace:
    """The paper's twelve in both cells."""
    return _full("nasp12-full", ("skip_connect", *PAPER_CONVOLUTIONS, *PAPER_POOLING))


def first_candidates(number: int) -> CellSpace:
    """The first so many operations of BENCH_ORDER in both cells: how cost grows with candidates."""
    return _full(f"first{number}", BENCH_ORDER[:number])
