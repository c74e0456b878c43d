"""The space `resnet`: a chain of residual stages in which every block chooses its kind.

Decisions are independent: a row of A for each entry and one for the bodies of each stage. So the
best network within a limit is found exactly, and any kind can be swapped for any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from proxnas.cells.genotype import Cell, Edge, Genotype
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice, Group, Row
from proxnas.core.space import selected_edges
from proxnas.domains.images.networks.chain import (
    BODIES,
    ENTRIES,
    MIDDLE,
    STAGES,
    Chain,
    chain_network,
)
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.operations import Norm, final_norm, search_norm

ROWS = tuple((stage,) for stage in range(STAGES))
"""A stage each: nodes with one edge."""
GROUPS = {
    "entry": Group(tuple(ENTRIES), ROWS, max_inputs=1),
    "body": Group(tuple(BODIES), ROWS, max_inputs=1),
}


@dataclass(frozen=True)
class ResNet:
    """Three stages; the bodies of a stage, `cells` of them, are of one kind."""

    name: str = "resnet"

    @property
    def groups(self) -> Mapping[str, Group]:
        return GROUPS

    def search_network(self, size: Size) -> nn.Module:
        return _choices(size, search_norm)

    def choice_network(self, size: Size) -> nn.Module:
        return _choices(size, final_norm)

    def genotype(self, A_bar: Matrices) -> Genotype:
        reads_input = [0] * STAGES
        chosen = {
            name: selected_edges(group, A_bar[name].tolist(), reads_input)
            for name, group in GROUPS.items()
        }
        nodes: list[tuple[Edge, ...]] = []
        for stage in range(STAGES):
            for name in GROUPS:
                edge = chosen[name][stage][0]
                nodes.append((edge._replace(input=len(nodes)),))
        return Genotype("chain", {"chain": Cell(tuple(nodes), (len(nodes),))}, space=self.name)

    def network(self, genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
        return chain_network(genotype, size, searched)


def middle() -> Matrices:
    """A_bar of the plain network: 3x3 convolutions everywhere."""
    A_bar = {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in GROUPS.items()}
    for (name, group), kind in zip(GROUPS.items(), MIDDLE, strict=True):
        A_bar[name][:, group.candidates.index(kind)] = 1.0
    return A_bar


def _choices(size: Size, norm: Norm) -> Chain:
    """The chain with all kinds as candidates of every block."""

    def entry(stage: int, C_in: int, C: int, stride: int) -> nn.Module:
        kinds = {name: make(C_in, C, stride, norm) for name, make in ENTRIES.items()}
        return Choice(kinds, share=Row("entry", stage))

    def body(stage: int, C: int) -> nn.Module:
        kinds = {name: make(C, norm) for name, make in BODIES.items()}
        return Choice(kinds, share=Row("body", stage))

    return Chain(size, entry, body)


def cut_out(chain: nn.Module, A_bar: Matrices, size: Size) -> Chain:
    """The discrete network that A_bar selects in a network of Choices, with its weights."""
    network = chain_network(ResNet().genotype(A_bar), size)
    blocks = list(chain.get_submodule("blocks").children())
    for mine, choice in zip(network.blocks, blocks, strict=True):
        assert isinstance(choice, Choice) and choice.row is not None
        k = int(A_bar[choice.row.group][choice.row.edge].argmax())
        mine.load_state_dict(choice.candidates[k].state_dict())
    network.classifier.load_state_dict(chain.get_submodule("classifier").state_dict())
    return network
