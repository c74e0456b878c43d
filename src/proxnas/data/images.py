"""DATA on the command line -> labelled images: a word, a path, or the name of a set on the Hugging Face hub."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import numpy as np

from proxnas.data.arrays import Images, Part, from_arrays, search_parts
from proxnas.data.options import DEFAULTS, LoadOptions
from proxnas.data.split import split, stable_seed
from proxnas.errors import InputError

__all__ = ["Images", "LoadOptions", "Part", "from_arrays", "load", "search_parts", "split", "stable_seed"]

ACCEPTED = "give digits, an .npz file, a CIFAR folder, a folder of class folders, a .parquet file or hf:NAME"


def load(spec: str, options: LoadOptions = DEFAULTS) -> Images:
    """The data set that DATA names."""
    if spec == "digits":
        return _as_stored(_digits(), options)
    path = Path(place := os.path.expanduser(spec))  # os.path: unlike Path's, its questions never raise
    if os.path.isdir(place):
        from proxnas.data import cifar

        return _as_stored(cifar.read(path), options)
    if os.path.isfile(place) and path.suffix.lower() == ".npz":
        from proxnas.data import npz

        return _as_stored(npz.read(path), options)
    if os.path.exists(place) or len(path.parts) > 1 or path.suffix:
        fault = "not a kind of data that can be read" if os.path.exists(place) else "no such file or folder"
        raise InputError(f"{spec!r}: {fault}: {ACCEPTED}")
    hint = "did you mean digits? " if difflib.get_close_matches(spec.lower(), ["digits"], cutoff=0.5) else ""
    raise InputError(f"unknown data {spec[:200]!r}: {hint}{ACCEPTED}")


def _as_stored(images: Images, options: LoadOptions) -> Images:
    """Arrays are not resized: a flag that would do nothing is refused."""
    _, height, width = images.shape
    if options.image_size and (height, width) != (options.image_size, options.image_size):
        raise InputError(
            f"--image-size {options.image_size}: {images.name} is stored as {height} x {width} pixels: "
            "leave it out (it is for image files)"
        )
    return images


def _digits() -> Images:
    """The 1797 hand-written digits that scikit-learn brings along: 8 x 8 pixels of 0 .. 16."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = np.rint(x * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
    return from_arrays({"x_train": x, "y_train": y}, name="digits", where="digits")
