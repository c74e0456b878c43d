"""Images from the Hugging Face hub, or from parquet files as the hub keeps them, through the
package `datasets`.

hf:NAME?config=C&label=COLUMN&image=COLUMN&train=SPLIT&valid=SPLIT&test=SPLIT, everything from ? on
as needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from proxnas.common.errors import InputError, unknown
from proxnas.common.seeds import Array
from proxnas.domains.hub import is_local, load_hub
from proxnas.domains.images.data.arrays import Images, short_name
from proxnas.domains.images.data.forms import reindex_labels
from proxnas.domains.images.data.gather import gather
from proxnas.domains.images.data.lazy import TRACED
from proxnas.domains.images.data.options import LoadOptions
from proxnas.domains.images.data.picture import BrokenImage, open_picture

LABELS = ("label", "labels", "class", "target", "y", "fine_label")


def read_hub(spec: str, options: LoadOptions) -> Images:
    """The images of a set on the hub, a parquet file, or a folder of parquet files."""
    name, chosen, splits = load_hub(spec, ("image", "label"))
    image, label = _columns(splits["train"], chosen, f"hf:{name}")
    labels = {part: _labels(split, label, f"hf:{name}: {part}") for part, split in splits.items()}
    known, y = reindex_labels(labels, f"hf:{name}", bool(options.for_model))
    names = getattr(splits["train"].features[label], "names", None)
    classes = [str(names[number] if names else number) for number in known.tolist()]
    parts = {
        part: (Column.of(split, image, part, not is_local(name)), y[part])
        for part, split in splits.items()
    }
    return gather(parts, classes, short_name(Path(name)), f"hf:{name}", options)


@dataclass(frozen=True)
class Column:
    """A column of images, each as the content of its file."""

    split: Any
    column: str
    part: str
    may_name_files: bool
    """Whether an image may be a path in place of a content: in sets that the hub's own package has
    put on this disk."""

    @classmethod
    def of(cls, split: Any, column: str, part: str, may_name_files: bool) -> Column:
        from datasets import Image as ImageFeature

        if isinstance(split.features[column], ImageFeature):
            # we decode, with our limits
            split = split.cast_column(column, ImageFeature(decode=False))
        return cls(split.select_columns([column]), column, part, may_name_files)

    def __len__(self) -> int:
        return len(self.split)

    def name(self, number: int) -> str:
        return f"{self.part}[{number}]"

    def open(self, number: int) -> Image.Image:
        stored = self.split[number][self.column]
        # the hub's form is {bytes, path}; other writers of parquet put plain bytes
        content = stored.get("bytes") if isinstance(stored, dict) else stored
        if isinstance(content, bytes):
            return open_picture(content)
        path = stored.get("path") if isinstance(stored, dict) else None
        if isinstance(path, str) and self.may_name_files:
            return open_picture(path)
        raise BrokenImage("no content of an image file")

    def trace(self, number: int, content: bool) -> bytes:
        stored = self.split[number][self.column] if content else None
        found = stored.get("bytes") if isinstance(stored, dict) else stored
        return f"{len(found)}/".encode() + found[:TRACED] if isinstance(found, bytes) else b""


def _columns(split: Any, chosen: dict[str, str], where: str) -> tuple[str, str]:
    """The columns of images and of labels, found by their types."""
    from datasets import ClassLabel
    from datasets import Image as ImageFeature

    features = split.features
    for key in ("image", "label"):
        if key in chosen and chosen[key] not in features:
            raise InputError(f"{where}: {unknown('column', chosen[key], features)}")
    images = [name for name, kind in features.items() if isinstance(kind, ImageFeature)]
    # columns of the hub's own types first, then what looks like one
    images = images or [name for name, kind in features.items() if _is_content(kind)]
    labels = [name for name, kind in features.items() if isinstance(kind, ClassLabel)]
    labels = labels or [name for name in features if name in LABELS]
    return _one("image", images, chosen, features, where), _one(
        "label", labels, chosen, features, where
    )


def _is_content(kind: Any) -> bool:
    """An image file as plain bytes, as others than the hub's package write it."""
    return getattr(kind, "dtype", None) == "binary" or (isinstance(kind, dict) and "bytes" in kind)


def _one(what: str, found: list[str], chosen: dict[str, str], features: Any, where: str) -> str:
    if what in chosen:
        return chosen[what]
    if len(found) != 1:
        number = (
            f"columns {', '.join(found)} could be the {what}" if found else f"no column of {what}s"
        )
        raise InputError(
            f"{where}: {number} (columns: {', '.join(features)}): give {where}?{what}=COLUMN"
        )
    return found[0]


def _labels(split: Any, column: str, where: str) -> Array:
    labels = list(split[column]) if column in split.features else [None]
    if any(label is None or label == -1 for label in labels):
        raise InputError(
            f"{where}: no labels: leave the part out (?test=) or choose another split"
            " (?test=validation)"
        )
    if not labels or not all(
        type(label) is type(labels[0]) and isinstance(label, int | str) for label in labels
    ):
        raise InputError(
            f"{where}: labels in column {column} are no whole numbers or words: give another column"
        )
    return np.array(labels)
