"""Random changes that keep an image's class: drawn on the host, so that they are the same whatever
the device, and applied on the device to whole batches."""

# B images of a batch, H height, W width, C channels; x is (B, H, W, C) float32, in units of the
# stored pixels

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from proxnas.common.errors import OptionError
from proxnas.domains.images.data.arrays import Images

SMALLEST_AREA = 0.08  # share of the image that a resized crop keeps at least, as in Inception
LARGEST_RATIO = 4 / 3  # of its sides
# of RGB; the first row is luma
YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


@dataclass(frozen=True)
class Augment:
    """What is done to training images."""

    shift: bool | None = None
    """By up to `reach`, black beyond the edge; None: as suits the data (but not with
    resized_crop)."""
    reach: float = 1 / 8
    """Share of a side; one pixel at least."""
    flip: bool | None = None
    """Left and right exchanged in half of the images; None: as suits the data."""
    alternate: bool = False
    """Every image is exchanged in every other epoch, not at random: in few epochs chance shows many
    images the same way again and again (Jordan, '94% on CIFAR-10 in 3.29 seconds', 2024)."""
    cutout: int = 0
    """Side of the square that is hidden; 0: none."""
    rotation: float = 0.0
    """By up to so many degrees either way, black beyond the edge."""
    colour: float = 0.0
    """Brightness, contrast and saturation vary by up to this share."""
    hue: float = 0.5
    """Share of `colour` by which hue turns at most, in whole turns."""
    resized_crop: bool = False
    """A random rectangle of 8% to 100% of the area is stretched to the whole image."""

    def __post_init__(self) -> None:
        if self.cutout < 0:
            raise OptionError("cutout", self.cutout, "give a side of 0 or more pixels")
        if not 0 <= self.rotation <= 180:
            raise OptionError("rotation", self.rotation, "give degrees from 0 to 180")
        if not 0 <= self.colour <= 1:
            raise OptionError("colour", self.colour, "give a strength from 0 to 1")

    def settled(self, images: Images) -> Augment:
        """With shift and flip decided, and the square found to fit into the image."""
        _, height, width = images.shape
        if self.cutout > min(height, width):
            raise OptionError(
                "cutout", self.cutout, f"give a side of 0 to {min(height, width)} pixels"
            )
        shift = images.shift and not self.resized_crop if self.shift is None else self.shift
        return replace(self, shift=shift, flip=images.flip if self.flip is None else self.flip)

    def draws(self) -> int:
        """Uniform numbers an image that `geometry` and `colours` take."""
        return bool(self.rotation) + 4 * self.resized_crop + 4 * bool(self.colour)


def geometry(augment: Augment, random: list[Tensor], height: int, width: int) -> Tensor | None:
    """(B, 2, 3): where in an image the pixels of its changed form are found, both being [-1, 1]^2;
    None: in place.

    The form is squeezed to the crop, then turned about the middle in pixels of equal sides. The
    numbers, each (B,) in [0, 1), are taken from the front of `random`.
    """
    if not augment.rotation and not augment.resized_crop:
        return None
    zero, one = torch.zeros_like(random[0]), torch.ones_like(random[0])
    angle = (2 * random.pop(0) - 1) * math.radians(augment.rotation) if augment.rotation else zero
    # half sides (across, down) and centre (x, y) of the rectangle in [-1, 1]^2
    across, down, x, y = _crop(random) if augment.resized_crop else (one, one, zero, zero)
    # (x, y, 1) of the new image -> (x, y) in the old one:
    # [ across cos      -down sin h/w   x cos - y sin h/w ]
    # [ across sin w/h   down cos       x sin w/h + y cos ]
    cos, sin, aspect = angle.cos(), angle.sin(), height / width
    return torch.stack(
        (
            torch.stack((cos * across, -sin * down * aspect, cos * x - sin * y * aspect), dim=1),
            torch.stack((sin * across / aspect, cos * down, sin * x / aspect + cos * y), dim=1),
        ),
        dim=1,
    )


