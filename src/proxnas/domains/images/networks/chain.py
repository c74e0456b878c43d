"""A chain of residual stages, as fast to train on a CPU as a network of its size can be.

A stage is an entry, which doubles the channels and halves the map, and residual blocks, which keep
both. Convolutions are followed by a normalisation each, so that their weights may have any norm.

    entry     convolution, max pooling, normalisation, ReLU
    body      x + ReLU(f(x)) with one 3x3 convolution; or ReLU(x + f(x)) with several: 3x3 or 5x5,
              grouped, separable, a bottleneck, with or without squeeze-and-excitation; or x itself
"""

# C channels, H height, W width of a map

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Edge
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.parts import DropPath, Scaled, SqueezeExcite
from proxnas.domains.images.operations import Norm, final_norm, search_norm

STAGES = 3
SMALLEST_MAP = 4
"""Shorter side of the smallest map that is still halved."""
SQUEEZE = 4
"""Channels for each unit of squeeze-and-excitation."""
GROUPS = 4
STRIDES = {"cifar": 1, "tinyimagenet": 2, "imagenet": 4}
"""Of the first convolution, by the stem: larger images are made smaller at once."""

Entry = Callable[[int, int, int, Norm], nn.Module]
"""Makes an entry of (C_in, C, stride, norm)."""
Body = Callable[[int, Norm], nn.Module]
"""Makes a block of C channels."""


class Halve(nn.Module):
    """Max pooling; a map that is small already stays as it is."""

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[2:]) < SMALLEST_MAP:
            return x
        return nn.functional.max_pool2d(x, 2, ceil_mode=True)


class Residual(nn.Module):
    """ReLU(x + f(x))."""

    def __init__(self, *f: nn.Module) -> None:
        super().__init__()
        self.f = nn.Sequential(*f)
        self.drop_path = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(x + self.drop_path(self.f(x)))


def conv(C_in: int, C: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """A convolution that keeps the map, but for its stride."""
    return nn.Conv2d(C_in, C, kernel, stride, kernel // 2, groups=groups, bias=False)


def full_entry(kernel: int) -> Entry:
    """One convolution over all channels."""
    return lambda C_in, C, stride, norm: nn.Sequential(
        conv(C_in, C, kernel, stride), Halve(), norm(C), nn.ReLU()
    )


def separable_entry(kernel: int) -> Entry:
    """A depthwise convolution, then a 1x1."""
    return lambda C_in, C, stride, norm: nn.Sequential(
        conv(C_in, C_in, kernel, stride, C_in), conv(C_in, C, 1), Halve(), norm(C), nn.ReLU()
    )


class Plus(Residual):
    """x + f(x), where f ends with its own ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.drop_path(self.f(x))
        return added


def one(C: int, norm: Norm) -> nn.Module:
    """One 3x3 convolution."""
    return Plus(conv(C, C, 3), norm(C), nn.ReLU())


def pair(kernel: int, excite: bool = False) -> Body:
    """Two convolutions."""

    def build(C: int, norm: Norm) -> nn.Module:
        # the last ReLU comes after the addition
        first = [conv(C, C, kernel), norm(C), nn.ReLU()]
        second = [conv(C, C, kernel), norm(C)]
        return Residual(
            *first, *second, *([SqueezeExcite(C, max(4, C // SQUEEZE))] if excite else [])
        )

    return build


def grouped_conv(C: int, norm: Norm) -> nn.Module:
    """A 3x3 convolution in groups of channels, which a 1x1 mixes."""
    # as many as divide C, at most GROUPS
    groups = math.gcd(C, GROUPS)
    first = [conv(C, C, 3, groups=groups), norm(C), nn.ReLU()]
    return Residual(*first, conv(C, C, 1), norm(C))


def separable(C: int, norm: Norm) -> nn.Module:
    """Two depthwise convolutions, each with a 1x1."""
    first = [conv(C, C, 3, groups=C), conv(C, C, 1), norm(C), nn.ReLU()]
    return Residual(*first, conv(C, C, 3, groups=C), conv(C, C, 1), norm(C))


def bottleneck(narrow: int, excite: bool = False) -> Body:
    """A 3x3 convolution at a share of the channels, between two 1x1."""

    def build(C: int, norm: Norm) -> nn.Module:
        few = max(4, C // narrow)
        down = [conv(C, few, 1), norm(few), nn.ReLU()]
        middle = [conv(few, few, 3), norm(few), nn.ReLU()]
        up = [
            conv(few, C, 1),
            norm(C),
            *([SqueezeExcite(C, max(4, C // SQUEEZE))] if excite else []),
        ]
        return Residual(*down, *middle, *up)

    return build


def skip(C: int, norm: Norm) -> nn.Module:
    """The map itself."""
    return nn.Identity()


ENTRIES: dict[str, Entry] = {
    "conv_3x3": full_entry(3),
    "conv_5x5": full_entry(5),
    "sep_conv_3x3": separable_entry(3),
    "sep_conv_5x5": separable_entry(5),
}
BODIES: dict[str, Body] = {
    "res_one_3x3": one,
    "res_3x3": pair(3),
    "res_3x3_se": pair(3, excite=True),
    "res_5x5": pair(5),
    "res_group_3x3": grouped_conv,
    "res_sep_3x3": separable,
    "bottleneck_2": bottleneck(2),
    "bottleneck_2_se": bottleneck(2, excite=True),
    "bottleneck_4": bottleneck(4),
    "skip_connect": skip,
}
MIDDLE = ("conv_3x3", "res_one_3x3")
"""Entry and body of the plain network, which stands in the middle of the space."""


class Chain(nn.Module):
    """Stages of C, 2C, 4C channels, the mean over the map, a linear classifier.

    `entry(stage, C_in, C, stride)` and `body(stage, C)` make the blocks; a stage has `size.cells`
    bodies, all of one kind.
    """

    def __init__(
        self,
        size: Size,
        entry: Callable[[int, int, int, int], nn.Module],
        body: Callable[[int, int], nn.Module],
    ) -> None:
        super().__init__()
        self.mirror = size.mirror
        self.blocks = nn.Sequential()
        C_in = size.image_channels
        for stage in range(STAGES):
            # only the first convolution has a stride of its own: entries halve by pooling
            C = size.channels * 2**stage
            self.blocks.append(entry(stage, C_in, C, 1 if stage else STRIDES[size.stem]))
            self.blocks.extend(body(stage, C) for _ in range(size.cells))
            C_in = C
        self.classifier = nn.Linear(C_in, size.classes)

    def forward(self, x: Tensor) -> Tensor:
        # the mean of both logits, in the network itself: exported files do the same
        if self.mirror and not self.training:
            return (self._logits(x) + self._logits(x.flip(3))) / 2
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.blocks(x).mean((2, 3)))
        return logits


def chain_network(genotype: Genotype, size: Size, searched: bool = False) -> Chain:
    """The discrete network of a chain; `searched`: normalised as in a search network."""
    norm = search_norm if searched else final_norm
    edges = [node[0] for node in genotype.cells["chain"].nodes]

    def entry(stage: int, C_in: int, C: int, stride: int) -> nn.Module:
        edge = edges[2 * stage]
        return _scale_block(ENTRIES[edge.op](C_in, C, stride, norm), edge)

    def body(stage: int, C: int) -> nn.Module:
        edge = edges[2 * stage + 1]
        return _scale_block(BODIES[edge.op](C, norm), edge)

    return Chain(size, entry, body)


def _scale_block(block: nn.Module, edge: Edge) -> nn.Module:
    return block if edge.value == 1 else Scaled(block, edge.value)
