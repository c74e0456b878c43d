"""Random changes that keep an image's class: drawn on the host, so that they are the same whatever the device, and
applied on the device to whole batches."""

# B images of a batch, H height, W width, C channels; x is (B, H, W, C) float32, in units of the stored pixels

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from proxnas.data.arrays import Images
from proxnas.errors import InputError

SMALLEST_AREA = 0.08  # share of the image that a resized crop keeps at least, as in Inception
LARGEST_RATIO = 4 / 3  # of its sides
GREY = (0.299, 0.587, 0.114)  # luma of ITU-R 601


@dataclass(frozen=True)
class Augment:
    """What is done to training images."""

    shift: bool | None = None
    """By up to an eighth of the side, black beyond the edge; None: as suits the data (but not with resized_crop)."""
    flip: bool | None = None
    """Left and right exchanged in half of the images; None: as suits the data."""
    cutout: int = 0
    """Side of the square that is hidden; 0: none."""
    rotation: float = 0.0
    """By up to so many degrees either way, black beyond the edge."""
    colour: float = 0.0
    """Brightness, contrast and saturation vary by up to this share, hue by up to half of it."""
    resized_crop: bool = False
    """A random rectangle of 8% to 100% of the area is stretched to the whole image."""

    def __post_init__(self) -> None:
        if self.cutout < 0:
            raise InputError(f"--cutout {self.cutout}: give a side of 0 or more pixels")
        if not 0 <= self.rotation <= 180:
            raise InputError(f"--rotation {self.rotation}: give degrees from 0 to 180")
        if not 0 <= self.colour <= 1:
            raise InputError(f"--colour {self.colour}: give a strength from 0 to 1")

    def settled(self, images: Images) -> Augment:
        """With shift and flip decided, and the square found to fit into the image."""
        _, height, width = images.shape
        if self.cutout > min(height, width):
            raise InputError(f"--cutout {self.cutout}: give a side of 0 to {min(height, width)} pixels")
        shift = images.shift and not self.resized_crop if self.shift is None else self.shift
        return replace(self, shift=shift, flip=images.flip if self.flip is None else self.flip)

    def draws(self) -> int:
        """Uniform numbers an image that `warped` and `recoloured` take."""
        return bool(self.rotation) + 4 * self.resized_crop + 4 * bool(self.colour)


def warped(x: Tensor, augment: Augment, random: list[Tensor]) -> Tensor:
    """Rotated and cropped in one resampling; takes its numbers (each (B,), in [0, 1)) from the front of `random`."""
    if not augment.rotation and not augment.resized_crop:
        return x
    _, height, width, _ = x.shape
    angle, across, down, centre_x, centre_y = _transformation(x, augment, random)
    # (u, v) in [-1, 1]^2 of the result -> where it is found in x: squeezed to the crop, then turned about the middle,
    # in pixels of equal sides
    cos, sin, aspect = angle.cos(), angle.sin(), height / width
    rows = (
        torch.stack((cos * across, -sin * down * aspect, cos * centre_x - sin * centre_y * aspect), dim=1),
        torch.stack((sin * across / aspect, cos * down, sin * centre_x / aspect + cos * centre_y), dim=1),
    )
    planes = x.permute(0, 3, 1, 2)
    grid = affine_grid(torch.stack(rows, dim=1), list(planes.shape), align_corners=False)
    return grid_sample(planes, grid, mode="bilinear", padding_mode="zeros", align_corners=False).permute(0, 2, 3, 1)


def _transformation(x: Tensor, augment: Augment, random: list[Tensor]) -> tuple[Tensor, ...]:
    """Angle, and half sides and centre of the crop, where the image is [-1, 1]^2; each (B,)."""
    zero, one = torch.zeros_like(x[:, 0, 0, 0]), torch.ones_like(x[:, 0, 0, 0])
    angle = (2 * random.pop(0) - 1) * math.radians(augment.rotation) if augment.rotation else zero
    if not augment.resized_crop:
        return angle, one, one, zero, zero
    area = SMALLEST_AREA + (1 - SMALLEST_AREA) * random.pop(0)
    stretch = (math.log(LARGEST_RATIO) * (random.pop(0) - 0.5)).exp()  # sqrt of a ratio of 3/4 to 4/3, uniform in log
    across, down = (area.sqrt() * stretch).clamp(max=1.0), (area.sqrt() / stretch).clamp(max=1.0)
    return angle, across, down, (1 - across) * (2 * random.pop(0) - 1), (1 - down) * (2 * random.pop(0) - 1)


def recoloured(x: Tensor, augment: Augment, random: list[Tensor], white: float) -> Tensor:
    """Brightness, contrast, then saturation and hue, kept within 0 .. white; images not of three channels have no hue.

    Hue is turned in the plane of chrominance (YIQ), which is one 3 x 3 matrix an image.
    """
    if not augment.colour:
        return x
    brightness, contrast, saturation = (1 + augment.colour * (2 * random.pop(0) - 1) for _ in range(3))
    hue = math.pi * augment.colour * (2 * random.pop(0) - 1)  # half of the strength, of a whole turn
    x = (x * brightness[:, None, None, None]).clamp_(max=white)
    grey = (_luma(x) if x.shape[3] == 3 else x.mean(3)).mean((1, 2))[:, None, None, None]
    x = (grey + (x - grey) * contrast[:, None, None, None]).clamp_(0.0, white)
    if x.shape[3] != 3:
        return x
    return (x.flatten(1, 2) @ _chroma(saturation, hue).mT).view_as(x).clamp_(0.0, white)


def _luma(x: Tensor) -> Tensor:
    return torch.matmul(x, x.new_tensor(GREY))


def _chroma(saturation: Tensor, hue: Tensor) -> Tensor:
    """(B, 3, 3): RGB -> RGB with chrominance scaled and turned."""
    to_yiq = saturation.new_tensor((GREY, (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112)))
    cos, sin, zero = saturation * hue.cos(), saturation * hue.sin(), torch.zeros_like(hue)
    turn = torch.stack((zero + 1, zero, zero, zero, cos, -sin, zero, sin, cos), dim=1).view(-1, 3, 3)
    mixed: Tensor = torch.linalg.inv(to_yiq) @ turn @ to_yiq
    return mixed


AS_SUITS = Augment()
"""Shifts and flips where the data allow them, nothing else."""
