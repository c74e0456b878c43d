"""Chains of inverted residual blocks (Sandler et al., 'MobileNetV2', CVPR 2018), as MnasNet and
ProxylessNAS search them.

A block widens its map by a 1x1 convolution, convolves each channel by itself and narrows the map
again by a 1x1 convolution without an activation; where its shape stays the same, its input is
added. Kinds of blocks are named by what they are made of:

    mb6_5x5_se    six times as many channels inside, kernel 5x5, squeeze-and-excitation
"""

# C channels, N images, H height, W width

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import MOBILE_BLOCKS, MOBILE_FIRST, SKIP
from proxnas.cells.parts import Edge
from proxnas.common.errors import OptionError
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.parts import DropPath, Scaled, SqueezeExcite
from proxnas.domains.images.operations import Norm, final_norm, search_norm, shuffled

WIDTHS = (1.5, 2.5, 5, 6, 12, 20)
"""Channels of the stages, in units of those of the first block: 24, 40, 80, 96, 192, 320 of 16."""
STEM_WIDTH, HEAD_WIDTH = 2, 80
STRIDES = {
    "imagenet": (2, (2, 2, 2, 1, 2, 1)),
    "tinyimagenet": (2, (1, 2, 2, 1, 2, 1)),
    "cifar": (1, (1, 2, 2, 1, 2, 1)),
}
"""Of the first convolution, and of the first block of each stage, by the stem: small images are
halved less often."""
SQUEEZE = 4
"""Channels of the block's input for each unit of squeeze-and-excitation, as in MnasNet."""


class Kind(NamedTuple):
    """What a block is made of."""

    expansion: int
    kernel: int
    excite: bool = False
    groups: int = 1
    """Of the 1x1 convolutions, whose channels are shuffled in between (FBNet)."""
    mixes: bool = False
    """Whether there is a first 1x1 convolution without expansion, too (FBNet)."""


def kind(name: str) -> Kind:
    """mb6_5x5_se -> its parts."""
    expansion, kernel, *excite = name.removeprefix("mb").split("_")
    return Kind(int(expansion), int(kernel[0]), excite == ["se"])


class Shuffle(nn.Module):
    """The channels of groups, one of each in turn."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        return shuffled(x, self.groups)


class InvertedResidual(nn.Module):
    """Widens, convolves channel by channel, narrows; adds its input where the shape is the same."""

    def __init__(self, kind: Kind, C_in: int, C: int, stride: int, norm: Norm) -> None:
        super().__init__()
        wide = C_in * kind.expansion
        layers: list[nn.Module] = []
        # with expansion 1 there is no first 1x1 convolution, as in MobileNetV2; FBNet may have it
        if kind.expansion > 1 or kind.mixes:
            layers += [_pointwise(C_in, wide, kind.groups), norm(wide), nn.ReLU6()]
        if kind.groups > 1:
            layers.append(Shuffle(kind.groups))
        depthwise = nn.Conv2d(
            wide, wide, kind.kernel, stride, kind.kernel // 2, groups=wide, bias=False
        )
        layers += [depthwise, norm(wide), nn.ReLU6()]
        if kind.excite:
            layers.append(SqueezeExcite(wide, max(1, C_in // SQUEEZE)))
        # linear: no activation on the narrow side (Sandler et al.)
        layers += [_pointwise(wide, C, kind.groups), norm(C)]
        self.f = nn.Sequential(*layers)
        self.adds = stride == 1 and C_in == C
        self.drop_path = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.f(x)
        return x + self.drop_path(y) if self.adds else y


def _pointwise(C_in: int, C: int, groups: int) -> nn.Conv2d:
    return nn.Conv2d(C_in, C, 1, groups=groups, bias=False)


class BlockPlace(NamedTuple):
    """Where a block stands: the channels that it reads and gives, and its stride."""

    C_in: int
    C: int
    stride: int


def places(size: Size) -> list[list[BlockPlace]]:
    """The blocks of every stage, after the first block of the network, which is not searched."""
    if size.cells != 1:
        advice = (
            "a mobile network has as many blocks as its search leaves in: leave it out, and choose"
            " its width by {channels}"
        )
        raise OptionError("cells", size.cells, advice)
    found = []
    C_in = size.channels
    for width, blocks, stride in zip(WIDTHS, MOBILE_BLOCKS, STRIDES[size.stem][1], strict=True):
        C = round(width * size.channels)
        first = BlockPlace(C_in, C, stride)
        found.append([first, *[BlockPlace(C, C, 1)] * (blocks - 1)])
        C_in = C
    return found


class Mobile(nn.Module):
    """A convolution, a block without expansion, the stages, a 1x1 convolution, the classifier.

    `first(stage, place)` and `later(number, place)` make the blocks: the one that begins a stage,
    and those behind it, which are numbered through all stages.
    """

    def __init__(
        self,
        size: Size,
        first: Callable[[int, BlockPlace], nn.Module],
        later: Callable[[int, BlockPlace], nn.Module],
        norm: Norm,
    ) -> None:
        super().__init__()
        C, wide = size.channels, STEM_WIDTH * size.channels
        stem = nn.Conv2d(size.image_channels, wide, 3, STRIDES[size.stem][0], 1, bias=False)
        begin = InvertedResidual(Kind(1, 3), wide, C, 1, norm)
        self.stem = nn.Sequential(stem, norm(wide), nn.ReLU6(), begin)
        self.blocks = nn.Sequential()
        stages = places(size)
        number = 0
        for stage, blocks in enumerate(stages):
            self.blocks.append(first(stage, blocks[0]))
            for place in blocks[1:]:
                self.blocks.append(later(number, place))
                number += 1
        last = HEAD_WIDTH * C
        self.head = nn.Sequential(_pointwise(stages[-1][-1].C, last, 1), norm(last), nn.ReLU6())
        self.classifier = nn.Linear(last, size.classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.head(self.blocks(self.stem(x))).mean((2, 3)))
        return logits


def make_block(name: str, place: BlockPlace, norm: Norm) -> nn.Module:
    """A block by the name of its kind."""
    if name == SKIP:
        return nn.Identity()
    return InvertedResidual(kind(name), place.C_in, place.C, place.stride, norm)


def mobile_network(genotype: Genotype, size: Size, searched: bool = False) -> Mobile:
    """The discrete network of a genotype; `searched`: normalised as in a search network."""
    norm = search_norm if searched else final_norm
    edges = [node[0] for node in genotype.cells["mobile"].nodes]
    # numbers of the blocks that begin a stage; the others are `later`, counted through
    begins = [sum(MOBILE_BLOCKS[:stage]) for stage in range(len(MOBILE_BLOCKS))]
    behind = [i for i in range(len(edges)) if i not in begins]

    def first(stage: int, place: BlockPlace) -> nn.Module:
        return _scale_block(edges[begins[stage]], place, norm)

    def later(number: int, place: BlockPlace) -> nn.Module:
        return _scale_block(edges[behind[number]], place, norm)

    return Mobile(size, first, later, norm)


def _scale_block(edge: Edge, place: BlockPlace, norm: Norm) -> nn.Module:
    block = make_block(edge.op, place, norm)
    return block if edge.value == 1 else Scaled(block, edge.value)


def kinds_of(names: Sequence[str], place: BlockPlace, norm: Norm) -> dict[str, nn.Module]:
    """All candidates of a block."""
    return {name: make_block(name, place, norm) for name in names}


MIDDLE = MOBILE_FIRST[1]
"""The kind of MobileNetV2's blocks, which stands for the plain network of the space."""
