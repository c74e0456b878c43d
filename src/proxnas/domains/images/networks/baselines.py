"""Networks made by hand: what all of them share, and those that are one chain (ResNet-18,
MobileNet).

None has an auxiliary tower or paths to drop. The stem decides how often an image is halved:

    imagenet      as published, for 224 x 224
    tinyimagenet  once less: the pooling after the first convolution (or the first stride after it)
                  is left out
    cifar         twice less: the first convolution does not halve either, and is 3 x 3; for 32 x 32
                  and smaller
"""

# C channels, N images, H height, W width

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from proxnas.domains.images.networks.cnn import Size


class HandMade(nn.Module):
    """Features, their mean over the map, a linear classifier."""

    def __init__(self, features: nn.Module, C: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.features = features
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(C, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # He et al., ICCV 2015: the spread of gradients stays the same from layer to layer
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.dropout(self.features(x).mean((2, 3))))
        return logits


class Form(NamedTuple):
    """How a network begins: the first convolution, and whether the map is halved once more soon
    after it."""

    kernel: int
    stride: int
    pool: bool


def form(stem: str) -> Form:
    """The beginning for images of that kind."""
    return {
        "cifar": Form(3, 1, False),
        "tinyimagenet": Form(3, 2, False),
        "imagenet": Form(7, 2, True),
    }[stem]


def conv(
    C_in: int, C: int, kernel: int = 1, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Sequential:
    """Convolution, batch norm and, mostly, ReLU."""
    layer = nn.Conv2d(C_in, C, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(C), *([nn.ReLU()] if relu else []))


def halving() -> nn.MaxPool2d:
    """Max pooling that works on any map, were it one pixel."""
    return nn.MaxPool2d(3, stride=2, padding=1)


def stem(image_channels: int, C: int, begin: Form, kernel: int = 0) -> list[nn.Module]:
    """The first convolution and, on large images, pooling."""
    return [
        conv(image_channels, C, kernel or begin.kernel, begin.stride),
        *([halving()] if begin.pool else []),
    ]


class Residual(nn.Module):
    """Two 3x3 convolutions around which the input is added."""

    def __init__(self, C_in: int, C: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(C_in, C, 3, stride), conv(C, C, 3, relu=False))
        same = stride == 1 and C_in == C
        self.shortcut: nn.Module = nn.Identity() if same else conv(C_in, C, 1, stride, relu=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


def resnet18(size: Size) -> HandMade:
    """He, Zhang, Ren, Sun, 'Deep Residual Learning for Image Recognition', CVPR 2016: four stages
    of two blocks."""
    layers, C_in = stem(size.image_channels, 64, form(size.stem)), 64
    for C in (64, 128, 256, 512):
        layers += [Residual(C_in, C, 1 if C == 64 else 2), Residual(C, C, 1)]
        C_in = C
    return HandMade(nn.Sequential(*layers), 512, size.classes)


def mobilenet(size: Size) -> HandMade:
    """Howard et al., 'MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
    Applications', 2017."""
    begin = form(size.stem)
    layers: list[nn.Module] = [conv(size.image_channels, 32, 3, begin.stride)]
    # for large images the second block halves the map, where other networks pool
    early = 2 if begin.pool else 1
    strides = [1, early, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
    C_in = 32
    for C, stride in zip([64, 128, 128, 256, 256, *[512] * 6, 1024, 1024], strides, strict=True):
        layers += [conv(C_in, C_in, 3, stride, groups=C_in), conv(C_in, C)]
        C_in = C
    return HandMade(nn.Sequential(*layers), 1024, size.classes)
