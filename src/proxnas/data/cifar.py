"""CIFAR-10 as its authors publish it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proxnas.data.arrays import Images, build
from proxnas.data.split import Array
from proxnas.errors import InputError

CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", "batches.meta.txt")


def read(folder: Path) -> Images:
    """The binary version of CIFAR-10: records of a label byte and the red, green and blue planes of 32 x 32 bytes."""
    if (inner := folder / "cifar-10-batches-bin").is_dir():
        folder = inner
    for file in CIFAR_FILES:
        if not (folder / file).is_file():
            raise InputError(f"{folder}: no file {file}: give the {inner.name} folder of CIFAR-10's binary version")
    *train, test = (_records(folder / file) for file in CIFAR_FILES[:-1])
    classes = tuple((folder / CIFAR_FILES[-1]).read_text(encoding="utf-8", errors="replace").split())
    if len(classes) != 10:
        raise InputError(f"{folder / CIFAR_FILES[-1]}: {len(classes)} class names, not 10: extract the archive again")
    x, y = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    return build({"train": (x, y), "test": test}, classes, "cifar10", str(folder), flip=True)


def _records(path: Path) -> tuple[Array, Array]:
    stored = np.fromfile(path, dtype=np.uint8)
    if not stored.size or stored.size % 3073:
        raise InputError(f"{path}: {stored.size} bytes are not records of 3073: extract the archive again")
    y, planes = stored.reshape(-1, 3073)[:, 0].astype(np.int64), stored.reshape(-1, 3073)[:, 1:]
    if y.max() > 9:
        raise InputError(f"{path}: label {y.max()} is above 9, so this is not CIFAR-10 or damaged: extract it again")
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), y
