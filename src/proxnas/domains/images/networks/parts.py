"""What final networks are made of besides cells: stems, the auxiliary head, path dropout."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from proxnas.domains.images.operations import Norm

STEM_MULTIPLIER = 3


def conv_norm(C_in: int, C_out: int, stride: int, norm: Norm) -> list[nn.Module]:
    """A 3x3 convolution and normalisation."""
    return [nn.Conv2d(C_in, C_out, 3, stride=stride, padding=1, bias=False), norm(C_out)]


class CifarStem(nn.Sequential):
    """One convolution to 3 C channels, which both inputs of the first cell read."""

    halves = False  # are the two inputs of the first cell of different size?

    def __init__(self, image_channels: int, C: int, norm: Norm) -> None:
        super().__init__(*conv_norm(image_channels, STEM_MULTIPLIER * C, 1, norm))
        self.C_out = STEM_MULTIPLIER * C

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return y, y


class DeepStem(nn.Module):
    """Three convolutions for large images: the first cell reads the outputs of the second and of
    the third."""

    halves = True

    def __init__(
        self, image_channels: int, C: int, norm: Norm, strides: tuple[int, int, int]
    ) -> None:
        super().__init__()
        first = conv_norm(image_channels, C // 2, strides[0], norm)
        self.before_last = nn.Sequential(*first, nn.ReLU(), *conv_norm(C // 2, C, strides[1], norm))
        self.last = nn.Sequential(nn.ReLU(), *conv_norm(C, C, strides[2], norm))
        self.C_out = C

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before_last = self.before_last(x)
        return before_last, self.last(before_last)


STEMS: dict[str, Callable[[int, int, Norm], CifarStem | DeepStem]] = {
    "cifar": CifarStem,
    "imagenet": lambda image_channels, C, norm: DeepStem(image_channels, C, norm, (2, 2, 2)),
    "tinyimagenet": lambda image_channels, C, norm: DeepStem(image_channels, C, norm, (1, 1, 2)),
}


class AuxiliaryHead(nn.Module):
    """A second classifier on the map after two thirds of the cells; it helps training and is
    dropped afterwards.

    A window of 5 x 5 pixels, moved by 3 (deep stems: by 2), makes 2 x 2 of the map that its
    inventors had; a map too small for that is averaged into 2 x 2 parts instead, a larger one is
    averaged after the last convolution.
    """

    def __init__(self, C: int, classes: int, stride: int, last_norm: bool) -> None:
        super().__init__()
        self.smallest = 5 + stride
        self.pool = nn.AvgPool2d(5, stride=stride)
        self.small_pool = nn.AdaptiveAvgPool2d(2)
        norm = [nn.BatchNorm2d(768)] if last_norm else []  # DARTS' ImageNet form does without
        self.features = nn.Sequential(
            *(nn.Conv2d(C, 128, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU()),
            *(nn.Conv2d(128, 768, 2, bias=False), *norm, nn.ReLU()),
        )
        self.classifier = nn.Linear(768, classes)

    def forward(self, x: Tensor) -> Tensor:
        # 5 + stride pixels are the fewest of which two windows can be had
        pool = self.pool if min(x.shape[2:]) >= self.smallest else self.small_pool
        logits: Tensor = self.classifier(self.features(pool(nn.functional.relu(x))).mean((2, 3)))
        return logits


class DropPath(nn.Module):
    """In training, leaves out what it is given for each image of a batch by chance; the others are
    scaled up."""

    def __init__(self) -> None:
        super().__init__()
        self.probability = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        # (N, 1, 1, 1): whole images; E[kept / (1 - p)] = 1, so nothing is scaled when it is used
        kept = torch.rand(x.shape[0], 1, 1, 1, device=x.device) >= self.probability
        # in place: operations end in a normalisation or in pooling, whose backward does not read
        # what they put out
        return x.mul_((kept / (1 - self.probability)).to(x.dtype))


def set_drop_path(network: nn.Module, probability: float) -> None:
    """From now on operations other than identities are left out with that probability."""
    if not 0 <= probability < 1:
        raise ValueError(f"a path is dropped with a probability in [0, 1), not {probability}")
    for module in network.modules():
        if isinstance(module, DropPath):
            module.probability = probability


class Scaled(nn.Module):
    """A block whose output is multiplied by what the search kept of A."""

    def __init__(self, block: nn.Module, value: float) -> None:
        super().__init__()
        self.block, self.value = block, value

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.block(x) * self.value
        return y


class SqueezeExcite(nn.Module):
    """Each channel times a factor in (0, 1), by the means of all (Hu, Shen, Sun, CVPR 2018)."""

    def __init__(self, C: int, units: int) -> None:
        super().__init__()
        self.factors = nn.Sequential(
            nn.Conv2d(C, units, 1), nn.ReLU(), nn.Conv2d(units, C, 1), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x * self.factors(x.mean((2, 3), keepdim=True))
        return y
