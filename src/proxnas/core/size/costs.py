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

from proxnas.common.clock import Clock
from proxnas.common.types import Inputs, Matrices
from proxnas.core.choice import NONE, Call, Choice, Row, Source
from proxnas.core.size.complexity import parameters
from proxnas.core.size.latency import warm_runs
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
    met = [pair for call in calls for pair in zip(call.choices, call.sources, strict=True)]
    return [Place(choice.row, choice, source) for choice, source in met if choice.row is not None]


def sums(net: Supernet, met: list[Place], measure: Measure) -> tuple[Matrices, Matrices]:
    """(group -> (E, K): the measure of each candidate summed over its places, group -> (E, 1): how
    many these are).

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
                key = (
                    name,
                    repr(candidate),
                    parameters(candidate),
                    shapes,
                )  # its repr says kernel and stride
                if key not in known:
                    known[key] = measure(candidate, source)
                total[group][e, k] += known[key]
    return total, number


def candidate_costs(
    net: Supernet, x: Tensor | Inputs, of: str, device: torch.device
) -> dict[str, Tensor]:
    """Group -> p_k (K,) of operation k in this network, its mean over all places: multiply-adds or
    seconds."""
    total, number = sums(net, places(net, x), _measures(len(x), device)[of])
    return {name: total[name].sum(0) / number[name].sum().clamp(min=1) for name in total}


def entries(net: Supernet, x: Tensor | Inputs, of: str, device: torch.device) -> Matrices:
    """Group -> (E, K): what each entry of A_bar adds to the network, over all cells that share its
    row."""
    if of == "params":  # modules, not calls: one that runs twice has its weights once
        met = [
            Place(choice.row, choice, NOTHING)
            for choice in net.choices.values()
            if choice.row is not None
        ]
        return sums(net, met, lambda candidate, source: parameters(candidate))[0]
    return sums(net, places(net, x), _measures(len(x), device)[of])[0]


def _measures(examples: int, device: torch.device) -> dict[str, Measure]:
    return {
        "flops": lambda candidate, source: multiply_adds_at(candidate, source) / examples,
        "latency": lambda candidate, source: seconds_at(candidate, source, device) / examples,
    }


def multiply_adds_at(candidate: nn.Module, source: Source) -> float:
    """Of convolutions and matrix products, for the whole batch; counted without computing."""
    shadow = copy.deepcopy(candidate).to("meta")
    args, kwargs = tree_map(on_meta, (source.args, dict(source.kwargs)))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow(*args, **kwargs)
    return float(counter.get_total_flops() / 2)


@torch.inference_mode()
def seconds_at(
    candidate: nn.Module, source: Source, device: torch.device, runs: int = 30, limit: float = 0.5
) -> float:
    """Median of the runs of a candidate on an input of that shape, after some that do not count."""
    real = materialised(candidate, device)
    args, kwargs = tree_map(lambda x: _alike(x, device), (source.args, dict(source.kwargs)))
    seconds = warm_runs(lambda: real(*args, **kwargs), Clock(device, exact=True), runs, limit)
    return sorted(seconds)[len(seconds) // 2]


def materialised(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy on the device, also of a module on the meta device, with weights that are numbers as
    good as any to be timed: not zeros, and none that are denormal, which some processors are slow
    at."""
    real = copy.deepcopy(module).to_empty(device=device)
    generator = torch.Generator().manual_seed(0)
    for name, x in (*real.named_parameters(), *real.named_buffers()):
        if x.is_floating_point():
            value = torch.rand(x.shape, generator=generator) * 0.2 + (
                1.0 if name.endswith("running_var") else -0.1
            )
            x.data.copy_(value)
        else:
            x.data.zero_()
    return real


def on_meta(x: Any) -> Any:
    """A tensor's shape alone; anything else as it is."""
    return x.to("meta") if isinstance(x, Tensor) else x


def _alike(x: Any, device: torch.device) -> Any:
    if not isinstance(x, Tensor):
        return x
    if not x.is_floating_point():
        return torch.zeros(x.shape, dtype=x.dtype, device=device)
    real = torch.rand(x.shape, dtype=x.dtype, device=device)
    return real.to(memory_format=torch.channels_last) if real.ndim == 4 else real
