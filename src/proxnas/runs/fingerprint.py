"""Whether data are still the same: a digest each of their images, their labels and their classes.

Labels and classes are taken whole. Of many images a fixed sample is read, so that a large set takes
a second or two; files are also known by their names within the data and their sizes, but not by
their dates: a copy is the same data. What a reader makes of the files (sizes, skipped ones) plays
no part: it is the same data at 32 pixels and at 224.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from proxnas.common.seeds import Array

Fingerprint = Mapping[str, str]
"""images, labels, classes (or the parts of a text) -> a digest."""
MOST_BYTES = 256 * 2**20
"""Of arrays that are read: of larger ones every so many-th image."""
MOST_FILES = 4096
"""Pictures whose content is read, or every so many-th."""


class Traced(Protocol):
    """Pictures that are not in memory."""

    def __len__(self) -> int: ...

    def trace(self, number: int, content: bool) -> bytes:
        """What another picture would not have: name and size, and if asked for the beginning of its
        content."""


def of_arrays(parts: Mapping[str, tuple[Array, Array]], classes: Sequence[str]) -> dict[str, str]:
    """Of images in memory."""
    # rounded up; 1 for data of no bytes too
    step = -(-sum(x.nbytes for x, _ in parts.values()) // MOST_BYTES) or 1
    images = hashlib.blake2b(digest_size=16)
    for part, (x, _) in parts.items():
        feed_rows(images, part, x, step)
    return {"images": images.hexdigest(), **_label_digests(parts, classes)}


def of_pictures(
    parts: Mapping[str, tuple[Traced, Array]], classes: Sequence[str]
) -> dict[str, str]:
    """Of images in files or in tables."""
    step = -(-sum(len(y) for _, y in parts.values()) // MOST_FILES) or 1
    images = hashlib.blake2b(digest_size=16)
    for part, (pictures, _) in parts.items():
        images.update(f"{part}/{len(pictures)}/".encode())
        for number in range(len(pictures)):
            images.update(pictures.trace(number, content=number % step == 0))
    return {"images": images.hexdigest(), **_label_digests(parts, classes)}


def of_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Of the parts of a text."""
    return {
        f"{part} text": (
            hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        )
        for part, text in texts.items()
    }


def feed_rows(digest: Any, name: str, x: Array, step: int) -> None:
    """Shape and kind of an array, and every so many-th of its rows."""
    digest.update(f"{name}/{x.shape}/{x.dtype.str}/".encode())
    rows = max(1, 2**24 // max(1, x[:1].nbytes))  # 16 MB at a time
    for begin in range(0, len(x), rows * step):
        # every step-th row, a block of them at a time
        digest.update(np.ascontiguousarray(x[begin : begin + rows * step : step]).data)


def differences(known: Any, found: Fingerprint) -> list[str]:
    """What is in both and not the same, in words."""
    old = known if isinstance(known, Mapping) else {}
    return [name for name, digest in found.items() if name in old and old[name] != digest]


def _label_digests(
    parts: Mapping[str, tuple[Any, Array]], classes: Sequence[str]
) -> dict[str, str]:
    labels = hashlib.blake2b(digest_size=16)
    for part, (_, y) in parts.items():
        # in one width and order of bytes, however a reader keeps them
        feed_rows(labels, part, y.astype("<f8" if y.dtype.kind == "f" else "<i8"), 1)
    names = hashlib.blake2b("\0".join(classes).encode("utf-8", "surrogatepass"), digest_size=16)
    return {"labels": labels.hexdigest(), "classes": names.hexdigest()}
