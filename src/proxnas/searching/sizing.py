"""From flags to sizes: what R(A) counts in this search, and the limit on its final network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.common.types import Matrices
from proxnas.core.size.budget import Budget, Sizes
from proxnas.core.size.complexity import parameter_costs, parameters, shares
from proxnas.core.size.cost_file import read_costs
from proxnas.core.space import Space
from proxnas.domains.task import Task
from proxnas.searching.options import SearchOptions

TRIES = 6
"""Networks that are timed at the end until one is as quick as was asked."""


def costs_of_R(config: SearchOptions, task: Task) -> dict[str, Tensor]:
    """Group -> p_k / p_bar (K,), by --cost."""
    cost = config.cost_of_R()
    if cost == "params":
        return parameter_costs(task.net)
    if cost in ("flops", "latency"):
        return shares(task.candidate_costs(cost))
    return shares(read_costs(Path(cost), task.net.groups))


def sizes(of: str, task: Task, space: Space[Any]) -> Sizes:
    """Parameters, multiply-adds or seconds of all the final networks of a search."""
    counts: dict[str, Callable[[nn.Module], float]] = {
        "params": parameters,
        "flops": task.multiply_adds,
    }

    def counted(A_bar: Matrices) -> float:
        return counts[of](task.final_network(space.genotype(A_bar)))

    total = task.total_seconds if of == "latency" else counted
    return Sizes(of, task.entries(of), task.net.groups, total)


def budget(config: SearchOptions, task: Task, space: Space[Any]) -> Budget | None:
    """The limit that is asked for; an InputError if no network of the space is within it."""
    limit = config.limits.limit()
    if limit is None:
        return None
    of_all = sizes(limit.of, task, space)
    return Budget(of_all, limit.value, limit.asked(), config.domain.or_smaller)


def settle(this: Budget, task: Task, genotype: Callable[[], Genotype]) -> float | None:
    """Seconds are no sums: time the network that would be returned, and aim lower until it is
    within the limit.

    Returns what was measured; None for sizes that are sums.
    """
    seconds = None
    for _ in range(TRIES if this.sizes.of == "latency" else 0):
        seconds = task.seconds(task.final_network(genotype()))
        if seconds <= this.limit or this.aim < this.sizes.smallest:
            break
        this.tighten(seconds)
    return seconds
