"""Spaces of chains: every block reads the one before it and chooses its kind.

Decisions are independent: a node with one edge each. So the best network within a limit is found
exactly, and any kind can be swapped for any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.common.types import Matrices
from proxnas.core.groups import Group
from proxnas.core.space import selected_edges
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.operations import Norm, final_norm, search_norm


@dataclass(frozen=True)
class ChainSpace:
    """A chain whose blocks are the rows of some groups."""

    name: str
    kind: str
    """Of its genotypes."""
    groups: Mapping[str, Group]
    order: tuple[str, ...]
    """Block by block the group that its row is of; each takes the next row of it."""
    choices: Callable[[Size, Norm], nn.Module]
    """The chain with all kinds as candidates of every block."""
    build: Callable[[Genotype, Size, bool], nn.Module]
    """The chain of a genotype."""

    def search_network(self, size: Size) -> nn.Module:
        return self.choices(size, search_norm)

    def choice_network(self, size: Size) -> nn.Module:
        return self.choices(size, final_norm)

    def genotype(self, A_bar: Matrices) -> Genotype:
        # group -> the edges of its rows, in order: each block takes the next one of its group
        left = {}
        for name, group in self.groups.items():
            reads_input = [0] * len(group.nodes)
            left[name] = iter(selected_edges(group, A_bar[name].tolist(), reads_input))
        nodes: list[tuple[Edge, ...]] = []
        for name in self.order:
            edge = next(left[name])[0]
            # block b reads state b, which block b - 1 made (state 0: what the chain reads)
            nodes.append((edge._replace(input=len(nodes)),))
        cell = Cell(tuple(nodes), (len(nodes),))
        return Genotype(self.kind, {self.kind: cell}, space=self.name)

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return self.build(genotype, size, searched)


def one_edge_each(candidates: tuple[str, ...], blocks: int) -> Group:
    """A group of so many blocks: nodes with one edge."""
    return Group(candidates, tuple((e,) for e in range(blocks)), max_inputs=1)


def all_of_kind(groups: Mapping[str, Group], kinds: Mapping[str, str]) -> Matrices:
    """A_bar of the network whose blocks are all of one kind a group."""
    A_bar = {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in groups.items()}
    for name, group in groups.items():
        A_bar[name][:, group.candidates.index(kinds[name])] = 1.0
    return A_bar
