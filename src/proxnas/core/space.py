"""What a search space is: groups of rows, a search network, and the final network of a genotype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from torch import nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Edge
from proxnas.common.errors import AboutOptions
from proxnas.common.types import Matrices
from proxnas.core.groups import Group

Size = TypeVar("Size", contravariant=True)
"""How large its networks are, in the terms of its domain."""


class Space(Protocol[Size]):
    """A family of networks that A_bar chooses from."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> Mapping[str, Group]: ...

    def search_network(self, size: Size) -> nn.Module:
        """The network of Choices that is trained during the search."""

    def choice_network(self, size: Size) -> nn.Module | None:
        """The final network with all candidates as Choices, or all nodes of wired groups: for
        counting what each would add. None: no Choices, or sizes that are no sums."""

    def genotype(self, A_bar: Matrices) -> Genotype:
        """The cell that A_bar selects."""

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        """The discrete network of a genotype; `searched`: normalised as in the search network."""


class NoSums(AboutOptions):
    """What goes by sums of sizes is asked for where sizes are none."""

    def __init__(self, space: str) -> None:
        super().__init__(
            f"{{space}} {space}: the sizes of its networks are no sums over decisions: leave limits"
            " and costs out"
        )


class NoSumsOfSeconds(AboutOptions):
    """The same of seconds, where the other sizes are known."""

    def __init__(self, space: str) -> None:
        super().__init__(
            f"{{space}} {space}: the seconds of its networks are no sums over decisions: limit"
            " {max_params} or {max_flops}"
        )


def selected_edges(group: Group, A_bar: list[list[float]], sources: list[int]) -> list[list[Edge]]:
    """Node by node the edges with a non-zero entry; sources[e] is the state that row e reads."""
    nodes = []
    for rows in group.nodes:
        edges = []
        for e in rows:
            for k, a in enumerate(A_bar[e]):
                if a:
                    # the entry stays with its edge: value 1, or a_k
                    edges.append(Edge(group.candidates[k], sources[e], a))
        nodes.append(edges)
    return nodes
