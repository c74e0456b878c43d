"""Batches of images without end: augmented on the device, the same on every device, and resumable from one integer."""

# N images of the part, B of a batch, H height, W width, C channels

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from proxnas.data.images import Images, Part, stable_seed
from proxnas.errors import InputError
from proxnas.types import Batch, State


class ImageBatches:
    """One part of a data set, resident on the device as one padded (N, H, W, C) tensor of bytes (or floats)."""

    def __init__(
        self,
        images: Images,
        part: Part,
        *,
        shift: bool | None = None,
        flip: bool | None = None,
        cutout: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """`shift` and `flip` default to what suits `images`; `cutout` is the side of the square that is hidden."""
        x, y = part
        _, self.height, self.width = images.shape
        if not len(y):
            raise InputError(f"{images.name}: this part has no images: give more images a class")
        if not 0 <= cutout <= min(self.height, self.width):
            raise InputError(f"--cutout {cutout}: give a side of 0 to {min(self.height, self.width)} pixels")
        self.shift = images.shift if shift is None else shift
        self.flip = images.flip if flip is None else flip
        self.cutout = cutout
        self.pad = tuple(max(1, side // 8) if self.shift else 0 for side in (self.height, self.width))
        self.device = torch.device(device)
        # zeros are black: images are padded before they are normalised
        padded = np.pad(x, ((0, 0), *((pad, pad) for pad in self.pad), (0, 0)))
        self.x = torch.from_numpy(padded).to(self.device)
        self.y = torch.from_numpy(y.astype(np.int64)).to(self.device)
        unit = 255.0 if x.dtype == np.uint8 else 1.0
        self._mean = torch.tensor(images.mean, dtype=torch.float64).mul(unit).float().to(self.device)
        self._std = torch.tensor(images.std, dtype=torch.float64).mul(unit).float().to(self.device)
        self._rows = torch.arange(self.height, device=self.device)
        self._columns = torch.arange(self.width, device=self.device)

    def __len__(self) -> int:
        return len(self.y)

    def augmented(self, index: Tensor, generator: torch.Generator) -> Batch:
        """The images of `index` (B, on the host): shifted, mirrored and partly hidden at random."""
        draws = (
            self._draw(2 * self.pad[0] + 1, index, generator),
            self._draw(2 * self.pad[1] + 1, index, generator),
            self._draw(2 if self.flip else 1, index, generator),
            self._draw(self.height, index, generator),
            self._draw(self.width, index, generator),
        )
        index, top, left, mirrored, *centre = torch.stack((index, *draws)).to(self.device, non_blocking=True)
        x = self._crop(index, top, left, mirrored)
        if self.cutout:
            rows, columns = self._hidden(self._rows, centre[0]), self._hidden(self._columns, centre[1])
            x.masked_fill_((rows[:, :, None] & columns[:, None, :])[..., None], 0.0)
        return self._batch(x, index)

    def evaluation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The whole part once, as it is, in batches of equal size (to within one) and mixed classes.

        Search networks normalise by the batch, and the statistics of a small remainder or of one class would be poor.
        """
        _check_batch_size(batch_size)
        order = _shuffled(len(self), stable_seed(0, "evaluation")).to(self.device)
        return (self._plain(index) for index in order.tensor_split(-(-len(self) // batch_size)))

    def _plain(self, index: Tensor) -> Batch:
        top, left = (torch.full_like(index, pad) for pad in self.pad)
        return self._batch(self._crop(index, top, left, torch.zeros_like(index)), index)

    @staticmethod
    def _draw(below: int, index: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randint(below, index.shape, generator=generator)

    def _crop(self, index: Tensor, top: Tensor, left: Tensor, mirrored: Tensor) -> Tensor:
        """Normalised (B, H, W, C) from row `top` and column `left` of the padded images; all arguments are (B,)."""
        _, padded_height, padded_width, channels = self.x.shape
        rows = index[:, None] * padded_height + top[:, None] + self._rows
        columns = left[:, None] + torch.where(mirrored[:, None] == 1, self._columns.flip(0), self._columns)
        # selecting whole pixels of a flat list is four times faster than three index tensors
        pixels = (rows[:, :, None] * padded_width + columns[:, None, :]).flatten()
        x = self.x.view(-1, channels).index_select(0, pixels).view(len(index), self.height, self.width, channels)
        return x.to(torch.float32).sub_(self._mean).div_(self._std)

    def _hidden(self, line: Tensor, centre: Tensor) -> Tensor:
        """Which rows (or columns) the square covers, (B, H): those inside the image, as in Cutout."""
        start = centre[:, None] - self.cutout // 2
        return (line >= start) & (line < start + self.cutout)

    def _batch(self, x: Tensor, index: Tensor) -> Batch:
        return Batch(x.permute(0, 3, 1, 2), self.y[index])


class Stream:
    """Augmented batches for ever; each epoch is a new shuffle, and its incomplete last batch is dropped.

    Epoch e is shuffled by (seed, name, e) and batch t augmented by (seed, name, t), so t is the whole state.
    """

    def __init__(self, part: ImageBatches, batch_size: int, seed: int, name: str = "") -> None:
        """`name` keeps streams of the same seed independent."""
        _check_batch_size(batch_size)
        if batch_size > len(part):
            raise InputError(f"--batch-size {batch_size}: this part has {len(part)} images: give at most {len(part)}")
        self.part, self.batch_size, self.seed, self.name = part, batch_size, seed, name
        self.delivered = 0
        self._order: tuple[int, Tensor] | None = None  # epoch, its shuffle

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.part) // self.batch_size

    def next(self) -> Batch:
        epoch, position = divmod(self.delivered, len(self))
        index = self._epoch_order(epoch)[position * self.batch_size : (position + 1) * self.batch_size]
        # random numbers are drawn on the host, where they are the same whatever the device
        generator = torch.Generator().manual_seed(stable_seed(self.seed, f"{self.name}/augment", self.delivered))
        self.delivered += 1
        return self.part.augmented(index, generator)

    def state_dict(self) -> State:
        return {"delivered": self.delivered}

    def load_state_dict(self, state: State) -> None:
        self.delivered = int(state["delivered"])

    def _epoch_order(self, epoch: int) -> Tensor:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, _shuffled(len(self.part), stable_seed(self.seed, f"{self.name}/order", epoch))
        return self._order[1]


def _shuffled(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise InputError(f"--batch-size {batch_size}: give at least 1")
