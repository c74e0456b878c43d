"""Candidates that read one in several channels, as PC-DARTS searches."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.operations import (
    SEARCHED,
    PartialChannels,
    on_part_of_channels,
    usable_part,
)
from proxnas.domains.images.spaces.cnn import darts7


class Negate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -x


def test_one_in_four_channels_is_read_and_all_are_shuffled() -> None:
    x = torch.arange(1.0, 9.0).view(1, 8, 1, 1).expand(1, 8, 2, 2)
    y = PartialChannels(Negate(), 4, 1)(x)[0, :, 0, 0]
    assert y.tolist() == [-1, 3, 5, 7, -2, 4, 6, 8]


@pytest.mark.parametrize("side", [6, 7])
def test_what_passes_by_is_halved_too(side: int) -> None:
    x = torch.randn(2, 8, side, side)
    halving = nn.Conv2d(2, 2, 3, stride=2, padding=1)
    y = PartialChannels(halving, 4, 2)(x)
    assert y.shape == (2, 8, -(-side // 2), -(-side // 2))
    assert torch.equal(y[:, 1], nn.functional.max_pool2d(x[:, 2:3], 2, ceil_mode=True)[:, 0])


def test_a_search_network_of_parts_is_smaller_and_gives_the_same_shapes() -> None:
    whole = darts7()
    part = dataclasses.replace(whole, part=4)
    size = Size(3, 8, 3, 5)
    networks = [space.search_network(size) for space in (whole, part)]
    counts = [sum(w.numel() for w in network.parameters()) for network in networks]
    assert counts[1] < 0.5 * counts[0]
    assert part.groups == whole.groups
    kinds = {type(m).__name__ for m in networks[1].modules()}
    assert "PartialChannels" in kinds
    with torch.device("meta"):  # what is kept has all channels
        final = [space.choice_network(size) for space in (whole, part)]
    assert len({sum(w.numel() for w in network.parameters()) for network in final}) == 1


@pytest.mark.parametrize(
    ("C", "part"), [(1, 1), (2, 1), (4, 2), (5, 1), (6, 2), (8, 4), (12, 4), (16, 4)]
)
def test_channels_are_parted_as_far_as_they_can_be(C: int, part: int) -> None:
    """What divides four and C, and leaves two channels at least."""
    assert usable_part(4, C) == part
    made = on_part_of_channels(SEARCHED, 4).operation("sep_conv_3x3", C, 1)
    assert isinstance(made, PartialChannels) == (part > 1)
    assert made(torch.randn(2, C, 5, 5)).shape == (2, C, 5, 5)
