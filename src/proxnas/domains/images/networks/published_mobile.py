"""Published networks of inverted residual blocks: MobileNetV2, MnasNet, ProxylessNAS, FBNet.

Each is a first convolution, blocks of kinds that networks/mobile.py knows, a last 1x1 convolution
and a linear classifier. The form for images of 32 x 32 pixels halves twice less, that for 64 x 64
once less, as those of the other networks made by hand do.
"""

# C channels

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from proxnas.domains.images.networks.baselines import HandMade
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.mobile import InvertedResidual, Kind, kind
from proxnas.domains.images.operations import final_norm

FBNET_KINDS = {
    "mb1_3x3_m": Kind(1, 3, mixes=True),
    "mb1_5x5_m": Kind(1, 5, mixes=True),
    "mb1_3x3_g": Kind(1, 3, groups=2, mixes=True),
    "mb1_5x5_g": Kind(1, 5, groups=2, mixes=True),
}
"""Blocks without expansion that begin with a 1x1 convolution all the same, of one group or two."""
HALVED_LESS = {"imagenet": 0, "tinyimagenet": 1, "cifar": 2}


STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Of the first block of each stage, in all of them."""


class Published(NamedTuple):
    """Channels of the first convolution, the stages, channels of the last convolution."""

    first: int
    stages: Mapping[int, str]
    """Channels -> blocks, written as `6_5 3_3 1_5_g -`: expansion, kernel, what else; none."""
    last: int


MOBILENET_V2 = Published(
    32,
    {
        16: "1_3",
        24: "6_3 6_3",
        32: "6_3 6_3 6_3",
        64: "6_3 6_3 6_3 6_3",
        96: "6_3 6_3 6_3",
        160: "6_3 6_3 6_3",
        320: "6_3",
    },
    1280,
)
MNASNET_A1 = Published(
    32,
    {
        16: "1_3",
        24: "6_3 6_3",
        40: "3_5_se 3_5_se 3_5_se",
        80: "6_3 6_3 6_3 6_3",
        112: "6_3_se 6_3_se",
        160: "6_5_se 6_5_se 6_5_se",
        320: "6_3",
    },
    1280,
)
MNASNET_B1 = Published(
    32,
    {
        16: "1_3",
        24: "3_3 3_3 3_3",
        40: "3_5 3_5 3_5",
        80: "6_5 6_5 6_5",
        96: "6_3 6_3",
        192: "6_5 6_5 6_5 6_5",
        320: "6_3",
    },
    1280,
)
PROXYLESS_MOBILE = Published(
    32,
    {
        16: "1_3",
        32: "3_5 3_3 - -",
        40: "3_7 3_3 3_5 3_5",
        80: "6_7 3_5 3_5 3_5",
        96: "6_5 3_5 3_5 3_5",
        192: "6_7 6_7 3_7 3_7",
        320: "6_7",
    },
    1280,
)
PROXYLESS_CPU = Published(
    40,
    {
        24: "1_3",
        32: "6_3 3_3 3_3 3_3",
        48: "6_3 3_3 3_3 3_5",
        88: "6_3 - - 3_3",
        104: "6_5 3_3 3_3 3_3",
        216: "6_5 3_5 3_5 3_3",
        360: "6_5",
    },
    1432,
)
PROXYLESS_GPU = Published(
    40,
    {
        24: "1_3",
        32: "3_5 - - -",
        56: "3_7 - - 3_3",
        112: "6_7 - - 3_5",
        128: "6_5 - 3_3 3_5",
        256: "6_7 6_7 6_7 6_5",
        432: "6_7",
    },
    1728,
)
FBNET_A = Published(
    16,
    {
        16: "-",
        24: "3_3 1_3_m - -",
        32: "6_5 3_3 1_5_m 3_3",
        64: "6_5 3_5 1_5_g 6_5",
        112: "6_3 1_5_g 3_5 1_3_g",
        184: "6_5 6_5 3_5 6_5",
        352: "6_5",
    },
    1504,
)
FBNET_B = Published(
    16,
    {
        16: "1_3_m",
        24: "6_3 1_5_m 1_3_m 1_3_m",
        32: "6_5 3_5 6_3 6_5",
        64: "6_5 1_5_m - 3_5",
        112: "6_5 1_3_m 1_5_m 3_5",
        184: "6_5 1_5_m 6_5 6_5",
        352: "6_3",
    },
    1984,
)
FBNET_C = Published(
    16,
    {
        16: "1_3_m",
        24: "6_3 - 1_3_m 1_3_m",
        32: "6_5 3_5 6_5 6_3",
        64: "6_5 3_5 6_5 6_5",
        112: "6_5 6_5 6_5 3_5",
        184: "6_5 6_5 6_5 6_5",
        352: "6_3",
    },
    1984,
)


def block_kind(word: str) -> Kind:
    """The kind of block that a word of a stage stands for."""
    expansion, kernel, *more = word.split("_")
    # 6_5_se -> mb6_5x5_se
    name = "_".join([f"mb{expansion}", f"{kernel}x{kernel}", *more])
    return FBNET_KINDS.get(name) or kind(name)


def build_published(network: Published, size: Size) -> HandMade:
    """The network for images of that size."""
    less = HALVED_LESS[size.stem]
    begin = nn.Conv2d(size.image_channels, network.first, 3, 1 if less > 1 else 2, 1, bias=False)
    layers: list[nn.Module] = [begin, nn.BatchNorm2d(network.first), nn.ReLU6()]
    # halvings left out: of tinyimagenet one, by a stage; of cifar two, the first convolution's too
    C_in, unhalved = network.first, less - (less > 1)
    for stride, (C, words) in zip(STRIDES, network.stages.items(), strict=True):
        # the first stages that would halve do not
        if stride == 2 and unhalved:
            stride, unhalved = 1, unhalved - 1
        for word in words.split():
            # -: left out by the search, which it may only where the shape stays the same
            if word != "-":
                layers.append(InvertedResidual(block_kind(word), C_in, C, stride, final_norm))
            C_in, stride = C, 1
    layers += [
        nn.Conv2d(C_in, network.last, 1, bias=False),
        nn.BatchNorm2d(network.last),
        nn.ReLU6(),
    ]
    return HandMade(nn.Sequential(*layers), network.last, size.classes, dropout=0.2)


def mobilenet_v2(size: Size) -> HandMade:
    """Sandler, Howard, Zhu, Zhmoginov, Chen, 'MobileNetV2: Inverted Residuals and Linear
    Bottlenecks', CVPR 2018."""
    return build_published(MOBILENET_V2, size)


