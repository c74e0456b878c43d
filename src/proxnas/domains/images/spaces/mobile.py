"""The space `mobile`: a chain of inverted residual blocks, each of a kind of its own.

Kernel 3, 5 or 7, expansion 3 or 6, with or without squeeze-and-excitation; behind the first of its
stage a block may also be skipped, so that the depth is searched too.
"""

from __future__ import annotations

from torch import nn

from proxnas.cells.kinds import MOBILE_BLOCKS, MOBILE_FIRST, MOBILE_LATER
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import Row
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.mobile import (
    MIDDLE,
    BlockPlace,
    Mobile,
    kinds_of,
    mobile_network,
)
from proxnas.domains.images.operations import Norm
from proxnas.domains.images.spaces.chains import ChainSpace, all_of_kind, one_edge_each

STAGES = len(MOBILE_BLOCKS)
LATER = sum(MOBILE_BLOCKS) - STAGES
GROUPS = {"first": one_edge_each(MOBILE_FIRST, STAGES), "later": one_edge_each(MOBILE_LATER, LATER)}
"""The blocks that begin a stage, and those behind them."""
ORDER = tuple("later" if i else "first" for blocks in MOBILE_BLOCKS for i in range(blocks))


def mobile() -> ChainSpace:
    """Six stages of at most four blocks (the last: one)."""
    return ChainSpace("mobile", "mobile", GROUPS, ORDER, _choices, mobile_network)


def middle() -> Matrices:
    """A_bar of the plain network: MobileNetV2's kind of block everywhere."""
    return all_of_kind(GROUPS, dict.fromkeys(GROUPS, MIDDLE))


def _choices(size: Size, norm: Norm) -> Mobile:
    """The chain with all kinds as candidates of every block."""

    def first(stage: int, place: BlockPlace) -> nn.Module:
        return Choice(kinds_of(MOBILE_FIRST, place, norm), share=Row("first", stage))

    def later(number: int, place: BlockPlace) -> nn.Module:
        return Choice(kinds_of(MOBILE_LATER, place, norm), share=Row("later", number))

    return Mobile(size, first, later, norm)
