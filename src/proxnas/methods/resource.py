"""What a candidate costs to run, counted from the modules at the places where they stand.

E edges, K candidates; costs are (E, K) for each group.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from proxnas.choice import NONE, Call, Source
from proxnas.complexity import parameters
from proxnas.supernet import Supernet
from proxnas.types import Matrices

EXAMPLES = 2
"""One example would leave batch statistics undefined where an image is a single pixel."""


def log_costs(net: Supernet, A_bar: Matrices, x: Tensor) -> Matrices:
    """Mean of log parameters, log multiply-adds and log memory access an example, over the places of each row.

    Values below 1 count as 1, so what costs nothing has cost 0; so has `none`.
    """
    net.use(A_bar)
    with torch.no_grad(), net.taped() as tape:
        net(x[:EXAMPLES])
    sums = {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in net.groups.items()}
    places = {name: torch.zeros(group.shape[0], 1, dtype=torch.float64) for name, group in net.groups.items()}
    known: dict[Any, float] = {}
    for call in (call for call in tape if isinstance(call, Call)):
        for choice, source in zip(call.choices, call.sources, strict=True):
            assert choice.row is not None
            places[choice.row.group][choice.row.edge] += 1
            for k, name in enumerate(choice.names):
                if name != NONE:
                    candidate = choice.candidates[k]
                    key = (name, parameters(candidate), *(x.shape for x in source.args if isinstance(x, Tensor)))
                    if key not in known:
                        known[key] = _log_cost(candidate, source)
                    sums[choice.row.group][choice.row.edge, k] += known[key]
    return {name: total / places[name].clamp(min=1) for name, total in sums.items()}


def _log_cost(candidate: nn.Module, source: Source) -> float:
    size = parameters(candidate)
    shadow = copy.deepcopy(candidate).to("meta")
    args, kwargs = tree_map(_on_meta, (source.args, dict(source.kwargs)))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = shadow(*args, **kwargs)
    moved = sum(x.numel() for x in (*args, *kwargs.values(), output) if isinstance(x, Tensor)) / EXAMPLES
    multiply_adds = counter.get_total_flops() / 2 / EXAMPLES
    return sum(math.log(max(1.0, value)) for value in (size, multiply_adds, moved + size)) / 3


def _on_meta(x: Any) -> Any:
    return x.to("meta") if isinstance(x, Tensor) else x