def mnasnet_a1(size: Size) -> HandMade:
    """Tan et al., 'MnasNet: Platform-Aware Neural Architecture Search for Mobile', CVPR 2019."""
    return build_published(MNASNET_A1, size)


def mnasnet_b1(size: Size) -> HandMade:
    """The same, searched without squeeze-and-excitation."""
    return build_published(MNASNET_B1, size)


def proxyless_mobile(size: Size) -> HandMade:
    """Cai, Zhu, Han, 'ProxylessNAS: Direct Neural Architecture Search on Target Task and Hardware',
    ICLR 2019: the network for telephones."""
    return build_published(PROXYLESS_MOBILE, size)


def proxyless_cpu(size: Size) -> HandMade:
    """The same, for processors."""
    return build_published(PROXYLESS_CPU, size)


def proxyless_gpu(size: Size) -> HandMade:
    """The same, for graphics cards."""
    return build_published(PROXYLESS_GPU, size)


def fbnet_a(size: Size) -> HandMade:
    """Wu et al., 'FBNet: Hardware-Aware Efficient ConvNet Design via Differentiable Neural
    Architecture Search', CVPR 2019."""
    return build_published(FBNET_A, size)


def fbnet_b(size: Size) -> HandMade:
    """The same, larger."""
    return build_published(FBNET_B, size)


def fbnet_c(size: Size) -> HandMade:
    """The same, largest."""
    return build_published(FBNET_C, size)
