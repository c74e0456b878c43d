"""Images that are read when asked for: one after the other, or many at once by threads."""

# N images, H height, W width, C channels

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
from PIL import Image

from proxnas.common.errors import AboutOptions, InputError, escape
from proxnas.common.seeds import Array
from proxnas.domains.images.data.picture import BrokenImage, open_picture, pixels

TOGETHER = 1024  # images that threads decode before the next are begun
ATTEMPTS = 100
TRACED = 2**16  # bytes of a file that tell it from another
REMEDY = "replace or remove it, or give {skip_broken}"


class Pictures(Protocol):
    """Pictures by number, not decoded yet. Workers get a copy, so it must be possible to pickle
    them."""

    def __len__(self) -> int: ...

    def name(self, number: int) -> str:
        """What errors call it."""

    def open(self, number: int) -> Image.Image:
        """To be closed by the caller; a BrokenImage if there is none."""

    def trace(self, number: int, content: bool) -> bytes:
        """What another picture would not have: name and size, and if asked for the beginning of its
        content."""


@dataclass(frozen=True)
class Files:
    """Image files."""

    paths: tuple[str, ...]
    root: str = ""
    """The folder of all the data, which may be moved."""

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, number: int) -> str:
        path = self.paths[number]
        return path if path.isprintable() else repr(path)

    def open(self, number: int) -> Image.Image:
        return open_picture(self.paths[number])

    def trace(self, number: int, content: bool) -> bytes:
        path = self.paths[number]
        inside = os.fsencode(path.removeprefix(self.root).replace(os.sep, "/"))
        try:
            named = inside + f"/{os.path.getsize(path)}/".encode()
            if not content:
                return named
            with open(path, "rb") as file:
                return named + file.read(TRACED)
        except OSError:  # a broken image: that is for the reader to say
            return inside


@dataclass(frozen=True, eq=False)
class Lazy:
    """Stands for an array (N, H, W, C) of bytes that would not fit into the memory: shape, slices,
    images by number."""

    pictures: Pictures
    rows: Array
    """Which of the pictures, (N,)."""
    form: tuple[int, int, int]
    """(H, W, C)."""
    resize: bool
    skip_broken: bool
    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.rows), *self.form

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: slice | Array) -> Lazy:
        return replace(self, rows=self.rows[which])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Reads all of it: for a few images only."""
        found = np.empty(self.shape, np.uint8)
        for number, (_, image) in enumerate(run_in_threads(self.sound, range(len(self)))):
            found[number] = image
        return found.astype(dtype or self.dtype, copy=False)

    def name(self, number: int) -> str:
        """The picture's name, for people."""
        return self.pictures.name(int(self.rows[number]))

    def read(self, number: int) -> Array:
        """One image, or a BrokenImage."""
        with self.pictures.open(int(self.rows[number])) as image:
            return pixels(image, self.form, self.resize)

    def sound(self, number: int) -> tuple[int, Array]:
        """One image and its number; if it is broken an InputError, or with skip_broken the next
        that is not."""
        for attempt in range(ATTEMPTS):
            candidate = (number + attempt) % len(self)
            try:
                return candidate, self.read(candidate)
            except BrokenImage as error:
                if not self.skip_broken:
                    broken = f"{self.name(candidate)}: broken image ({error})"
                    raise AboutOptions(f"{escape(broken)}: {REMEDY}") from error
        raise InputError(
            f"{self.name(number)}: broken image, and so are the next {ATTEMPTS}: mend the data"
        )


def run_in_threads(function: Any, numbers: range) -> Iterator[Any]:
    """function(number) for each in turn; decoding lets other threads run."""
    waiting = iter(numbers)
    # in pieces: `map` of a pool takes all of its arguments at once, and holds all of its results
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        while together := list(islice(waiting, TOGETHER)):
            yield from pool.map(function, together)
