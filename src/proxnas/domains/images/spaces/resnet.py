"""The space `resnet`: a chain of residual stages in which every block chooses its kind.

A row of A for each entry and one for the bodies of each stage.
"""

from __future__ import annotations

from torch import nn

from proxnas.common.types import Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import Row
from proxnas.domains.images.networks.chain import (
    BODIES,
    ENTRIES,
    MIDDLE,
    STAGES,
    Chain,
    chain_network,
)
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.operations import Norm
from proxnas.domains.images.spaces.chains import ChainSpace, all_of_kind, one_edge_each

GROUPS = {
    "entry": one_edge_each(tuple(ENTRIES), STAGES),
    "body": one_edge_each(tuple(BODIES), STAGES),
}


def resnet() -> ChainSpace:
    """Three stages; the bodies of a stage, `cells` of them, are of one kind."""
    return ChainSpace("resnet", "chain", GROUPS, tuple(GROUPS) * STAGES, _choices, chain_network)


def middle() -> Matrices:
    """A_bar of the plain network: 3x3 convolutions everywhere."""
    return all_of_kind(GROUPS, dict(zip(GROUPS, MIDDLE, strict=True)))


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
    network = chain_network(resnet().genotype(A_bar), size)
    blocks = list(chain.get_submodule("blocks").children())
    for mine, choice in zip(network.blocks, blocks, strict=True):
        assert isinstance(choice, Choice) and choice.row is not None
        k = int(A_bar[choice.row.group][choice.row.edge].argmax())
        # names within a block are the same in both networks
        mine.load_state_dict(choice.candidates[k].state_dict())
    network.classifier.load_state_dict(chain.get_submodule("classifier").state_dict())
    return network
