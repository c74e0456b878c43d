"""Batches of images without end: augmented on the device, the same on every device, and resumable
from one integer."""

# N images of the part, B of a batch, H height, W width, C channels

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count

import numpy as np
import torch
from torch import Tensor

from proxnas.common.errors import InputError, OptionError
from proxnas.common.launch import here
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Batch, State
from proxnas.domains.images.data.arrays import Images, Part
from proxnas.domains.images.data.augment import (
    AS_SUITS,
    Augment,
    colours,
    geometry,
    recoloured,
    warped,
)
from proxnas.domains.images.data.source import source_of
from proxnas.runs.order import Order, _shuffle

EVERY = slice(None)
LEAST = 2
"""Images that a process must have of a batch: batch statistics of one are none."""


class ImageBatches:
    """One part of a data set: resident on the device as one tensor, or read ahead by workers if it
    is too large."""

    def __init__(
        self,
        images: Images,
        part: Part,
        augment: Augment = AS_SUITS,
        device: torch.device | str = "cpu",
        workers: int | None = None,
    ) -> None:
        """`workers`: processes that read images which are not in memory; None: by the number of
        processors."""
        x, y = part
        _, self.height, self.width = images.shape
        if not len(y):
            raise InputError(f"{images.name}: this part has no images: give more images a class")
        self.augment = augment.settled(images)
        # how far an image may be shifted, in rows and columns; 0: not at all
        self.pad = tuple(
            max(1, int(side * self.augment.reach)) if self.augment.shift else 0
            for side in (self.height, self.width)
        )
        self.device = torch.device(device)
        self.source = source_of(x, self.device, workers)
        self.y = torch.from_numpy(y.astype(np.float32 if y.dtype.kind == "f" else np.int64))
        self._labels = self.y.to(self.device)
        # mean and std are of x / 255, the pixels are of 0 .. 255
        self._unit = 255.0 if x.dtype == np.uint8 else 1.0
        # nobody knows the black and the white of floats: they may be negative
        self._range = (0.0, 255.0) if x.dtype == np.uint8 else (-math.inf, math.inf)
        self._mean, self._std = (self._channels(values) for values in (images.mean, images.std))
        self._rows = torch.arange(self.height, device=self.device)
        self._columns = torch.arange(self.width, device=self.device)
        # in which epochs an image is mirrored, the even or the odd ones
        self._parity = _shuffle(len(y), stable_seed(0, "parity")) % 2

    def __len__(self) -> int:
        return len(self.y)

    def augmented(
        self, index: Tensor, generator: torch.Generator, part: slice = EVERY, epoch: int = 0
    ) -> Batch:
        """The images of `index` (B, on the host), changed at random; a part of them is changed as
        if all were asked for."""
        draws = self._draws(index, generator, epoch)
        # drawn for the whole batch, of which a process takes its part: the same whatever their
        # number
        random = list(torch.rand(self.augment.draws(), len(index), generator=generator)[:, part])
        theta = geometry(self.augment, random, self.height, self.width)
        colour = colours(self.augment, random)
        index, table, base = self.source.fetch(index[part])
        # one copy to the device, not seven small ones
        index, base, top, left, mirrored, *centre = self._moved(
            torch.stack((index, base, *(d[part] for d in draws)))
        )
        x = self._crop(table, base, top, left, mirrored)
        if theta is not None:
            x = warped(x, self._moved(theta))
        if colour is not None:
            x = recoloured(x, self._moved(colour[0]), self._moved(colour[1]), *self._range)
        x = self._normalised(x)
        if self.augment.cutout:
            rows = self._hidden(self._rows, centre[0])
            columns = self._hidden(self._columns, centre[1])
            # behind the normalisation: what is hidden is the mean, as in Cutout
            x = x.masked_fill_((rows[:, :, None] & columns[:, None, :])[..., None], 0.0)
        return self._batch(x, index)

    def evaluation_batches(self, batch_size: int, most: int | None = None) -> Iterator[Batch]:
        """The whole part once, as it is, in batches of equal size (to within one) and mixed
        classes, or the first of them; of several processes each has every so many-th.

        Search networks normalise by the batch, and the statistics of a small remainder or of one
        class would be poor.
        """
        _check_batch_size(batch_size)
        order = self.evaluation_order()
        # ceil(N / B) batches, whose sizes differ by one at most
        batches = list(order.tensor_split(-(-len(self) // batch_size)))[:most]
        return map(self._plain, self.source.each(batches[here().rank :: here().size]))

    def evaluation_order(self) -> Tensor:
        """The images in the order in which they are evaluated."""
        return _shuffle(len(self), stable_seed(0, "evaluation"))

    def expect(self, indices: Iterator[Tensor]) -> None:
        """What `augmented` will be asked for from now on, so that it can be read ahead."""
        self.source.expect(indices)

    def close(self) -> None:
        """Ends the workers, if there are any; they start again when needed."""
        self.source.close()

    def _plain(self, fetched: tuple[Tensor, Tensor, Tensor]) -> Batch:
        index, table, base = fetched
        index, base = self._moved(torch.stack((index, base)))
        # the middle of the padded image: not shifted
        top, left = (torch.full_like(index, pad) for pad in self.pad)
        return self._batch(
            self._normalised(self._crop(table, base, top, left, torch.zeros_like(index))), index
        )

    def _draws(self, index: Tensor, generator: torch.Generator, epoch: int) -> list[Tensor]:
        """Of each image the row and the column that it begins at, whether it is mirrored, and the
        middle of the square that is hidden, each (B,)."""
        # all five are drawn whatever is switched on: the others stay as they are
        draws = [
            self._draw(2 * self.pad[0] + 1, index, generator),
            self._draw(2 * self.pad[1] + 1, index, generator),
            self._draw(2 if self.augment.flip else 1, index, generator),
            self._draw(self.height, index, generator),
            self._draw(self.width, index, generator),
        ]
        if self.augment.flip and self.augment.alternate:
            draws[2] = (self._parity[index] + epoch) % 2
        return draws

    @staticmethod
    def _draw(below: int, index: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randint(below, index.shape, generator=generator)

    def _moved(self, host: Tensor) -> Tensor:
        return host.to(self.device, non_blocking=True)

    def _channels(self, values: tuple[float, ...]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).mul(self._unit).float().to(self.device)

    def _crop(
        self, table: Tensor, base: Tensor, top: Tensor, left: Tensor, mirrored: Tensor
    ) -> Tensor:
        """(B, H, W, C) in float32 from row `top` and column `left` of the images `base` of the
        table as if they were padded with black; all arguments but the table, (pixels, C), are
        (B,)."""
        # (B, H) and (B, W): coordinates in the image as it is stored, outside it where it was
        # padded
        rows = top[:, None] + (self._rows - self.pad[0])
        across = torch.where(mirrored[:, None] == 1, self._columns.flip(0), self._columns)
        columns = left[:, None] + across - self.pad[1]
        inside_rows = rows.clamp(0, self.height - 1)
        inside_columns = columns.clamp(0, self.width - 1)
        # selecting whole pixels of a flat list is four times faster than three index tensors
        lines = (base[:, None] * self.height + inside_rows) * self.width
        pixels = (lines[:, :, None] + inside_columns[:, None, :]).flatten()
        x = (
            table.index_select(0, pixels)
            .view(len(base), self.height, self.width, -1)
            .to(torch.float32)
        )
        if self.augment.shift:
            x.mul_(
                ((rows == inside_rows)[:, :, None] & (columns == inside_columns)[:, None, :])[
                    ..., None
                ]
            )
        return x

    def _normalised(self, x: Tensor) -> Tensor:
        return x.sub(self._mean).div_(self._std)

    def _hidden(self, line: Tensor, centre: Tensor) -> Tensor:
        """Which rows (or columns) the square covers, (B, H): those inside the image, as in
        Cutout."""
        start = centre[:, None] - self.augment.cutout // 2
        return (line >= start) & (line < start + self.augment.cutout)

    def _batch(self, x: Tensor, index: Tensor) -> Batch:
        return Batch(x.permute(0, 3, 1, 2), self._labels[index])


class Stream:
    """Augmented batches for ever; each epoch is a new shuffle, and its incomplete last batch is
    dropped.

    Epoch e is shuffled by (seed, name, e) and batch t augmented by (seed, name, t), so t is the
    whole state. Of several processes each has its part of every batch, the same images changed in
    the same way as if there were one.
    """

    def __init__(self, part: ImageBatches, batch_size: int, seed: int, name: str = "") -> None:
        """`name` keeps streams of the same seed independent."""
        _check_batch_size(batch_size)
        if batch_size > len(part):
            raise OptionError(
                "batch_size",
                batch_size,
                f"this part has {len(part)} images: give at most {len(part)}",
            )
        self.part, self.seed, self.name = part, seed, name
        self.order = Order(len(part), batch_size, seed, name)
        self.mine = here().part(batch_size)
        if self.mine.stop - self.mine.start < LEAST and not here().alone:
            raise OptionError(
                "batch_size",
                batch_size,
                f"is divided among {here().size} processes: give at least {LEAST * here().size}",
            )
        self.delivered = 0
        self._announced = False

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.order)

    def next(self) -> Batch:
        if not self._announced:
            # not self: workers that know the stream would keep it alive
            order, mine = self.order, self.mine
            self.part.expect(order.index(t)[mine] for t in count(self.delivered))
            self._announced = True
        index = self.order.index(self.delivered)
        epoch = self.delivered // len(self.order)
        # random numbers are drawn on the host, where they are the same whatever the device
        generator = torch.Generator().manual_seed(
            stable_seed(self.seed, f"{self.name}/augment", self.delivered)
        )
        self.delivered += 1
        return self.part.augmented(index, generator, self.mine, epoch)

    def state_dict(self) -> State:
        return {"delivered": self.delivered}

    def load_state_dict(self, state: State) -> None:
        self.delivered = int(state["delivered"])
        self._announced = False


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise OptionError("batch_size", batch_size, "give at least 1")
