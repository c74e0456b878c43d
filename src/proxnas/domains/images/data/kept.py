"""Images that a program holds, kept in a file that a run can go on with."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.seeds import Array
from proxnas.domains.images.data.arrays import Images
from proxnas.domains.images.data.forms import PARTS
from proxnas.domains.images.data.given import path_column, paths_of
from proxnas.domains.images.data.images import of_python


def is_of_paths(data: Any) -> bool:
    """Whether images are given by their paths: in a table, or in a pair with their labels."""
    if isinstance(data, tuple | list) and len(data) == 2:
        return paths_of(data[0]) is not None
    return hasattr(data, "columns") and paths_of(data) is not None


def csv_of(data: Any) -> bytes:
    """A .csv file of the table, or of the pair, whose paths are valid from everywhere."""
    if isinstance(data, tuple | list):
        names, columns = ["file", "label"], [paths_of(data[0]) or [], list(data[1])]
    else:
        names = [str(name) for name in data.columns]
        columns = [list(data[name]) for name in data.columns]
        at = names.index(str(path_column(data)))
        names[at], columns[at] = "file", paths_of(data) or []
    at = names.index("file")
    # a run may be resumed from elsewhere
    columns[at] = [os.path.abspath(path) for path in columns[at]]
    if len({len(column) for column in columns}) > 1:
        raise InputError("data: not as many labels as paths: give one label an image")
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(names)
    rows.writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


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
