"""Images that are read when asked for."""

# N images, H height, W width, C channels

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from proxnas.data.split import Array


@dataclass(frozen=True, eq=False)
class Lazy:
    """Stands for an array (N, H, W, C) of bytes that would not fit into the memory: shape, slices, images by number."""

    read: Callable[[int], Array]
    """The image of a row, (H, W, C) in uint8."""
    rows: Array
    form: tuple[int, int, int]
    """(H, W, C)."""
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
        return np.stack([self.read(int(row)) for row in self.rows]).astype(dtype or self.dtype, copy=False)
