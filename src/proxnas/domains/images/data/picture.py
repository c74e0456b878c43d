"""One image file -> bytes of a fixed form: grey or RGB, 8 bits, upright, at its own size or a given
one."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from proxnas.common.errors import in_one_line
from proxnas.common.seeds import Array

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
# others run programs or are rarely tested
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
LARGEST_PIXELS = 64 * 2**20  # below the number at which Pillow itself warns
BLANK, PIXELS_A_BYTE = 16 * 2**20, 16
"""Pixels that any file may have, and so many a byte of it besides: photographs have fewer than ten,
but a small file of nothing could fill the memory."""
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N", "I")
GREY = ("1", "L", "LA", "La", *SIXTEEN_BITS)
WITH_ALPHA = ("RGBA", "RGBa", "LA", "La", "PA")
# the tag of a camera, and its values that exchange the sides
ORIENTATION, SIDEWAYS = (0x0112, (5, 6, 7, 8))


class BrokenImage(Exception):
    """An image that cannot be read, and why."""


@dataclass(frozen=True)
class Head:
    """What is known of an image before its pixels are decoded."""

    height: int
    width: int
    grey: bool


@contextmanager
def quiet() -> Iterator[None]:
    """Pillow's warnings about odd files are silenced; the one about bombs becomes an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def open_picture(file: str | bytes) -> Image.Image:
    """The image in a file (or in its content), not decoded yet; to be closed by the caller."""
    try:
        image = Image.open(
            io.BytesIO(file) if isinstance(file, bytes) else file, formats=_formats()
        )
    except UnidentifiedImageError as error:
        raise BrokenImage("no image in a format that is read") from error
    except Exception as error:  # damaged headers raise nearly every kind
        raise BrokenImage(in_one_line(error)) from error
    limit = min(
        LARGEST_PIXELS,
        BLANK + PIXELS_A_BYTE * (len(file) if isinstance(file, bytes) else _size(file)),
    )
    if image.width * image.height > limit:
        image.close()
        raise BrokenImage(
            f"{image.width} x {image.height} pixels are more than {limit}, too many for such a file"
        )
    return image


def _size(file: str) -> int:
    return os.path.getsize(file) if os.path.exists(file) else 0


@cache
def _formats() -> tuple[str, ...]:
    """Those that this Pillow was built with."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def head(image: Image.Image) -> Head:
    """Size and kind, as `pixels` will find them."""
    if image.mode == "F":
        raise BrokenImage("floating point pixels, for which nobody knows what white is")
    try:
        width, height = reversed(image.size) if _orientation(image) in SIDEWAYS else image.size
    except Exception as error:
        raise BrokenImage(in_one_line(error)) from error
    return Head(height, width, image.mode in GREY)


def pixels(image: Image.Image, form: tuple[int, int, int], resize: bool) -> Array:
    """The decoded image in `form`, (H, W, C) with C of 1 or 3.

    With `resize` the middle square is scaled to H = W; else the image must have that size.
    """
    height, width, channels = form
    try:
        if resize:
            # JPEG: decodes at a half, a quarter ... of the size, but not less
            image.draft(image.mode, (width, height))
        image = _eight_bits(ImageOps.exif_transpose(image) if _orientation(image) else image)
        image = image.convert("L" if channels == 1 else "RGB")
        if resize:
            image = _middle(image, width)
        array = np.asarray(image)
    except Exception as error:  # damaged files raise nearly every kind
        raise BrokenImage(in_one_line(error)) from error
    if array.shape[:2] != (height, width):
        raise BrokenImage(
            f"{array.shape[1]} x {array.shape[0]} pixels instead of {width} x {height}"
        )
    return array.reshape(form)


def _orientation(image: Image.Image) -> int:
    """How a camera was held; Pillow turns TIFF by itself, and asking a PNG would decode it."""
    turned = image.format in ("JPEG", "MPO", "WEBP")
    return int(image.getexif().get(ORIENTATION, 1)) if turned else 0


def _eight_bits(image: Image.Image) -> Image.Image:
    """Without more than 8 bits a channel, without transparency (on white, as on paper)."""
    if image.mode in SIXTEEN_BITS:
        # 257 v is v in both bytes, so that 255 becomes 65535; + 128 rounds
        wide = np.asarray(image).clip(0, 65535).astype(np.uint32)
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    if image.mode in WITH_ALPHA or "transparency" in image.info:
        coloured = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured).convert(
            "RGB"
        )
    return image


def _middle(image: Image.Image, side: int) -> Image.Image:
    """The largest square in the middle, scaled."""
    shorter = min(image.size)
    # half pixels are fine: `resize` takes any box
    left, top = ((length - shorter) / 2 for length in image.size)
    return image.resize(
        (side, side), Image.Resampling.BILINEAR, box=(left, top, left + shorter, top + shorter)
    )
