"""Networks made by hand whose maps part and come together again: GoogLeNet, ShuffleNet v2,
DenseNet-BC."""

# C channels, N images, H height, W width; k: growth of a dense block

from __future__ import annotations

import torch
from torch import Tensor, nn

from proxnas.domains.images.networks.baselines import HandMade, conv, form, halving, stem
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.operations import shuffled


class Inception(nn.Module):
    """Four branches side by side: 1x1, twice 3x3, and pooling.

    The third branch has 3x3 where the paper has 5x5, as in the widely used implementation with
    batch norm.
    """

    def __init__(
        self, C_in: int, C1: int, reduced3: int, C3: int, reduced5: int, C5: int, C_pool: int
    ) -> None:
        super().__init__()
        pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.branches = nn.ModuleList(
            [
                conv(C_in, C1),
                nn.Sequential(conv(C_in, reduced3), conv(reduced3, C3, 3)),
                nn.Sequential(conv(C_in, reduced5), conv(reduced5, C5, 3)),
                nn.Sequential(pool, conv(C_in, C_pool)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


STAGES = (
    ((192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64)),
    (
        (480, 192, 96, 208, 16, 48, 64),
        (512, 160, 112, 224, 24, 64, 64),
        (512, 128, 128, 256, 24, 64, 64),
        (512, 112, 144, 288, 32, 64, 64),
        (528, 256, 160, 320, 32, 128, 128),
    ),
    ((832, 256, 160, 320, 32, 128, 128), (832, 384, 192, 384, 48, 128, 128)),
)
"""The nine modules of GoogLeNet: channels in, 1x1, before 3x3, 3x3, before 5x5, 5x5, after
pooling."""


def googlenet(size: Size) -> HandMade:
    """Inception-v1: Szegedy et al., 'Going Deeper with Convolutions', CVPR 2015; batch norm, no
    side classifiers."""
    layers = [*stem(size.image_channels, 64, form(size.stem)), conv(64, 64), conv(64, 192, 3)]
    for modules in STAGES:
        layers += [halving(), *(Inception(*channels) for channels in modules)]
    return HandMade(nn.Sequential(*layers), 1024, size.classes, dropout=0.4)


class Shuffled(nn.Module):
    """Half of the channels pass, half are convolved; with stride 2 all go both ways. Then both are
    shuffled."""

    def __init__(self, C_in: int, C: int, stride: int) -> None:
        super().__init__()
        half, self.halves = C // 2, stride == 1
        begin = half if self.halves else C_in
        self.passed: nn.Module = nn.Identity()
        if not self.halves:
            self.passed = nn.Sequential(
                conv(C_in, C_in, 3, 2, groups=C_in, relu=False), conv(C_in, half)
            )
        depthwise = conv(half, half, 3, stride, groups=half, relu=False)
        self.convolved = nn.Sequential(conv(begin, half), depthwise, conv(half, half))

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=1) if self.halves else (x, x)
        return shuffled(torch.cat([self.passed(a), self.convolved(b)], dim=1), 2)


def _shufflenet(size: Size, widths: tuple[int, int, int], last: int) -> HandMade:
    layers, C_in = stem(size.image_channels, 24, form(size.stem), kernel=3), 24
    for C, units in zip(widths, (4, 8, 4), strict=True):
        layers += [Shuffled(C_in, C, 2), *(Shuffled(C, C, 1) for _ in range(units - 1))]
        C_in = C
    return HandMade(nn.Sequential(*layers, conv(C_in, last)), last, size.classes)


def shufflenet(size: Size) -> HandMade:
    """Ma, Zhang, Zheng, Sun, 'ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture
    Design', ECCV 2018."""
    return _shufflenet(size, (116, 232, 464), 1024)


def shufflenet_2x(size: Size) -> HandMade:
    """The same, 2x: the row of the paper's ImageNet table."""
    return _shufflenet(size, (244, 488, 976), 2048)


class Dense(nn.Module):
    """Puts k new channels after those that it reads."""

    def __init__(self, C: int, k: int) -> None:
        super().__init__()
        self.new = nn.Sequential(*before(C, 4 * k, 1), *before(4 * k, k, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.new(x)], dim=1)


def before(C_in: int, C: int, kernel: int) -> list[nn.Module]:
    """Batch norm and ReLU, then a convolution."""
    return [
        nn.BatchNorm2d(C_in),
        nn.ReLU(),
        nn.Conv2d(C_in, C, kernel, padding=kernel // 2, bias=False),
    ]


def densenet(size: Size, depth: int = 190, k: int = 40) -> HandMade:
    """Huang, Liu, van der Maaten, Weinberger, 'Densely Connected Convolutional Networks', CVPR
    2017: DenseNet-BC.

    Three dense blocks, between which channels and map are halved.
    """
    C = 2 * k
    begin = form(size.stem)
    first = nn.Conv2d(
        size.image_channels, C, begin.kernel, begin.stride, begin.kernel // 2, bias=False
    )
    layers: list[nn.Module] = [first, *([halving()] if begin.pool else [])]
    for block in range(3):
        if block:
            # theta = 0.5 of DenseNet-BC: half of the channels go on
            half = nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)
            layers += [*before(C, C // 2, 1), half]
            C //= 2
        # depth = 4 + 3 blocks of n layers of two convolutions each
        for _ in range((depth - 4) // 6):
            layers.append(Dense(C, k))
            C += k
    return HandMade(nn.Sequential(*layers, nn.BatchNorm2d(C), nn.ReLU()), C, size.classes)
