"""The order in which examples come: drawn from (seed, name, number), so that one number is its
whole state."""

from __future__ import annotations

import torch
from torch import Tensor

from proxnas.common.seeds import stable_seed


class Order:
    """Which images are in which batch."""

    def __init__(self, images: int, batch_size: int, seed: int, name: str) -> None:
        self.images, self.batch_size, self.seed, self.name = images, batch_size, seed, name
        self._epochs: dict[int, Tensor] = {}  # epoch -> its shuffle

    def __len__(self) -> int:
        """Batches an epoch."""
        # the last images of a shuffle that fill no batch are left out, other ones in each epoch
        return self.images // self.batch_size

    def index(self, t: int) -> Tensor:
        """The images of batch t."""
        epoch, position = divmod(t, len(self))
        return self._epoch(epoch)[position * self.batch_size : (position + 1) * self.batch_size]

    def _epoch(self, epoch: int) -> Tensor:
        if epoch not in self._epochs:
            # two are kept: batches are read ahead beyond the end of an epoch
            self._epochs = {e: order for e, order in self._epochs.items() if e == epoch - 1}
            self._epochs[epoch] = _shuffle(
                self.images, stable_seed(self.seed, f"{self.name}/order", epoch)
            )
        return self._epochs[epoch]


def _shuffle(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))
