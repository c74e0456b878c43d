"""DATA on the command line -> labelled images: a word, a path, or the name of a set on the Hugging
Face hub."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.plugins import of_others, resolve
from proxnas.common.say import tell
from proxnas.common.seeds import split, stable_seed
from proxnas.domains.images.data import table
from proxnas.domains.images.data.arrays import Images, Part, bring_to_size, from_arrays
from proxnas.domains.images.data.options import DEFAULTS, LoadOptions

__all__ = [
    "Images",
    "LoadOptions",
    "Part",
    "from_arrays",
    "load",
    "of_python",
    "split",
    "stable_seed",
]

ACCEPTED = (
    "give digits, an .npz file, a CIFAR folder, a folder of class folders, a .csv of files and"
    " labels, a .parquet file or hf:NAME"
)


def load(spec: Any, options: LoadOptions = DEFAULTS) -> Images:
    """The data set that DATA names; in Python DATA may be the data themselves."""
    if not isinstance(spec, str):
        return of_python(spec, options)
    try:
        return _load(spec, options)
    except OSError as error:
        raise InputError(
            f"{spec!r}: cannot be read ({error.strerror or error}): check the path and its"
            " permissions"
        ) from error


def of_python(data: Any, options: LoadOptions = DEFAULTS) -> Images:
    """What a program has in memory: images that were read before, a pair of arrays (x, y), a dict
    of arrays by the names of an .npz file, or a torch Dataset of (image, label)."""
    if isinstance(data, Images):
        return data
    if isinstance(data, tuple | list) and len(data) == 2:
        data = {"x_train": data[0], "y_train": data[1]}
    if isinstance(data, Mapping):
        arrays = {str(name): np.asarray(array) for name, array in data.items()}
        if not {"x_train", "y_train"} <= arrays.keys():
            raise InputError("data: a dict of arrays needs x_train and y_train")
        found = from_arrays(arrays, "data", "data", for_model=options.for_model is not None)
        return bring_to_size(found, options)
    if is_dataset(data):
        from proxnas.domains.images.data.dataset import from_dataset

        return from_dataset(data, options=options)
    raise InputError(
        f"data: a {type(data).__name__} is no data set of images: give arrays (x, y), a torch"
        " Dataset, or what the command takes"
    )


def is_dataset(data: object) -> bool:
    """Whether it gives items by number, as a map-style torch Dataset does."""
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _load(spec: str, options: LoadOptions) -> Images:
    if spec == "digits":
        return bring_to_size(_digits(), options)
    # a reader of another package: NAME:what it takes
    reader, _, rest = spec.partition(":")
    if reader in of_others("data"):
        read = resolve("data", reader, of_others("data")[reader])
        return of_python(read(rest), options)
    if spec.startswith("hf:"):
        from proxnas.domains.images.data import hub

        return hub.read_hub(spec.removeprefix("hf:"), options)
    # before folders and files: a name with ?label=... is no path as it stands
    if table.is_table(spec):
        place, asked = table.split_words(spec)
        if os.path.isfile(os.path.expanduser(place)):
            return table.read_tables({"train": Path(place).expanduser()}, asked, options)
    return _load_path(spec, options)


def _load_path(spec: str, options: LoadOptions) -> Images:
    """What a path names; an InputError for words that are neither a path nor anything else."""
    # os.path: unlike Path's, its questions never raise
    path = Path(place := os.path.expanduser(spec))
    if os.path.isdir(place):
        return _folder(path, options)
    if os.path.isfile(place) and path.suffix.lower() == ".npz":
        from proxnas.domains.images.data import npz

        return bring_to_size(npz.read_npz(path, options), options)
    if os.path.isfile(place) and path.suffix.lower() == ".parquet":
        from proxnas.domains.images.data import hub

        return hub.read_hub(place, options)
    if os.path.exists(place) or len(path.parts) > 1 or path.suffix:
        fault = "no such file or folder"
        if os.path.exists(place):
            fault = "not a kind of data that can be read"
        raise InputError(f"{spec!r}: {fault}: {ACCEPTED}")
    # no path at all: perhaps the one word that is known, misspelt
    hint = ""
    if difflib.get_close_matches(spec.lower(), ["digits"], cutoff=0.5):
        hint = "did you mean digits? "
    raise InputError(f"unknown data {spec[:200]!r}: {hint}{ACCEPTED}")


def _folder(path: Path, options: LoadOptions) -> Images:
    from proxnas.domains.images.data import cifar, folder

    if (found := cifar.find_cifar(path)) is not None:
        return bring_to_size(cifar.read_cifar(*found), options)
    if tables := table.beside(path):
        try:
            return table.read_tables(tables, {}, options)
        except table.NoFiles as error:
            if not folder.has_classes(path):
                raise
            tell(f"{error}; the class folders are taken")
    return folder.read_folder(path, options)


def _digits() -> Images:
    """The 1797 hand-written digits that scikit-learn brings along: 8 x 8 pixels of 0 .. 16."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = np.rint(x * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
    return from_arrays({"x_train": x, "y_train": y}, name="digits", where="digits")
