"""What a program hands over as images: arrays in several forms, or the paths of files."""

# N images, H height, W width, C channels

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.seeds import Array
from proxnas.domains.images.data.pixels import averaged

PATH_COLUMNS = ("path", "paths", "file", "files", "filename", "file_name", "filepath", "image")
"""What the column of paths in a table is called."""
COLOURS = 3


class BadImages(InputError, ValueError):
    """Images that cannot be used, as an error that scikit-learn's tools know too."""


def paths_of(X: Any) -> list[str] | None:
    """The paths, if X is a list, an array or a column of them, or a table with such a column; else
    None."""
    if hasattr(X, "columns"):
        column = path_column(X)
        if column is None:
            return None
        X = X[column]
    if isinstance(X, str | os.PathLike) or not hasattr(X, "__len__") or not len(X):
        return None
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1 and X.dtype.kind in "OU":
        X = X[:, 0]  # as tables come out of scikit-learn's transformers
    if isinstance(X, np.ndarray) and (X.ndim != 1 or X.dtype.kind not in "OU"):
        return None
    values = list(X)
    if not all(isinstance(value, str | os.PathLike) for value in values):
        return None
    return [os.fspath(value) for value in values]


def path_column(table: Any) -> Any:
    """The name of the column of paths in a table: a usual one, or the only one; None: there is
    none."""
    names = {str(name).strip().lower(): name for name in table.columns}
    for name in PATH_COLUMNS:
        if name in names:
            return names[name]
    return table.columns[0] if len(table.columns) == 1 else None


def pixels_of(X: Any, shape: Sequence[int] | None = None) -> Array:
    """(N, H, W) or (N, H, W, C) of uint8 or float32. Rows of pixels are brought to `shape`, (H, W)
    or (H, W, C); without it to a square, if they can be one."""
    if hasattr(X, "toarray"):
        raise BadImages("sparse data was passed in X: images are dense arrays, give X.toarray()")
    x = np.asarray(X)
    if x.dtype.kind == "O":
        try:
            x = x.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise BadImages(f"images are no numbers ({error}): give arrays or paths") from error
    if x.dtype.kind not in "biuf":
        hint = "Complex data not supported: " if x.dtype.kind == "c" else ""
        raise BadImages(f"{hint}images of {x.dtype}: give whole numbers or floats")
    if not x.size:
        empty = "0 feature(s)" if len(x) else "0 sample(s)"
        raise BadImages(f"{empty} (shape={x.shape}) while a minimum of 1 is required.")
    if x.ndim == 2:
        x = x.reshape(len(x), *_form_of(x.shape[1], shape))
    if x.ndim not in (3, 4):
        raise BadImages(
            f"images of shape {x.shape}: give (N, H, W), (N, H, W, C), or rows of pixels and their"
            " shape (reshape your data)"
        )
    return _kind_of(x)


def _form_of(pixels: int, shape: Sequence[int] | None) -> tuple[int, ...]:
    """The form of an image of so many values."""
    if shape is not None:
        if math.prod(shape) != pixels:
            raise BadImages(
                f"rows of {pixels} values are no images of shape {tuple(shape)}: give another shape"
            )
        return tuple(shape)
    for channels in (1, COLOURS):
        # three times a square is never a square: no row can be of both kinds
        side = math.isqrt(pixels // channels)
        if side >= 1 and side * side * channels == pixels:
            return (side, side) if channels == 1 else (side, side, channels)
    raise BadImages(f"rows of {pixels} values are no square images: give shape=(height, width)")


def _kind_of(x: Array) -> Array:
    """Bytes stay bytes, and so do other whole numbers that are such; all else becomes float32."""
    if x.dtype == np.uint8:
        return x
    # int64 of 0 .. 255 is what numpy makes of lists of bytes
    if x.dtype.kind in "biu" and x.min() >= 0 and x.max() <= 255:
        return x.astype(np.uint8)
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    if not np.isfinite(x).all():
        raise BadImages("images hold NaN or infinity (in float32): remove or replace them")
    return x


def fitted_to(x: Array, form: tuple[int, int, int], pixels: str) -> Array:
    """Images like those that a model of `form` (C, H, W) and kind of pixels was fitted to, as it
    reads them: made smaller as in the fit."""
    C, H, W = form
    x = x[..., None] if x.ndim == 3 else x
    if x.shape[3] != C:
        raise BadImages(f"images of {x.shape[3]} channels: the model was fitted to {C}")
    if x.shape[1:3] != (H, W) and H == W <= min(x.shape[1:3]):
        x = averaged(x, H)
    if x.shape[1:3] != (H, W):
        size = f"{x.shape[1]} x {x.shape[2]}"
        raise BadImages(f"images of {size} pixels: the model was fitted to {H} x {W}")
    if pixels == "uint8" and x.dtype != np.uint8:
        raise BadImages(f"images of {x.dtype}: the model was fitted to bytes, 0 to 255")
    return x.astype(pixels, copy=False)
