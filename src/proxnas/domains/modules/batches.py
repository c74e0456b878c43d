"""Data of the user's own as a stream of batches: a torch Dataset, a DataLoader, any iterable of
batches, tensors.

A batch is (inputs, target): inputs one tensor, a tuple of arguments or a dict of keywords. Random
numbers that a pass over the data draws from torch come from (seed, name, pass, batch), so that a
stream can go on where it stood.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from proxnas.common.errors import InputError
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Batch, Inputs, State, Targets
from proxnas.runs.fingerprint import MOST_BYTES, feed_rows
from proxnas.runs.order import Order

FORM = (
    "a batch is (inputs, target), where inputs is a tensor, a tuple of arguments or a dict of"
    " keywords"
)
_END = object()


class Passes(Protocol):
    """Data that can be gone through again and again."""

    def __len__(self) -> int:
        """Batches a pass."""

    def one(self, number: int) -> Iterator[Any]:
        """A pass in the order of that number."""

    def whole(self) -> Iterator[Any]:
        """Everything once, in an order of its own."""


class ItemPasses:
    """A map-style Dataset: shuffled by the seed, an incomplete last batch left out."""

    def __init__(self, dataset: Dataset[Any], batch_size: int, seed: int, name: str) -> None:
        self.dataset, self.size = dataset, len(cast("Any", dataset))
        if not self.size:
            raise InputError(f"{name}: the dataset is empty: give at least one item")
        self.order = Order(self.size, min(batch_size, self.size), seed, name)

    def __len__(self) -> int:
        return len(self.order)

    def one(self, number: int) -> Iterator[Any]:
        # pass p are the batches p L to (p + 1) L - 1 of an endless order
        start = number * len(self)
        return (self._collated(self.order.index(t)) for t in range(start, start + len(self)))

    def whole(self) -> Iterator[Any]:
        # in batches of equal size (to within one): a small remainder would weigh as a poor batch
        # for batch norm
        parts = torch.arange(self.size).tensor_split(-(-self.size // self.order.batch_size))
        return map(self._collated, parts)

    def _collated(self, index: Tensor) -> Any:
        if isinstance(self.dataset, TensorDataset):
            return self.dataset[cast("Any", index)]  # takes many at once
        return default_collate([self.dataset[i] for i in index.tolist()])


class GivenPasses:
    """A DataLoader, a list of batches, or whatever else can be iterated more than once: in its own
    order."""

    def __init__(self, batches: Iterable[Any], seed: int, name: str) -> None:
        self.batches, self.seed, self.name = batches, seed, name
        self.length = self._length()
        if not self.length:
            raise InputError(f"{name}: gives no batches: give at least one")

    def _length(self) -> int:
        try:
            return len(cast("Any", self.batches))
        except TypeError:  # a DataLoader over an IterableDataset, or a class with __iter__ alone
            return sum(1 for _ in self.one(0))

    def __len__(self) -> int:
        return self.length

    def one(self, number: int) -> Iterator[Any]:
        generator = getattr(self.batches, "generator", None)
        if isinstance(self.batches, DataLoader) and isinstance(generator, torch.Generator):
            # a generator of the loader's own is not reached by torch's global seed
            generator.manual_seed(stable_seed(self.seed, f"{self.name}/order", number))
        return iter(self.batches)

    def whole(self) -> Iterator[Any]:
        return self.one(-1)


def passes(data: Any, batch_size: int, seed: int, name: str) -> Passes:
    """What `search` was given as its train or valid data; an InputError if it is none."""
    if (
        isinstance(data, tuple)
        and len(data) >= 2
        and all(isinstance(part, Tensor | np.ndarray) for part in data)
    ):
        data = [_convert(x, name) if isinstance(x, np.ndarray) else x for x in data]
        lengths = {len(x) if x.ndim else 0 for x in data}
        if len(lengths) > 1:
            shapes = ", ".join(str(tuple(x.shape)) for x in data)
            raise InputError(f"{name}: tensors of {shapes}: give equal lengths")
        data = TensorDataset(*data)
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return ItemPasses(data, batch_size, seed, name)
    if isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size)
    kind = type(data).__name__
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | dict | Tensor):
        raise InputError(
            f"{name}: a {kind} is no data: give a DataLoader, a Dataset or (inputs, targets)"
        )
    if isinstance(data, Iterator):
        wanted = "a list of batches, a DataLoader or a Dataset"
        raise InputError(f"{name}: a {kind} can be gone through only once: give {wanted}")
    return GivenPasses(data, seed, name)


def fingerprint_of(data: Any) -> str | None:
    """A digest of tensors or arrays; None for other data, which may not be the same twice."""
    parts = data.tensors if isinstance(data, TensorDataset) else data
    if not isinstance(parts, tuple) or not all(
        isinstance(part, Tensor | np.ndarray) for part in parts
    ):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        x = part.detach().cpu().contiguous() if isinstance(part, Tensor) else torch.from_numpy(part)
        # bytes alone do not tell a float from an int, nor (2, 3) from (3, 2)
        digest.update(f"{tuple(x.shape)}/{x.dtype}/".encode())
        if x.numel():
            rows = x.reshape(len(x) if x.ndim else 1, -1).contiguous().view(torch.uint8).numpy()
            feed_rows(digest, "", rows, -(-rows.nbytes // MOST_BYTES) or 1)
    return digest.hexdigest()


class UserStream:
    """Batches for ever; pass and position are its whole state."""

    def __init__(self, data: Passes, seed: int, name: str, device: torch.device) -> None:
        self.data, self.seed, self.name, self.device = data, seed, name, device
        self.number = self.position = 0
        self._running: Iterator[Any] | None = None

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.data)

    def next(self) -> Batch:
        raw = self._draw()
        if raw is _END:
            self.number, self.position, self._running = self.number + 1, 0, None
            raw = self._draw()
        if raw is _END:
            raise InputError(
                f"{self.name}: gives no batches when gone through again: give what can be iterated"
                " anew"
            )
        self.position += 1
        return as_batch(raw, self.device, self.name)

    def _draw(self) -> Any:
        if self._running is None:
            self._running = self._seeded(self.data.one, self.number)
            # a run that goes on draws again what it has seen: nobody else knows how to get there
            for _ in islice(self._running, self.position):
                pass
        return next(self._running, _END)

    def _seeded(self, begin: Callable[[int], Iterator[Any]], number: int) -> Iterator[Any]:
        """A pass in which each batch draws from a seed of its own."""
        place = f"{self.name}/{number}"
        # shuffles are drawn when a pass begins, augmentations when a batch is asked for
        with seed_generators(stable_seed(self.seed, place, 0)):
            running = begin(number)
        for t in count():
            with seed_generators(stable_seed(self.seed, place, t)):
                raw = next(running, _END)
            if raw is _END:
                return
            yield raw

    def whole(self) -> Iterator[Batch]:
        """Everything once."""
        for raw in self._seeded(lambda _: self.data.whole(), -1):
            yield as_batch(raw, self.device, self.name)

    def first(self, batches: int) -> Iterator[Batch]:
        """The beginning of a pass, whatever the stream stands at."""
        for raw in islice(self._seeded(self.data.one, 0), batches):
            yield as_batch(raw, self.device, self.name)

    def state_dict(self) -> State:
        return {"pass": self.number, "position": self.position}

    def load_state_dict(self, state: State) -> None:
        self.number, self.position, self._running = state["pass"], state["position"], None


@contextmanager
def seed_generators(seed: int) -> Iterator[None]:
    """Torch's own random numbers on the host from a seed, within; afterwards they go on as
    before."""
    before = torch.get_rng_state()
    # not torch.manual_seed: that reaches accelerators too
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def as_batch(raw: Any, device: torch.device, name: str) -> Batch:
    """A batch of the user's on the device."""
    if not isinstance(raw, tuple | list) or len(raw) < 2:
        raise InputError(f"{name}: gave a {_kind(raw)}: {FORM}")
    *inputs, target = tree_map(lambda x: _tensor(x, device), list(raw))
    sizes = [
        len(x)
        for x in (*tree_leaves(target), *tree_leaves(inputs))
        if isinstance(x, Tensor) and x.ndim
    ]
    if not sizes or not sizes[0]:
        raise InputError(f"{name}: gave a batch without examples: {FORM}")
    y = target if isinstance(target, Tensor) and target.ndim else Targets(target, sizes[0])
    return Batch(cast("Tensor", _inputs(inputs, name)), cast("Tensor", y))


