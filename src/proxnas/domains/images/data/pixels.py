"""Arithmetic on pixels: mean and spread of each channel, smaller images.

N images, H height, W width, C channels; x is (N, H, W, C).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from proxnas.common.seeds import Array, stable_seed

if TYPE_CHECKING:
    from proxnas.domains.images.data.lazy import Lazy

Pixels: TypeAlias = "Array | Lazy"
SAMPLE = 2048  # images that mean and std are measured on where not all are in memory


def statistics(x: Pixels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel; a constant channel gets 1, so that it can be
    divided by."""
    if not isinstance(x, np.ndarray):
        chosen = np.random.RandomState(stable_seed(0, "statistics") % 2**32).permutation(len(x))[
            :SAMPLE
        ]
        x = np.asarray(x[np.sort(chosen)])
    unit = 255.0 if x.dtype == np.uint8 else 1.0
    mean = x.mean(axis=(0, 1, 2), dtype=np.float64)
    chunks = np.array_split(x, math.ceil(len(x) / 256))  # x.std() would hold all of x in float64
    # sqrt(mean (x - mean)^2), (C,), in float64
    std = np.sqrt(
        sum(np.square(chunk - mean).sum(axis=(0, 1, 2)) for chunk in chunks) / x[..., 0].size
    )
    # else constant up to float32's rounding
    std = np.where(std > np.maximum(1e-6 * np.abs(mean), 1e-30), std, unit)
    return tuple((mean / unit).tolist()), tuple((std / unit).tolist())


def averaged(x: Array, side: int) -> Array:
    """The middle square of each image as side x side pixels, each the mean over its area: (N, side,
    side, C)."""
    _, height, width, _ = x.shape
    shorter = min(height, width)
    # the middle square
    top, left = (height - shorter) // 2, (width - shorter) // 2
    shares = _shares(shorter, side)
    found = np.empty((len(x), side, side, x.shape[3]), x.dtype)
    for begin in range(0, len(x), 256):  # as floats all at once would not fit
        square = x[begin : begin + 256, top : top + shorter, left : left + shorter].astype(
            np.float32
        )
        # y = S x S': rows and columns are averaged one after the other
        small = np.einsum("ij,njkc,lk->nilc", shares, square, shares, optimize=True)
        found[begin : begin + 256] = np.rint(small) if x.dtype == np.uint8 else small
    return found


def _shares(many: int, few: int) -> Array:
    """(few, many): which share of each new pixel's length an old one covers; rows add up to 1."""
    # where new pixels begin and end, in old ones
    edges = np.arange(few + 1) * (many / few)
    old = np.arange(many)
    # the length that intervals [edge, next edge) and [old, old + 1) have in common; negative: none
    covered = np.minimum(edges[1:, None], old + 1) - np.maximum(edges[:-1, None], old)
    shares: Array = (covered.clip(min=0) * (few / many)).astype(np.float32)
    return shares
