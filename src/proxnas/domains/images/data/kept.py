"""Images that a program holds, kept in a file that a run can go on with."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.seeds import Array
from proxnas.domains.images.data.arrays import PARTS, Images
from proxnas.domains.images.data.images import of_python


def npz_of(data: Any) -> bytes:
    """An .npz file: arrays as they are given; what a Dataset gives, split as it would be for a
    training."""
    if isinstance(data, tuple | list) and len(data) == 2:
        data = {"x_train": data[0], "y_train": data[1]}
    if isinstance(data, Mapping):
        arrays: dict[str, Any] = {str(name): np.asarray(array) for name, array in data.items()}
    else:
        arrays = _arrays_of(of_python(data))
    for name, array in arrays.items():
        if array.dtype == object:  # it would be pickled
            raise InputError(f"{name}: an array of Python objects: give numbers")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _arrays_of(images: Images) -> dict[str, Array]:
    arrays: dict[str, Array] = {"classes": np.array(images.classes, dtype=np.str_)}
    for part in PARTS:
        x, y = getattr(images, f"x_{part}"), getattr(images, f"y_{part}")
        if x is None:
            continue
        if not isinstance(x, np.ndarray):
            raise InputError(
                f"data: {images.name} is too large for the memory: keep it as a folder of class"
                " folders and give its path"
            )
        arrays |= {f"x_{part}": x, f"y_{part}": y}
    return arrays
