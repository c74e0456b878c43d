"""Candidate operations: one dict a domain, name -> factory(C, stride, norm).

C channels in and out; `norm` makes the normalisation of C channels, so that search networks (no
affine part, no running statistics: a candidate selected late would be judged by stale ones) and
final networks share these definitions. Every operation keeps channels_last and never changes its
input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from proxnas.common.plugins import of_others, resolve
from proxnas.core.sharing import relu

Norm = Callable[[int], nn.Module]
Factory = Callable[[int, int, Norm], nn.Module]


def search_norm(C: int) -> nn.Module:
    """Normalisation by the batch alone, as DARTS searches."""
    return nn.BatchNorm2d(C, affine=False, track_running_stats=False)


def final_norm(C: int) -> nn.Module:
    """The usual batch norm of a network that is trained and kept."""
    return nn.BatchNorm2d(C)


class Zero(nn.Module):
    """No connection: zeros in the shape an operation of this stride would give."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[:, :, :: self.stride, :: self.stride])


class AfterReLU(nn.Sequential):
    """ReLU, then the parts."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(relu(x))  # type: ignore[no-untyped-call]
        return y


class Pure(nn.Sequential):
    """A part without parameters: equal keys give equal outputs, so it is computed once a source."""

    def __init__(self, key: str, *parts: nn.Module) -> None:
        super().__init__(*parts)
        self.pure_key = key


class Pointwise(nn.Conv2d):
    """A 1x1 convolution with a stride.

    oneDNN's gradient of its weights writes beyond its memory where few channels lie channels_last
    (its issue 6035, on CPUs without AVX-512: wrong values or a crash). There every so many-th pixel
    is taken first, which is the same.
    """

    FEW = 16
    """As many channels as oneDNN takes at a time, or more."""

    def __init__(self, C_in: int, C_out: int, stride: int) -> None:
        super().__init__(C_in, C_out, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self.stride
        if self.in_channels >= self.FEW or rows == columns == 1:
            return super().forward(x)
        # a 1x1 convolution of stride s reads every s-th pixel and nothing else
        return nn.functional.conv2d(x[:, :, ::rows, ::columns], self.weight)


class FactorizedReduce(nn.Module):
    """Halves the image: two 1x1 convolutions of stride 2, one on the image moved by a pixel, side
    by side."""

    def __init__(self, C_in: int, C_out: int, norm: Norm) -> None:
        super().__init__()
        self.even = Pointwise(C_in, C_out // 2, 2)
        self.odd = Pointwise(C_in, C_out - C_out // 2, 2)
        self.norm = norm(C_out)

    def forward(self, x: Tensor) -> Tensor:
        # shared: candidates that read the same tensor take its ReLU once (core/sharing.py)
        x = relu(x)
        # odd sides: a padded border keeps both halves equally large
        if x.shape[2] % 2 or x.shape[3] % 2:
            x = nn.functional.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2))
        # even rows and columns in one half of the channels, odd ones in the other
        y: Tensor = self.norm(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], dim=1))
        return y


def relu_conv_norm(C_in: int, C_out: int, kernel: int, stride: int, norm: Norm) -> nn.Module:
    """ReLU, a full convolution, normalisation."""
    if kernel == 1:
        return AfterReLU(Pointwise(C_in, C_out, stride), norm(C_out))
    return AfterReLU(
        nn.Conv2d(C_in, C_out, kernel, stride=stride, padding=kernel // 2, bias=False), norm(C_out)
    )


def conv(kernel: int) -> Factory:
    """A full convolution."""
    return lambda C, stride, norm: relu_conv_norm(C, C, kernel, stride, norm)


def stretched_conv(kernel: int) -> Factory:
    """A full 1 x kernel convolution, then kernel x 1."""

    def build(C: int, stride: int, norm: Norm) -> nn.Module:
        row = nn.Conv2d(C, C, (1, kernel), stride=(1, stride), padding=(0, kernel // 2), bias=False)
        column = nn.Conv2d(
            C, C, (kernel, 1), stride=(stride, 1), padding=(kernel // 2, 0), bias=False
        )
        return AfterReLU(row, column, norm(C))

    return build


def grouped_stretched_conv(C: int, stride: int, norm: Norm) -> nn.Module:
    """1x3, then 3x1, both in eight groups of channels, then a 1x1 convolution: GDAS' fixed
    reduction cell has it."""
    groups = math.gcd(C, 8)
    row = nn.Conv2d(C, C, (1, 3), stride=(1, stride), padding=(0, 1), groups=groups, bias=False)
    column = nn.Conv2d(C, C, (3, 1), stride=(stride, 1), padding=(1, 0), groups=groups, bias=False)
    return AfterReLU(row, column, norm(C), nn.ReLU(), nn.Conv2d(C, C, 1, bias=False), norm(C))


def depthwise(C: int, kernel: int, stride: int, dilation: int, norm: Norm) -> list[nn.Module]:
    """A depthwise convolution, a 1x1 convolution, normalisation; to be put after a ReLU."""
    # keeps the map: a dilated kernel is dilation * (kernel - 1) + 1 wide
    pad = dilation * (kernel // 2)
    spatial = nn.Conv2d(
        C, C, kernel, stride=stride, padding=pad, dilation=dilation, groups=C, bias=False
    )
    return [spatial, nn.Conv2d(C, C, 1, bias=False), norm(C)]


def dil_conv(kernel: int) -> Factory:
    """A depthwise-separable convolution of dilation 2."""
    return lambda C, stride, norm: AfterReLU(*depthwise(C, kernel, stride, 2, norm))


def sep_conv(kernel: int, dilation: int = 1) -> Factory:
    """Two depthwise-separable convolutions in a row, the first with the stride."""
    return lambda C, stride, norm: AfterReLU(
        *depthwise(C, kernel, stride, dilation, norm),
        nn.ReLU(inplace=True),
        *depthwise(C, kernel, 1, dilation, norm),
    )


def max_pool(kernel: int) -> Factory:
    """The largest value of a window."""
    return lambda C, stride, norm: nn.MaxPool2d(kernel, stride=stride, padding=kernel // 2)


def max_pool_even(C: int, stride: int, norm: Norm) -> nn.Module:
    """The largest value of a 2x2 window; without a stride the lower right border is padded to keep
    the size."""
    # an odd side is rounded up, as everywhere
    pool = nn.MaxPool2d(2, stride=stride, ceil_mode=stride == 2)
    return pool if stride == 2 else nn.Sequential(nn.ReplicationPad2d((0, 1, 0, 1)), pool)


def max_pool_norm(C: int, stride: int, norm: Norm) -> nn.Module:
    """The largest value of a 3x3 window, normalised."""
    return nn.Sequential(max_pool(3)(C, stride, norm), norm(C))


def avg_pool(kernel: int) -> Factory:
    """The mean of a window, the padding not counted."""
    return lambda C, stride, norm: nn.AvgPool2d(
        kernel, stride=stride, padding=kernel // 2, count_include_pad=False
    )


def skip(C: int, stride: int, norm: Norm) -> nn.Module:
    """The source itself; where the image is halved, a FactorizedReduce."""
    return nn.Identity() if stride == 1 else FactorizedReduce(C, C, norm)


def none(C: int, stride: int, norm: Norm) -> nn.Module:
    """No connection."""
    return Zero(stride)


CNN: dict[str, Factory] = {
    "none": none,
    "skip_connect": skip,
    "max_pool_2x2": max_pool_even,
    "max_pool_3x3": max_pool(3),
    "max_pool_5x5": max_pool(5),
    "max_pool_7x7": max_pool(7),
    "avg_pool_3x3": avg_pool(3),
    "sep_conv_3x3": sep_conv(3),
    "sep_conv_5x5": sep_conv(5),
    "sep_conv_7x7": sep_conv(7),
    "dil_conv_3x3": dil_conv(3),
    "dil_conv_5x5": dil_conv(5),
    "dil_sep_conv_5x5": sep_conv(5, dilation=2),
    "conv_1x1": conv(1),
    "conv_3x3": conv(3),
    "conv_5x5": conv(5),
    "conv_3x1_1x3": stretched_conv(3),
    "conv_7x1_1x7": stretched_conv(7),
    "group_conv_3x1_1x3": grouped_stretched_conv,
    "max_pool_3x3_norm": max_pool_norm,
}

NASBENCH201: dict[str, Factory] = {
    "none": none,
    "skip_connect": skip,
    "nor_conv_1x1": conv(1),
    "nor_conv_3x3": conv(3),
    "avg_pool_3x3": avg_pool(3),
}


def make_operation(name: str, C: int, stride: int, norm: Norm) -> nn.Module:
    """A CNN operation, ours or of another package (entry point `proxnas.operations`)."""
    make: Factory | None = CNN.get(name)
    if make is None:
        make = resolve("operation", name, of_others("operations")[name])
    return make(C, stride, norm)


def final_operation(name: str, C: int, stride: int) -> nn.Module:
    """A CNN operation as a final network holds it."""
    return make_operation(name, C, stride, final_norm)


def search_operation(name: str, C: int, stride: int) -> nn.Module:
    """A CNN operation as a search network holds it: pooling is normalised too, lest a candidate win
    by its scale."""
    op = make_operation(name, C, stride, search_norm)
    return Pure(f"{name}/{stride}", op, search_norm(C)) if "pool" in name else op


def shuffled(x: Tensor, groups: int) -> Tensor:
    """x (N, C, H, W) with the channels of its groups taken in turn, one of each: channel c of group
    g comes to g + c * groups (Zhang et al., 'ShuffleNet', CVPR 2018)."""
    parts: Tensor = x.unflatten(1, (groups, -1))  # (N, groups, C / groups, H, W)
    return parts.transpose(1, 2).flatten(1, 2)


class PartialChannels(nn.Module):
    """An operation on one in `part` channels; the others pass by, halved where it halves. Then all
    are shuffled, so that the next operation reads others (PC-DARTS)."""

    def __init__(self, operation: nn.Module, part: int, stride: int) -> None:
        super().__init__()
        self.operation, self.part, self.stride = operation, part, stride

    def forward(self, x: Tensor) -> Tensor:
        C = x.shape[1] // self.part
        passed = x[:, C:]
        if self.stride > 1:
            passed = nn.functional.max_pool2d(passed, 2, 2, ceil_mode=True)
        return shuffled(torch.cat([self.operation(x[:, :C]), passed], dim=1), self.part)


class Parts(NamedTuple):
    """What cells are made of: operations by name, channels and stride, and the norm beside them."""

    operation: Callable[[str, int, int], nn.Module]
    norm: Norm


SEARCHED, FINAL = Parts(search_operation, search_norm), Parts(final_operation, final_norm)


def on_part_of_channels(parts: Parts, part: int) -> Parts:
    """The same with operations on a part of the channels."""

    def operation(name: str, C: int, stride: int) -> nn.Module:
        few = usable_part(part, C)
        made = parts.operation(name, C // few, stride)
        return made if few == 1 else PartialChannels(made, few, stride)

    return Parts(operation, parts.norm)


def usable_part(part: int, C: int) -> int:
    """One in how many channels is read: what divides `part` and C, and leaves at least two."""
    # divisors of both; 1, all channels, is always one where there are two
    usable = [n for n in range(1, part + 1) if part % n == 0 and C % n == 0 and C // n >= 2]
    return max(usable, default=1)