def target_of(batch: Batch) -> Any:
    """What the loss of the user's takes."""
    y: Any = batch.y
    return y.value if isinstance(y, Targets) else y


def _inputs(inputs: list[Any], name: str) -> Tensor | Inputs:
    """Several entries before the target are several arguments, like one entry that is a tuple of
    them."""
    given = inputs[0] if len(inputs) == 1 else inputs
    if isinstance(given, Tensor):
        return given
    if isinstance(given, dict):
        return Inputs(kwargs=given)
    if isinstance(given, tuple | list):
        return Inputs(tuple(given))
    raise InputError(f"{name}: gave inputs of type {_kind(given)}: {FORM}")


def _convert(array: np.ndarray[Any, Any], name: str) -> Tensor:
    """An array as a tensor; numpy's usual float64 becomes what modules are made of."""
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name}: an array of {array.dtype}: give numbers")
    # a copy: what is read only, or turned round, torch does not take
    x = torch.from_numpy(np.array(array))
    return x.to(torch.get_default_dtype()) if x.dtype == torch.float64 else x


def _tensor(x: Any, device: torch.device) -> Any:
    if isinstance(x, np.ndarray):
        x = torch.from_numpy(x)
    return x.to(device, non_blocking=True) if isinstance(x, Tensor) else x


def _kind(x: Any) -> str:
    return f"{type(x).__name__} of {len(x)}" if isinstance(x, tuple | list) else type(x).__name__
