"""Words shared by all parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

Matrices = dict[str, Tensor]
"""Group name -> A of that group, shape (edges, candidates); on the host, where decisions are
made."""

State = dict[str, Any]
"""What a checkpoint holds of one part: tensors, numbers, strings, lists and dicts only."""


class Batch(NamedTuple):
    """A mini-batch on the device: x (N, C, H, W) in channels_last, y (N,)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a module is called with, where that is not one tensor; stands in the place of
    Batch.x."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Examples, by the first tensor."""
        return next(len(x) for x in (*self.args, *self.kwargs.values()) if isinstance(x, Tensor))

    def __getitem__(self, part: slice) -> Inputs:
        """The same of some examples."""
        args = tuple(_part(x, part) for x in self.args)
        return Inputs(args, {name: _part(x, part) for name, x in self.kwargs.items()})


@dataclass(frozen=True, eq=False)
class Targets:
    """What a batch should be answered with, where that is not one tensor; stands in the place of
    Batch.y."""

    value: Any
    examples: int

    def __len__(self) -> int:
        return self.examples


def _part(x: Any, part: slice) -> Any:
    return x[part] if isinstance(x, Tensor) and x.ndim else x


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in nested dicts, lists and tuples, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
