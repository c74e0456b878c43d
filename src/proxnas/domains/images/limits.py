"""A limit on the network that a pass by the clock delivers.

Decisions in the space `resnet` are independent, so once it is known what each kind of each block
would cost in loss, the best network within a limit is an exact knapsack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import torch
from torch import nn

from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Source
from proxnas.core.groups import Row
from proxnas.core.size import costs
from proxnas.core.size.budget import Budget, Sizes
from proxnas.core.size.complexity import multiply_adds, parameters
from proxnas.core.size.stopwatch import ROUNDS, Runtime, Stopwatch, choose
from proxnas.core.supernet import Supernet
from proxnas.core.swaps import batch_statistics, losses, swapped
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.spaces.resnet import GROUPS, resnet

TRIES = 6
"""Networks that are timed until one is as quick as was asked."""

Shape = tuple[int, int, int]


def measure(
    of: str, shape: Shape, device: torch.device, by: str = "auto"
) -> Callable[[nn.Module], float]:
    """Counts parameters or multiply-adds of a network, or times it as `--latency-by` has it."""
    measures: dict[str, Callable[[nn.Module], float]] = {
        "params": parameters,
        "flops": lambda network: multiply_adds(network, shape),
        "latency": lambda network: _seconds(channels_last(network), shape, choose(by, device)),
    }
    return measures[of]


def _seconds(network: nn.Module, shape: Shape, runtime: Runtime) -> float:
    """Of one image; measured several times, of which the best counts."""
    with torch.device("meta"):
        one = Source.of((torch.empty(1, *shape),), {})
    watch = Stopwatch(runtime)
    # the watch remembers the best of each network, so the last round has the best of all
    return [watch.seconds(network, one) for _ in range(ROUNDS)][-1]


def network_size(
    of: str, A_bar: Matrices, size: Size, shape: Shape, device: torch.device, by: str = "auto"
) -> float:
    """Parameters, multiply-adds or seconds of the network of A_bar; seconds as `by` measures."""
    with torch.device("meta"):
        network = resnet().network(resnet().genotype(A_bar), size)
    return measure(of, shape, device, by)(network)


def budget_for(
    of: str,
    limit: float,
    asked: str,
    size: Size,
    shape: Shape,
    device: torch.device,
    by: str = "auto",
) -> Budget:
    """The limit, and all sizes that there are; an InputError if no network is within it."""
    entries = _entries(of, size, shape, device, by)
    whole = partial(network_size, of, size=size, shape=shape, device=device, by=by)
    sizes = Sizes(of, entries, GROUPS, whole)
    return Budget(sizes, limit, asked, ", or fewer {channels}")


@lru_cache(maxsize=4)
def _entries(of: str, size: Size, shape: Shape, device: torch.device, by: str) -> Matrices:
    """What each kind of each block adds; seconds are measured once, and not long: the time is for
    the training."""
    with torch.device("meta"):
        module, x = resnet().choice_network(size).eval(), torch.empty(1, *shape)
    added = Stopwatch(choose(by, device)).added if of == "latency" else _no_seconds
    return costs.entries(Supernet(module, GROUPS), x, of, added)


def _no_seconds(module: nn.Module, source: Source) -> float:
    raise AssertionError("what is counted is not timed")


def worth(net: Supernet, A_bar: Matrices, batches: Sequence[Batch]) -> Matrices:
    """For every kind of every block: how much lower the loss is on the same images if it alone is
    exchanged (below 0: higher)."""
    found = {name: torch.zeros_like(matrix) for name, matrix in A_bar.items()}
    with batch_statistics(net.module):
        plain = losses(net, A_bar, batches).mean()
        for name, matrix in A_bar.items():
            # the selected kind is worth 0 by definition
            for e, k in (matrix == 0).nonzero().tolist():
                changed = losses(net, swapped(A_bar, Row(name, e), k), batches)
                # worth[e, k] = L(A_bar) - L(A_bar with k in row e)
                found[name][e, k] = float(plain - changed.mean())
    net.use(A_bar)
    return found


def within(
    budget: Budget,
    found: Matrices,
    A_bar: Matrices,
    size: Size,
    shape: Shape,
    device: torch.device,
    by: str = "auto",
) -> Matrices:
    """The network within the limit that is worth most. Seconds do not quite add up: what is too
    slow is projected again, onto less."""
    chosen = budget.project(found, A_bar)
    # what is counted adds up exactly: the first projection is the answer
    for _ in range(TRIES if budget.sizes.of == "latency" else 0):
        seconds = network_size("latency", chosen, size, shape, device, by)
        if seconds <= budget.limit or budget.aim < budget.sizes.smallest:
            break
        budget.tighten(seconds)
        chosen = budget.project(found, A_bar)
    return chosen
