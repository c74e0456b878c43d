"""Words shared by all parts."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

Matrices = dict[str, Tensor]
"""Group name -> A of that group, shape (edges, candidates); on the host, where decisions are made."""

State = dict[str, Any]
"""What a checkpoint holds of one part: tensors, numbers, strings, lists and dicts only."""


class Batch(NamedTuple):
    """A mini-batch on the device: x (N, C, H, W) in channels_last, y (N,)."""

    x: Tensor
    y: Tensor
