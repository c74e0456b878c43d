"""From flags to sizes: what R(A) counts in this search, and the limit on its final network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from proxnas.cells.genotype import CUSTOM, Genotype
from proxnas.core.size.budget import Budget, Sizes
from proxnas.core.size.complexity import parameter_costs, parameters, shares
from proxnas.core.size.cost_file import read_costs
from proxnas.core.space import Space
from proxnas.domains.task import Task
from proxnas.searching.options import SearchConfig

TRIES = 6
"""Networks that are timed at the end until one is as quick as was asked."""
SMALLER = {CUSTOM: "", "rnn": ", or fewer --final-units"}
"""What else would bring networks within a limit, where it is not the size of a stack of cells."""


def costs_of_R(config: SearchConfig, task: Task) -> dict[str, Tensor]:
    """Group -> p_k / p_bar (K,), by --cost."""
    cost = config.cost_of_R()
    if cost == "params":
        return parameter_costs(task.net)
    if cost in ("flops", "latency"):
        return shares(task.candidate_costs(cost))
    return shares(read_costs(Path(cost), task.net.groups))


def sizes(of: str, task: Task, space: Space[Any]) -> Sizes:
    """Parameters, multiply-adds or seconds of all the final networks of a search."""
    measures: dict[str, Callable[[nn.Module], float]] = {
        "params": parameters,
        "flops": task.multiply_adds,
        "latency": task.seconds,
    }
    return Sizes(
        of,
        task.entries(of),
        task.net.groups,
        lambda A_bar: measures[of](task.final_network(space.genotype(A_bar))),
    )


def budget(config: SearchConfig, task: Task, space: Space[Any]) -> Budget | None:
    """The limit that is asked for; an InputError if no network of the space is within it."""
    limit = config.limit()
    or_else = SMALLER.get(config.space, ", or fewer --final-cells or --final-channels")
    return (
        Budget(sizes(limit.of, task, space), limit.value, limit.asked, or_else) if limit else None
    )


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
