"""CIFAR-10 and CIFAR-100 as their authors publish them, in the binary and in the Python version."""

# N images; planes is (N, 3072): the red, green and blue planes of 32 x 32 bytes

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.seeds import Array
from proxnas.domains.images.data.arrays import Images, build_images
from proxnas.domains.images.data.unpickle import read_pickle

AGAIN = "extract the archive again"
Labelled = tuple[Array, Array]  # x and y


@dataclass(frozen=True)
class Layout:
    """One of the four archives."""

    folder: str
    """The name it is extracted to."""
    name: str
    classes: int
    train: tuple[str, ...]
    test: str
    names: str
    """The file with the names of the classes."""
    read: Callable[[Path, int], Labelled]
    read_names: Callable[[Path], Any]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.names)


def find_cifar(folder: Path) -> tuple[Path, Layout] | None:
    """The CIFAR in a folder, or in one inside it; None if there is none."""
    for layout in LAYOUTS:
        # the folder itself, even if it was renamed; or one above it
        if folder.name == layout.folder or (folder / layout.train[0]).is_file():
            return folder, layout
    inside = [
        (folder / layout.folder, layout) for layout in LAYOUTS if (folder / layout.folder).is_dir()
    ]
    if len({layout.name for _, layout in inside}) > 1:
        places = ", ".join(str(place) for place, _ in inside)
        raise InputError(f"{folder}: both CIFAR-10 and CIFAR-100 are in it: give one of {places}")
    return inside[0] if inside else None


def read_cifar(folder: Path, layout: Layout) -> Images:
    """The images of one archive."""
    for file in layout.files:
        if not (folder / file).is_file():
            raise InputError(f"{folder}: no file {file}, which belongs to {layout.folder}: {AGAIN}")
    names = layout.read_names(folder / layout.names)
    if not isinstance(names, list) or not all(
        isinstance(name, str) and name.isprintable() for name in names
    ):
        raise InputError(f"{folder / layout.names}: no list of class names: {AGAIN}")
    if len(names) != layout.classes:
        raise InputError(
            f"{folder / layout.names}: {len(names)} class names, not {layout.classes}: {AGAIN}"
        )
    # the last one is the test part
    parts = [layout.read(folder / file, layout.classes) for file in (*layout.train, layout.test)]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts[:-1], strict=True))
    return build_images(
        {"train": (x, y), "test": parts[-1]}, names, layout.name, str(folder), flip=True
    )


def _binary(path: Path, classes: int) -> Labelled:
    """Records of label bytes (CIFAR-100: the coarse one, then the fine one) and planes."""
    # bytes of labels before the 3072 of an image
    stored, head = np.fromfile(path, dtype=np.uint8), 1 if classes == 10 else 2
    if not stored.size or stored.size % (head + 3072):
        raise InputError(f"{path}: {stored.size} bytes are not records of {head + 3072}: {AGAIN}")
    records = stored.reshape(-1, head + 3072)
    return _with_labels(records[:, head:], records[:, head - 1], classes, path)


def _python(path: Path, classes: int) -> Labelled:
    """A pickled dict with the planes as one array and the labels as a list."""
    key = "labels" if classes == 10 else "fine_labels"
    stored = read_pickle(path.read_bytes(), str(path))
    planes, labels = stored.get("data"), stored.get(key)
    if (
        not isinstance(planes, np.ndarray)
        or planes.dtype != np.uint8
        or planes.shape[1:] != (3072,)
    ):
        raise InputError(f"{path}: its data are no rows of 3072 bytes: {AGAIN}")
    if not isinstance(labels, list) or any(
        type(label) is not int or not 0 <= label < 2**31 for label in labels
    ):
        raise InputError(f"{path}: its {key} are no list of numbers: {AGAIN}")
    if len(labels) != len(planes):
        raise InputError(f"{path}: {len(planes)} images but {len(labels)} {key}: {AGAIN}")
    return _with_labels(planes, np.array(labels), classes, path)


def _with_labels(planes: Array, y: Array, classes: int, path: Path) -> Labelled:
    if y.max() >= classes:
        raise InputError(
            f"{path}: label {y.max()} is above {classes - 1}, so this is no CIFAR-{classes}:"
            f" {AGAIN}"
        )
    # (N, 3, 32, 32) -> (N, 32, 32, 3)
    x = np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return x, y.astype(np.int64)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split()


def _pickle_reader(key: str) -> Callable[[Path], Any]:
    return lambda path: read_pickle(path.read_bytes(), str(path)).get(key)


BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
BATCH_FILES = tuple(f"{batch}.bin" for batch in BATCHES)
LAYOUTS = (
    Layout(
        "cifar-10-batches-bin",
        "cifar10",
        10,
        BATCH_FILES,
        "test_batch.bin",
        "batches.meta.txt",
        _binary,
        _lines,
    ),
    Layout(
        "cifar-10-batches-py",
        "cifar10",
        10,
        BATCHES,
        "test_batch",
        "batches.meta",
        _python,
        _pickle_reader("label_names"),
    ),
    Layout(
        "cifar-100-binary",
        "cifar100",
        100,
        ("train.bin",),
        "test.bin",
        "fine_label_names.txt",
        _binary,
        _lines,
    ),
    Layout(
        "cifar-100-python",
        "cifar100",
        100,
        ("train",),
        "test",
        "meta",
        _python,
        _pickle_reader("fine_label_names"),
    ),
)
