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
INPUT_SOURCES = list(range(INPUTS)) * NODES
"""The same where nodes read the inputs of the cell only: 0, 1 | 0, 1 | 0, 1 | 0, 1."""

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
    inputs_only: bool = False
    """Whether nodes read the inputs of their cell and no other node."""

    @property
    def sources(self) -> list[int]:
        """The state that each row reads."""
        return INPUT_SOURCES if self.inputs_only else SOURCES

    @property
    def groups(self) -> Mapping[str, Group]:
        # node n reads its INPUTS + n predecessors: rows 0, 1 | 2, 3, 4 | 5 .. 8 | 9 .. 13
        nodes, first = [], 0
        for n in range(NODES):
            following = first + INPUTS + (0 if self.inputs_only else n)
            nodes.append(tuple(range(first, following)))
            first = following
        return {
            "normal": Group(self.normal, tuple(nodes), max_inputs=2),
            "reduce": Group(self.reduce, tuple(nodes), max_inputs=2),
        }

    def search_network(self, size: Size) -> nn.Module:
        return self._stack(size, on_part_of_channels(SEARCHED, self.part))

    def choice_network(self, size: Size) -> nn.Module:
        return self._stack(size, FINAL)

    def _stack(self, size: Size, parts: Parts) -> nn.Module:
        def build(place: CellPlace) -> tuple[nn.Module, int]:
            group = "reduce" if place.reduction else "normal"
            cell = SearchCell(group, self.groups[group], place, self.sources, parts)
            return cell, place.C * NODES

        return Stack(size, build, parts.norm)

    def genotype(self, A_bar: Matrices) -> Genotype:
        concat = tuple(range(INPUTS, INPUTS + NODES))
        cells = {
            name: Cell(
                tuple(map(tuple, selected_edges(group, A_bar[name].tolist(), self.sources))), concat
            )
            for name, group in self.groups.items()
        }
        return Genotype("cnn", cells, space=self.name)

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return cell_network(genotype, size, searched)


class SearchCell(nn.Module):
    """A cell whose every edge is a Choice; the cells of one kind share their rows of A."""

    def __init__(
        self,
        name: str,
        group: Group,
        place: CellPlace,
        sources: Sequence[int],
        parts: Parts = SEARCHED,
    ) -> None:
        """`sources`: the state that each row reads."""
        super().__init__()
        self.preprocess = Preprocess(place, parts.norm)
        self.reads = [len(rows) for rows in group.nodes]
        """How many of the states before it each node has a choice for: the first ones."""
        self.nodes = nn.ModuleList()
        for rows in group.nodes:
            choices = []
            for e in rows:
                # states of a reduction cell are halved where they come from outside, once
                stride = 2 if place.reduction and sources[e] < INPUTS else 1
                kinds = {op: parts.operation(op, place.C, stride) for op in group.candidates}
                choices.append(Choice(kinds, share=Row(name, e)))
            self.nodes.append(Node(choices))

    def forward(self, before_last: Tensor, last: Tensor) -> Tensor:
        states: list[Tensor] = self.preprocess(before_last, last)
        for node, number in zip(self.nodes, self.reads, strict=True):
            states.append(node(states[:number]))
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
