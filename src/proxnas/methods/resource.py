"""What a candidate costs to run in the terms of SNAS, counted from the modules at the places where
they stand.

E edges, K candidates; costs are (E, K) for each group.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from proxnas.common.types import Matrices
from proxnas.core.choice import Source
from proxnas.core.size.complexity import parameters
from proxnas.core.size.costs import multiply_adds_at, on_meta, places, sums
from proxnas.core.supernet import Supernet

EXAMPLES = 2
"""One example would leave batch statistics undefined where an image is a single pixel."""


def log_costs(net: Supernet, A_bar: Matrices, x: Tensor) -> Matrices:
    """Mean of log parameters, log multiply-adds and log memory access an example, over the places
    of each row.

    Values below 1 count as 1, so what costs nothing has cost 0; so has `none`.
    """
    net.use(A_bar)
    total, number = sums(net, places(net, x[:EXAMPLES]), _log_cost)
    return {name: matrix / number[name].clamp(min=1) for name, matrix in total.items()}


def _log_cost(candidate: nn.Module, source: Source) -> float:
    size = parameters(candidate)
    args, kwargs = tree_map(on_meta, (source.args, dict(source.kwargs)))
    with torch.no_grad():
        output = copy.deepcopy(candidate).to("meta")(*args, **kwargs)
    moved = (
        sum(x.numel() for x in (*args, *kwargs.values(), output) if isinstance(x, Tensor))
        / EXAMPLES
    )
    counted = (size, multiply_adds_at(candidate, source) / EXAMPLES, moved + size)
    return sum(math.log(max(1.0, value)) for value in counted) / 3
