"""The space `mobile`: a chain of inverted residual blocks, each of a kind of its own.

Kernel 3, 5 or 7, expansion 3 or 6, with or without squeeze-and-excitation; behind the first of its
stage a block may also be skipped, so that the depth is searched too. Decisions are independent: the
best network within a limit is found exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from proxnas.cells.genotype import MOBILE_BLOCKS, MOBILE_FIRST, MOBILE_LATER, Cell, Edge, Genotype
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice, Group, Row
from proxnas.core.space import selected_edges
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.mobile import MIDDLE, Mobile, Place, kinds_of, mobile_network
from proxnas.domains.images.operations import Norm, final_norm, search_norm

STAGES = len(MOBILE_BLOCKS)
LATER = sum(MOBILE_BLOCKS) - STAGES
GROUPS = {
    "first": Group(MOBILE_FIRST, tuple((e,) for e in range(STAGES)), max_inputs=1),
    "later": Group(MOBILE_LATER, tuple((e,) for e in range(LATER)), max_inputs=1),
}
"""The blocks that begin a stage, and those behind them: nodes with one edge."""


@dataclass(frozen=True)
class MobileSpace:
    """Six stages of at most four blocks (the last: one)."""

    name: str = "mobile"

    @property
    def groups(self) -> Mapping[str, Group]:
        return GROUPS

    def search_network(self, size: Size) -> nn.Module:
        return _choices(size, search_norm)

    def choice_network(self, size: Size) -> nn.Module:
        return _choices(size, final_norm)

    def genotype(self, A_bar: Matrices) -> Genotype:
        chosen = {
            name: selected_edges(group, A_bar[name].tolist(), [0] * len(group.nodes))
            for name, group in GROUPS.items()
        }
        firsts, laters = iter(chosen["first"]), iter(chosen["later"])
        nodes: list[tuple[Edge, ...]] = []
        for blocks in MOBILE_BLOCKS:
            for place in range(blocks):
                edge = next(laters if place else firsts)[0]
                nodes.append((edge._replace(input=len(nodes)),))
        return Genotype("mobile", {"mobile": Cell(tuple(nodes), (len(nodes),))}, space=self.name)

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return mobile_network(genotype, size, searched)


def middle() -> Matrices:
    """A_bar of the plain network: MobileNetV2's kind of block everywhere."""
    A_bar = {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in GROUPS.items()}
    for name, group in GROUPS.items():
        A_bar[name][:, group.candidates.index(MIDDLE)] = 1.0
    return A_bar


def _choices(size: Size, norm: Norm) -> Mobile:
    """The chain with all kinds as candidates of every block."""

    def first(stage: int, place: Place) -> nn.Module:
        return Choice(kinds_of(MOBILE_FIRST, place, norm), share=Row("first", stage))

    def later(number: int, place: Place) -> nn.Module:
        return Choice(kinds_of(MOBILE_LATER, place, norm), share=Row("later", number))

    return Mobile(size, first, later, norm)
