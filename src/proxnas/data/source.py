"""Where the pixels of a batch come from: one tensor on the device."""

# N images of the part, B of a batch; a table is (pixels, C), the images' pixels one below the other

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from proxnas.data.arrays import Pixels
from proxnas.data.split import Array

Fetched = tuple[Tensor, Tensor, Tensor]
"""The images that were read (B,), a table, and which images of the table they are (B,)."""


class Source(Protocol):
    """Gives the pixels of images by their numbers."""

    def fetch(self, index: Tensor) -> Fetched:
        """The images of `index` (B, on the host)."""

    def each(self, indices: Sequence[Tensor]) -> Iterator[Fetched]:
        """Several batches, one after the other."""

    def expect(self, indices: Iterator[Tensor]) -> None:
        """What `fetch` will be asked for."""

    def close(self) -> None: ...


def source_of(x: Pixels, device: torch.device, workers: int | None) -> Source:
    """The source that suits x."""
    return Resident(np.asarray(x), device)


class Resident:
    """All images of a part on the device."""

    def __init__(self, x: Array, device: torch.device) -> None:
        x = np.ascontiguousarray(x)
        # on the CPU the memory is shared with x, where torch allows that
        self.x = torch.from_numpy(x if x.flags.writeable else x.copy()).to(device)
        self._table = self.x.view(-1, self.x.shape[3])

    def fetch(self, index: Tensor) -> Fetched:
        return index, self._table, index

    def each(self, indices: Sequence[Tensor]) -> Iterator[Fetched]:
        return map(self.fetch, indices)

    def expect(self, indices: Iterator[Tensor]) -> None:
        pass

    def close(self) -> None:
        pass
