"""The network that single path one-shot found (Guo et al., 'Single Path One-Shot Neural
Architecture Search with Uniform Sampling', ECCV 2020): units of ShuffleNet v2, each of a kind of
its own.

A unit convolves half of the channels and lets the others pass, of which one goes to each side in
turn; the first of a stage convolves all of them on both sides. Kinds: a depthwise convolution of
3x3, 5x5 or 7x7 between two 1x1, or three depthwise 3x3, each before a 1x1 (Xception).
"""

# C channels

from __future__ import annotations

import torch
from torch import Tensor, nn

from proxnas.domains.images.networks.baselines import HandMade, conv
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.published_mobile import HALVED_LESS

XCEPTION = "x"
FIRST, LAST = 16, 1024
STAGES = ((64, "33x5"), (160, "5533"), (320, "73755373"), (640, "75x7"))
"""Channels, and the kinds of the units: as released by the authors."""


def depthwise(C: int, kernel: int, stride: int = 1) -> nn.Module:
    """A convolution of every channel by itself, and its normalisation."""
    return conv(C, C, kernel, stride, groups=C, relu=False)


def convolved_side(kind: str, C_in: int, C: int, inner: int, stride: int) -> nn.Module:
    """The side of a unit that is convolved."""
    if kind == XCEPTION:
        widths = ((C_in, inner, stride), (inner, inner, 1), (inner, C, 1))
        layers: list[nn.Module] = []
        for before, after, step in widths:
            layers += [depthwise(before, 3, step), conv(before, after)]
        return nn.Sequential(*layers)
    return nn.Sequential(conv(C_in, inner), depthwise(inner, int(kind), stride), conv(inner, C))


class Unit(nn.Module):
    """Half of the channels pass; in the first unit of a stage they are convolved, too."""

    def __init__(self, kind: str, C_in: int, C: int, stride: int, begins: bool) -> None:
        super().__init__()
        self.begins = begins
        passing = C_in if begins else C_in // 2
        self.convolved = convolved_side(kind, passing, C - passing, C // 2, stride)
        self.passed: nn.Module = nn.Identity()
        if begins:
            kernel = 3 if kind == XCEPTION else int(kind)
            self.passed = nn.Sequential(depthwise(C_in, kernel, stride), conv(C_in, C_in))

    def forward(self, x: Tensor) -> Tensor:
        # every other channel: this is the shuffle of ShuffleNet, done where it is read
        a, b = (x, x) if self.begins else (x[:, ::2], x[:, 1::2])
        return torch.cat([self.passed(a), self.convolved(b)], dim=1)


def spos(size: Size) -> HandMade:
    """The network for images of that size."""
    less = HALVED_LESS[size.stem]
    layers: list[nn.Module] = [conv(size.image_channels, FIRST, 3, 1 if less > 1 else 2)]
    C_in, unhalved = FIRST, less - (less > 1)
    for C, kinds in STAGES:
        stride = 1 if unhalved else 2
        unhalved = max(0, unhalved - 1)
        for number, kind in enumerate(kinds):
            layers.append(Unit(kind, C_in, C, 1 if number else stride, begins=not number))
            C_in = C
    layers.append(conv(C_in, LAST))
    return HandMade(nn.Sequential(*layers), LAST, size.classes, dropout=0.1)
