"""What a data set holds, before anything is made of it: how many images of which classes and sizes,
and what is odd about them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from proxnas.common.say import list_names
from proxnas.common.seeds import Array
from proxnas.domains.images.data.arrays import Images
from proxnas.domains.images.data.pixels import Pixels

UNEQUAL = 3.0
"""Times that the largest class is larger than the smallest, from which on it is said."""


def data_sheet(images: Images) -> dict[str, Any]:
    """The sheet as JSON values."""
    C, H, W = images.shape
    parts = dict(_parts(images))
    return {
        "images": {part: len(y) for part, (_, y) in parts.items()},
        "target": images.target.kind,
        "pixels": [W, H, C],
        "stored": dict(images.stored),
        **images.target.sheet(images.y_train, images.classes),
        "duplicates": duplicates({part: x for part, (x, _) in parts.items()}),
        "broken": len(images.skipped),
    }


def _parts(images: Images) -> Iterator[tuple[str, tuple[Pixels, Array]]]:
    yield "train", (images.x_train, images.y_train)
    if images.x_valid is not None and images.y_valid is not None:
        yield "valid", (images.x_valid, images.y_valid)
    yield "test", (images.x_test, images.y_test)


def duplicates(parts: Mapping[str, Pixels]) -> dict[str, int] | None:
    """'train in test' -> images of test that are in train too, pixel by pixel; likewise of all
    pairs of parts. None where the images are not in memory."""
    if not all(isinstance(x, np.ndarray) for x in parts.values()):
        return None
    seen = {part: _digests(np.asarray(x)) for part, x in parts.items()}
    found = {}
    for one, other in combinations(parts, 2):
        there = set(seen[one])
        found[f"{one} in {other}"] = sum(digest in there for digest in seen[other])
    return found


def _digests(x: Array) -> list[bytes]:
    # 16 bytes an image: two of them are alike by chance once in 2^64 images or so
    return [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in x]


def sheet_lines(sheet: Mapping[str, Any]) -> list[str]:
    """The sheet for people, a line each."""
    parts = ", ".join(f"{count:,} {part}" for part, count in sheet["images"].items())
    W, H, C = sheet["pixels"]
    lines = [f"{parts} images of {W} x {H} pixels, {'grey' if C == 1 else f'{C} channels'}"]
    if stored := sheet["stored"]:
        (w, h), (wide, high) = stored["smallest"], stored["largest"]
        kinds = [f"{count:,} {kind}" for kind, count in stored["kinds"].items() if count]
        to = "" if (w, h) == (wide, high) else f" to {wide} x {high}"
        lines.append(f"stored as {w} x {h}{to} pixels ({', '.join(kinds)})")
    if "ranges" in sheet:
        lines += [
            f"{list_names([n])} from {a:.4g} to {b:.4g}" for n, (a, b) in sheet["ranges"].items()
        ]
    if "largest_class" in sheet:
        (large, most), (small, least) = sheet["largest_class"], sheet["smallest_class"]
        to = "" if least == most else f" to {most:,}"
        text = f"{sheet['classes']:,} {sheet['target']} of {least:,}{to} training images"
        if most > UNEQUAL * max(least, 1):
            text += f": unbalanced, {list_names([large])} has most and {list_names([small])} fewest"
        lines.append(text)
    if sheet["broken"]:
        are = "image is" if sheet["broken"] == 1 else "images are"
        lines.append(f"{sheet['broken']:,} broken {are} left out")
    return lines + sheet_warnings(sheet)


def sheet_warnings(sheet: Mapping[str, Any]) -> list[str]:
    """What makes the figures of a test doubtful."""
    found = []
    for pair, count in (sheet["duplicates"] or {}).items():
        one, other = pair.split(" in ")
        if count:
            found.append(
                f"{count:,} of {sheet['images'][other]:,} {other} images are in {one} too, pixel by"
                f" pixel: figures on {other} are too good"
            )
    return found
