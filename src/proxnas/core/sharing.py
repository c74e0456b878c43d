"""One ReLU for all candidates that begin with it on the same tensor: computed once, kept once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import ref

import torch
from torch import Tensor, nn

_memo: ContextVar[dict[int, tuple[ref[Tensor], Tensor]] | None] = ContextVar("memo", default=None)


@contextmanager
def shared_relu() -> Iterator[None]:
    """Within, the ReLU of a tensor is computed and kept once, whatever the number of operations
    that read it."""
    # a block within a block has a memo of its own, and the outer one is there again after it
    token = _memo.set({})
    try:
        yield
    finally:
        _memo.reset(token)


def relu(x: Tensor) -> Tensor:
    """max(x, 0), as it begins most operations."""
    # the compiler cannot read a ContextVar
    memo = None if torch.compiler.is_compiling() else _memo.get()
    if memo is None:
        return nn.functional.relu(x)
    source, y = memo.get(id(x), (None, x))
    # a weak reference: x may die and another tensor take its id
    if source is None or source() is not x:
        y = nn.functional.relu(x)
        memo[id(x)] = ref(x), y
    return y
