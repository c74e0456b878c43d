"""Image files, or folders of them, through a trained model: what can be read is answered, the rest
is named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.say import list_names
from proxnas.domains.images.data.folder import image_files
from proxnas.domains.images.data.picture import BrokenImage, Head
from proxnas.domains.images.model import PREDICT_BATCH, Model, picture
from proxnas.training.answers import Answer, Value

NAMED = 20
"""Images that could not be read which an error names."""


@dataclass(frozen=True)
class ImageRow:
    """What was made of one image."""

    image: str
    answers: Sequence[Answer | Value] = ()
    error: str = ""
    """Why it could not be read."""


@dataclass
class Seen:
    """What is to be said when all images are done."""

    images: int = 0
    bad: list[ImageRow] = field(default_factory=list)
    resized: list[Head] = field(default_factory=list)
    greyed: int = 0

    def count(self, row: ImageRow) -> ImageRow:
        self.images += 1
        if row.error:
            self.bad.append(row)
        return row

    def note(self, head: Head, shape: tuple[int, int, int]) -> None:
        channels, height, width = shape
        # resizing is no fault, but the figures of a test do not hold for such images
        if (head.height, head.width) != (height, width):
            self.resized.append(head)
        self.greyed += channels == 1 and not head.grey

    def warning(self, shape: tuple[int, int, int]) -> str:
        """How far the images were from those that the model reads; empty: not at all."""
        _, height, width = shape
        lines = []
        if self.resized:
            largest = max(self.resized, key=lambda head: head.height * head.width)
            lines.append(
                f"{len(self.resized)} of {self.images} images were brought to the {width} x"
                f" {height} pixels that the model reads (the largest from {largest.width} x"
                f" {largest.height})"
            )
        if self.greyed:
            lines.append(
                f"{self.greyed} of {self.images} lost their colours: the model reads grey images"
            )
        return "; ".join(lines)

    def check(self) -> None:
        """An InputError that names the images which could not be read."""
        if not self.bad:
            return
        reasons = list_names([f"{row.image}: {row.error}" for row in self.bad], NAMED)
        if self.images == len(self.bad):
            rest = ""
        else:
            count = self.images - len(self.bad)
            rest = f", {count} other{' is' if count == 1 else 's are'} answered"
        raise InputError(
            f"{reasons}: {len(self.bad)} of {self.images} images not read{rest}: give image files"
        )


def predict(model: Model, places: Sequence[str], top: int, seen: Seen) -> Iterator[ImageRow]:
    """A row for each file, and for each image in a folder and the folders in it, in order."""
    model.check_files()
    waiting = chain.from_iterable(map(_find_images, places))
    while batch := list(islice(waiting, PREDICT_BATCH)):
        rows = [_read(row, model, seen) for row in batch]
        # the sound ones are answered together; their answers are dealt out in the order of the rows
        arrays = [array for _, array in rows if array is not None]
        answers = iter(model.predict(np.stack(arrays), top) if arrays else [])
        for row, array in rows:
            yield seen.count(row if array is None else ImageRow(row.image, next(answers)))


def _find_images(place: str) -> Iterator[ImageRow]:
    if not os.path.isdir(place):
        yield ImageRow(place)
        return
    files = image_files(place)
    yield from map(ImageRow, files)
    if not files:
        yield ImageRow(place, error="no images in this folder")


def _read(row: ImageRow, model: Model, seen: Seen) -> tuple[ImageRow, Any]:
    """(row, pixels); no pixels for an image that cannot be read, and then the row says why."""
    if row.error:
        return row, None
    try:
        array, head = picture(row.image, model.shape)
    except BrokenImage as error:
        return ImageRow(row.image, error=str(error)), None
    seen.note(head, model.shape)
    return row, array
