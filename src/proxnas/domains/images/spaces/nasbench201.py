"""The space of NAS-Bench-201: one cell of four nodes and six edges, five operations, no limit on
inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice, Node
from proxnas.core.groups import NONE, Group, Row
from proxnas.core.space import selected_edges
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.nasbench201 import EDGES, NODES, Stages, nasbench201_network
from proxnas.domains.images.operations import (
    NASBENCH201,
    Norm,
    PartialChannels,
    Pure,
    final_norm,
    search_norm,
    usable_part,
)

GROUP = Group(tuple(NASBENCH201), nodes=((0,), (1, 2), (3, 4, 5)), max_inputs=None)


@dataclass(frozen=True)
class NasBench201:
    """All five operations on every edge; an edge may be `none`, a node may be empty."""

    name: str = "nasbench201"
    part: int = 1
    """In the search candidates read one in so many channels."""

    @property
    def groups(self) -> Mapping[str, Group]:
        return {"cell": GROUP}

    def search_network(self, size: Size) -> nn.Module:
        return Stages(size, lambda C: SearchCell(C, search_norm, self.part), search_norm)

    def choice_network(self, size: Size) -> nn.Module:
        return Stages(size, lambda C: SearchCell(C, final_norm), final_norm)

    def genotype(self, A_bar: Matrices) -> Genotype:
        chosen = selected_edges(GROUP, A_bar["cell"].tolist(), [i for i, _ in EDGES])
        nodes = tuple(tuple(_complete(edges, j)) for j, edges in enumerate(chosen, start=1))
        return Genotype("nasbench201", {"cell": Cell(nodes, (NODES - 1,))}, space=self.name)

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return nasbench201_network(genotype, size, searched)


def _complete(edges: list[Edge], node: int) -> list[Edge]:
    """A cell string names every edge: the absent ones are `none`."""
    present = {edge.input: edge for edge in edges}
    return [present.get(i, Edge(NONE, i)) for i in range(node)]


class SearchCell(nn.Module):
    """Four nodes whose every edge is a Choice."""

    def __init__(self, C: int, norm: Norm, part: int = 1) -> None:
        super().__init__()
        self.nodes = nn.ModuleList(
            Node([self._choice(e, C, norm, part) for e in rows]) for rows in GROUP.nodes
        )

    @staticmethod
    def _choice(e: int, C: int, norm: Norm, part: int) -> Choice:
        ops: dict[str, nn.Module] = {}
        # as far as the channels can be divided
        few = usable_part(part, C)
        for name, make in NASBENCH201.items():
            op = make(C // few, 1, norm)
            # as in the benchmark's own search code pooling is not normalised here
            op = Pure(name, op) if "pool" in name else op
            ops[name] = op if few == 1 else PartialChannels(op, few, 1)
        return Choice(ops, share=Row("cell", e))

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        for node in self.nodes:
            states.append(node(states))
        return states[-1]
