"""What candidates cost: parameters, multiply-adds or seconds, counted or measured at the places
where they stand.

Two uses: p_k of R(A) in the search network (mean over the places of operation k), and what each
entry of A_bar adds to the final network, summed over the cells that share its row (`entries`), from
which sizes follow without building it.

E edges, K candidates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from proxnas.common.types import Inputs, Matrices
from proxnas.core.choice import Call, Choice, Source
from proxnas.core.groups import NONE, Row
from proxnas.core.size.complexity import parameters
from proxnas.core.supernet import Supernet

KINDS = ("params", "flops", "latency")
Measure = Callable[[nn.Module, Source], float]
NOTHING = Source((), {}, ())


class Place(NamedTuple):
    """One Choice in one pass, and what it read."""

    row: Row
    choice: Choice
    source: Source


def places(net: Supernet, x: Tensor | Inputs) -> list[Place]:
    """The Choices that a pass over x meets, as often as it meets them."""
    with torch.no_grad(), net.taped() as tape:
        net(x)
    calls = [call for call in tape if isinstance(call, Call)]
    # a Choice that runs twice is met twice: multiply-adds and seconds count each time
    met = [pair for call in calls for pair in zip(call.choices, call.sources, strict=True)]
    return [Place(choice.row, choice, source) for choice, source in met if choice.row is not None]


class Sums(NamedTuple):
    """What candidates measure at their places."""

    total: Matrices
    """Group -> (E, K): of each candidate, summed over its places."""
    number: Matrices
    """Group -> (E, 1): how many these are."""


def sums(net: Supernet, met: list[Place], measure: Measure) -> Sums:
    """Of the Choices that were met.

    `none` costs nothing. Each operation is measured once for each shape of its input.
    """
    total = {
        name: torch.zeros(group.shape, dtype=torch.float64) for name, group in net.groups.items()
    }
    number = {
        name: torch.zeros(group.shape[0], 1, dtype=torch.float64)
        for name, group in net.groups.items()
    }
    known: dict[Any, float] = {}
    for (group, e), choice, source in met:
        number[group][e] += 1
        shapes = tuple(
            x.shape for x in (*source.args, *source.kwargs.values()) if isinstance(x, Tensor)
        )
        for k, (name, candidate) in enumerate(zip(choice.names, choice.candidates, strict=True)):
            if name != NONE:
                # its repr says kernel and stride
                key = (name, repr(candidate), parameters(candidate), shapes)
                if key not in known:
                    known[key] = measure(candidate, source)
                total[group][e, k] += known[key]
    return Sums(total, number)


def candidate_costs(
    net: Supernet, x: Tensor | Inputs, of: str, seconds: Measure
) -> dict[str, Tensor]:
    """Group -> p_k (K,) of operation k in this network, its mean over all places: multiply-adds or
    seconds, which are of the whole batch as they are measured."""
    return means(sums(net, places(net, x), _measures(len(x), seconds)[of]))


def means(of: Sums) -> dict[str, Tensor]:
    """Group -> (K,): the mean of each candidate over all its places."""
    # (E, K) summed over edges, by the places of the whole group
    return {name: of.total[name].sum(0) / of.number[name].sum().clamp(min=1) for name in of.total}


def entries(net: Supernet, x: Tensor | Inputs, of: str, seconds: Measure) -> Matrices:
    """Group -> (E, K): what each entry of A_bar adds to the network, over all cells that share its
    row."""
    if of == "params":  # modules, not calls: one that runs twice has its weights once
        met = [
            Place(choice.row, choice, NOTHING)
            for choice in net.choices.values()
            if choice.row is not None
        ]
        return sums(net, met, lambda candidate, source: parameters(candidate)).total
    return sums(net, places(net, x), _measures(len(x), seconds)[of]).total


def _measures(examples: int, seconds: Measure) -> dict[str, Measure]:
    return {
        "flops": lambda candidate, source: multiply_adds_at(candidate, source) / examples,
        "latency": lambda candidate, source: seconds(candidate, source) / examples,
    }


def multiply_adds_at(candidate: nn.Module, source: Source) -> float:
    """Of convolutions and matrix products, for the whole batch; counted without computing."""
    shadow = copy.deepcopy(candidate).to("meta")
    args, kwargs = tree_map(on_meta, (source.args, dict(source.kwargs)))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow(*args, **kwargs)
    # multiply-adds: the counter takes each for two operations
    return float(counter.get_total_flops() / 2)


def on_meta(x: Any) -> Any:
    """A tensor's shape alone; anything else as it is."""
    return x.to("meta") if isinstance(x, Tensor) else x
