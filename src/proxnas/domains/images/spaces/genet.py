"""The space of Genetic CNN (Xie, Yuille, ICCV 2017): a bit for each pair of nodes of a stage, which
says whether the later one reads the earlier one. Three stages of 3, 4 and 5 nodes have 19 bits.

While a search tries connections, nodes without any are computed too, though nothing reads them, so
that methods that go by gradients know what a connection to them would be worth.

How large a network is depends on which nodes have a connection at all (wired groups): limits on
parameters and multiply-adds are exact, those on seconds are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import GENET_STAGES
from proxnas.cells.parts import Cell, Edge
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice, Node
from proxnas.core.groups import NONE, SKIP, Group, Row
from proxnas.core.size.wiring import NODE
from proxnas.core.space import selected_edges
from proxnas.domains.images.networks.cnn import Size, sum_of
from proxnas.domains.images.networks.genet import Genet, convolutions, ends, genet_network
from proxnas.domains.images.operations import Zero, final_norm, search_norm


def _group(nodes: int) -> Group:
    # node j has a row for each of the j nodes before it: 0 | 1, 2 | 3, 4, 5 | ...
    starts = [j * (j - 1) // 2 for j in range(1, nodes)]
    rows = tuple(tuple(range(a, a + j)) for j, a in enumerate(starts, 1))
    return Group((NONE, SKIP), rows, wired=True)


GROUPS = {stage.name: _group(stage.nodes) for stage in GENET_STAGES}


@dataclass(frozen=True)
class GenetSpace:
    """Three stages; the first node of each has nothing to choose."""

    name: str = "genet"

    @property
    def groups(self) -> Mapping[str, Group]:
        return GROUPS

    def search_network(self, size: Size) -> nn.Module:
        def stage(s: int, C_in: int, C: int, stride: int) -> nn.Module:
            return SearchStage(GENET_STAGES[s].name, C_in, C, size.cells, stride)

        return Genet(size, stage)

    def choice_network(self, size: Size) -> nn.Module:
        def stage(s: int, C_in: int, C: int, stride: int) -> nn.Module:
            return CountedStage(s, C_in, C, size.cells, stride)

        return Genet(size, stage)

    def genotype(self, A_bar: Matrices) -> Genotype:
        cells = {}
        for name, group in GROUPS.items():
            sources = [i for rows in group.nodes for i in range(len(rows))]
            chosen = selected_edges(group, A_bar[name].tolist(), sources)
            nodes = tuple(
                _complete(edges, len(rows)) for edges, rows in zip(chosen, group.nodes, strict=True)
            )
            cells[name] = Cell(nodes, tuple(range(len(nodes) + 1)))
        return Genotype("genet", cells, space=self.name)

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return genet_network(genotype, size, searched)


class SearchStage(nn.Module):
    """A stage whose connections are Choices."""

    def __init__(self, name: str, C_in: int, C: int, number: int, stride: int) -> None:
        super().__init__()
        self.begin = convolutions(C_in, C, 1, search_norm, stride)
        rows = GROUPS[name].nodes
        self.nodes = nn.ModuleList(
            convolutions(C, C, number, search_norm) for _ in range(len(rows) + 1)
        )
        self.sums = nn.ModuleList(Node([_bit(Row(name, e)) for e in of]) for of in rows)
        self.end = convolutions(C, C, 1, search_norm)

    def forward(self, x: Tensor) -> Tensor:
        begin = self.begin(x)
        states: list[Tensor] = [self.nodes[0](begin)]
        read: list[list[tuple[int, float]]] = [[]]
        for conv, node in zip(self.nodes[1:], self.sums, strict=True):
            choices = cast("list[Choice]", list(node.get_submodule("choices").children()))
            read.append([(i, 1.0) for i, bit in enumerate(choices) if bit.active()])
            summed: Tensor = node(states)
            # a sum of nothing is 0, but what it would become is known
            states.append(conv(summed if read[-1] else begin + summed))
        last = ends(read)
        y: Tensor = self.end(sum_of([states[j] for j in last]) if last else begin)
        return y


class CountedStage(nn.Module):
    """A stage whose nodes are there or not, whatever connects them: what each adds."""

    def __init__(self, s: int, C_in: int, C: int, number: int, stride: int) -> None:
        super().__init__()
        name, nodes = GENET_STAGES[s]
        self.begin = convolutions(C_in, C, 1, final_norm, stride)
        self.nodes = nn.ModuleList(
            Choice(
                {NONE: Zero(1), NODE: convolutions(C, C, number, final_norm)}, share=Row(name, n)
            )
            for n in range(nodes)
        )
        self.end = convolutions(C, C, 1, final_norm)

    def forward(self, x: Tensor) -> Tensor:
        begin = self.begin(x)
        y: Tensor = self.end(sum_of([node(begin) for node in self.nodes]))
        return y


def _bit(row: Row) -> Choice:
    return Choice({NONE: Zero(1), SKIP: nn.Identity()}, share=row)


def _complete(edges: list[Edge], inputs: int) -> tuple[Edge, ...]:
    """All connections from earlier nodes are named: the absent ones are `none`."""
    present = {edge.input: edge for edge in edges}
    return tuple(present.get(i, Edge(NONE, i)) for i in range(inputs))
