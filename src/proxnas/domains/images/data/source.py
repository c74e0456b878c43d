"""Where the pixels of a batch come from: one tensor on the device, or files that workers read
ahead."""

# N images of the part, B of a batch; a table is (pixels, C), the images' pixels one below the other

from __future__ import annotations

import os
import signal
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from proxnas.common.errors import InputError
from proxnas.common.interrupt import STOPPING
from proxnas.common.launch import here
from proxnas.common.say import note
from proxnas.common.seeds import Array
from proxnas.domains.images.data.lazy import Lazy
from proxnas.domains.images.data.picture import quiet
from proxnas.domains.images.data.pixels import Pixels

Fetched = tuple[Tensor, Tensor, Tensor]
"""The images that were read (B,), a table, and which images of the table they are (B,); the table
on the device."""
Read = tuple[list[int], list[int], Array]
"""The images that were asked for, those that were read in their place, and their pixels (B, H, W,
C)."""


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
    return Streamed(x, device, workers) if isinstance(x, Lazy) else Resident(x, device)


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


class Streamed:
    """Images that are read batch by batch; workers are ahead of what was announced by `expect`."""

    def __init__(self, x: Lazy, device: torch.device, workers: int | None) -> None:
        self.x, self.device = x, device
        self.workers = default_workers() if workers is None else workers
        self._expected: Iterator[Tensor] | None = None
        self._next: Read | None = None
        self._told: set[int] = set()
        # The one iterator, in a list that outlives self: were it freed in a cycle together with its
        # queues, or left to the end of the process, the workers would be waited for.
        self._ahead: list[Iterator[Read | str]] = []
        weakref.finalize(self, self._ahead.clear)

    def fetch(self, index: Tensor) -> Fetched:
        asked = index.tolist()
        # what the workers read ahead is kept until it is asked for
        if self._next is None:
            self._next = self._from_workers()
        # not what was announced: read here and now
        if self._next is None or self._next[0] != asked:
            return self._fetched(_Rows(self.x).__getitems__(asked))
        read, self._next = self._next, None
        return self._fetched(read)

    def each(self, indices: Sequence[Tensor]) -> Iterator[Fetched]:
        # what is expected of this one must not be lost
        own = Streamed(self.x, self.device, self.workers)
        own._told = self._told
        own.expect(iter(indices))
        try:
            yield from map(own.fetch, indices)
        finally:
            own.close()

    def expect(self, indices: Iterator[Tensor]) -> None:
        self.close()
        self._expected = indices

    def close(self) -> None:
        self._next = self._expected = None
        self._ahead.clear()  # without its iterator the loader ends the workers

    def _from_workers(self) -> Read | None:
        if not self._ahead and self._expected is not None and self.workers:
            self._ahead.append(self._loader(self._expected))
        try:
            read = next(self._ahead[0], None) if self._ahead else None
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            # the workers were ended from outside; this process may be about to write a checkpoint
            self.close()
            return None
        return None if read is None else _sound(read)

    def _loader(self, indices: Iterator[Tensor]) -> Iterator[Read | str]:
        loader: DataLoader[Any] = DataLoader(
            _Rows(self.x),
            batch_sampler=_Batches(indices),
            num_workers=self.workers,
            collate_fn=_as_it_is,
            worker_init_fn=_begin_worker,
            # no random numbers are drawn from it, but without it the loader would advance the
            # global one
            generator=torch.Generator(),
        )
        return iter(loader)

    def _fetched(self, read: Read | str) -> Fetched:
        asked, found, pixels = _sound(read)
        self._tell(number for number, other in zip(asked, found, strict=True) if number != other)
        table = (
            torch.from_numpy(pixels).to(self.device, non_blocking=True).view(-1, pixels.shape[3])
        )
        return torch.tensor(found), table, torch.arange(len(found))

    def _tell(self, broken: Iterator[int]) -> None:
        for number in broken:
            if number not in self._told:
                self._told.add(number)
                note(f"{self.x.name(number)} is broken: the next image is in its place")


class _Rows(Dataset[Any]):
    """Batches of images for the loader; an error is a value, since a traceback from a worker is no
    line for people."""

    def __init__(self, x: Lazy) -> None:
        self.x = x

    def __getitem__(self, number: int) -> Read | str:
        return self.__getitems__([number])

    def __getitems__(self, numbers: list[int]) -> Read | str:
        pixels, found = np.empty((len(numbers), *self.x.form), np.uint8), []
        try:
            with quiet():
                for at, number in enumerate(numbers):
                    other, pixels[at] = self.x.sound(number)
                    found.append(other)
        except InputError as error:
            return str(error)
        return numbers, found, pixels


class _Batches:
    """Lists of numbers for the loader, which may be without end."""

    def __init__(self, indices: Iterator[Tensor]) -> None:
        self.indices = indices

    def __iter__(self) -> Iterator[list[int]]:
        return (index.tolist() for index in self.indices)


def default_workers() -> int:
    """One less than there are processors for each process of a job on this machine, from 1 to 8."""
    available = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(8, available // here().local_size - 1))


def _as_it_is(batch: Any) -> Any:
    """As arrays, not tensors, which would need shared memory: containers have little of it."""
    return batch


def _begin_worker(_: int) -> None:
    """Signals to the whole group of processes are for the first one, which decides what to do."""
    warnings.simplefilter("ignore")
    for signum in STOPPING:
        signal.signal(signum, signal.SIG_IGN)
    # 0: else the loader would interrupt the first one
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _sound(read: Read | str) -> Read:
    if isinstance(read, str):
        raise InputError(read)
    return read