def _crop(random: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Half sides and centre of a random rectangle in [-1, 1]^2, each (B,)."""
    # area and ratio of the sides as in Inception: sides are sqrt(area * ratio), sqrt(area / ratio)
    area = SMALLEST_AREA + (1 - SMALLEST_AREA) * random.pop(0)
    stretch = (
        math.log(LARGEST_RATIO) * (random.pop(0) - 0.5)
    ).exp()  # root of a ratio of 3/4 to 4/3, uniform in log
    across, down = (area.sqrt() * stretch).clamp(max=1.0), (area.sqrt() / stretch).clamp(max=1.0)
    return (
        across,
        down,
        (1 - across) * (2 * random.pop(0) - 1),
        (1 - down) * (2 * random.pop(0) - 1),
    )


def warped(x: Tensor, theta: Tensor) -> Tensor:
    """x resampled once, as `geometry` says; black beyond the edge."""
    planes = x.permute(0, 3, 1, 2)
    grid = affine_grid(theta, list(planes.shape), align_corners=False)
    found = grid_sample(planes, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return found.permute(0, 2, 3, 1).contiguous()


class Pasted(NamedTuple):
    """Images with a rectangle of others of their batch."""

    x: Tensor
    others: Tensor
    """Whose rectangle each has, (B,)."""
    kept: float
    """Share of the area that is an image's own."""


def cut_and_paste(x: Tensor, generator: torch.Generator) -> Pasted:
    """CutMix (Yun et al., 2019): a rectangle of x, (B, C, H, W), is that of the batch in another
    order; of any size, and of the form of the image."""
    others = torch.randperm(len(x), generator=generator)
    # sides are sqrt(part) of the whole: an area uniform in [0, 1], CutMix's Beta(1, 1)
    part, down, across = torch.rand(3, generator=generator).tolist()
    height, width = (round(side * part**0.5) for side in x.shape[2:])
    # wholly inside, so that the share of the area is exact
    top, left = int(down * (x.size(2) - height + 1)), int(across * (x.size(3) - width + 1))
    there = (..., slice(top, top + height), slice(left, left + width))
    found = x.clone()
    found[there] = x[there][others.to(x.device)]
    return Pasted(found, others, 1 - height * width / (x.size(2) * x.size(3)))


def shrunk(x: Tensor, side: int) -> Tensor:
    """Images (B, C, H, W) with `side` pixels on their shorter side."""
    shorter = min(x.shape[2:])
    if side >= shorter:
        return x
    # both sides by the same factor, of 4 pixels at least
    scaled = [max(4, round(length * side / shorter)) for length in x.shape[2:]]
    small = interpolate(x, size=scaled, mode="bilinear", antialias=True, align_corners=False)
    return small.contiguous(memory_format=torch.channels_last)


def colours(augment: Augment, random: list[Tensor]) -> tuple[Tensor, Tensor] | None:
    """Brightness and contrast (2, B), and what saturation and hue make of RGB (B, 3, 3).

    Hue is turned in the plane of chrominance (YIQ), which is linear.
    """
    if not augment.colour:
        return None
    # uniform in [1 - colour, 1 + colour]
    brightness, contrast, saturation = (
        1 + augment.colour * (2 * random.pop(0) - 1) for _ in range(3)
    )
    hue = 2 * math.pi * augment.hue * augment.colour * (2 * random.pop(0) - 1)
    cos, sin, zero = saturation * hue.cos(), saturation * hue.sin(), torch.zeros_like(hue)
    # (B, 3, 3) in YIQ: luma stays, chrominance is scaled by saturation and turned by hue
    # [ 1   0    0  ]
    # [ 0  cos -sin ]
    # [ 0  sin  cos ]
    turn = torch.stack((zero + 1, zero, zero, zero, cos, -sin, zero, sin, cos), dim=1).view(
        -1, 3, 3
    )
    to_yiq = torch.tensor(YIQ)
    return torch.stack((brightness, contrast)), torch.linalg.inv(to_yiq) @ turn @ to_yiq


def recoloured(x: Tensor, scales: Tensor, chroma: Tensor, black: float, white: float) -> Tensor:
    """Brightness, contrast, then saturation and hue, each kept within black .. white; without three
    channels, no hue."""
    brightness, contrast = scales[:, :, None, None, None]
    x = (x * brightness).clamp_(black, white)
    # contrast about the mean luma of the whole image, (B, 1, 1, 1), as torchvision does
    mean = _luma(x).mean((1, 2))[:, None, None, None]
    x = (mean + (x - mean) * contrast).clamp_(black, white)
    if x.shape[3] != 3:
        return x
    # (B, H W, 3) times (B, 3, 3): pixels are rows, so the matrix is transposed
    return torch.bmm(x.flatten(1, 2), chroma.mT).view_as(x).clamp_(black, white)


def _luma(x: Tensor) -> Tensor:
    if x.shape[3] != 3:
        return x.mean(3)
    red, green, blue = x.unbind(3)
    return YIQ[0][0] * red + YIQ[0][1] * green + YIQ[0][2] * blue


AS_SUITS = Augment()
"""Shifts and flips where the data allow them, nothing else."""
