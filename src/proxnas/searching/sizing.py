"""From flags to sizes: what R(A) counts in this search, and the limit on its final network.

Costs of operations for R(A) may come from a JSON file:

    {"skip_connect": 0, "sep_conv_3x3": 1.4, ...}            the same in every group (kind of cell)
    {"normal": {"skip_connect": 0, ...}, "reduce": {...}}    by group, which comes first
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.common.errors import OptionError, escape, unknown
from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, Group
from proxnas.core.size.budget import Budget, Sizes
from proxnas.core.size.complexity import parameter_costs, parameters, shares
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
        # below the smallest there is no other network to try
        if seconds <= this.limit or this.aim < this.sizes.smallest:
            break
        this.tighten(seconds)
    return seconds


def read_costs(path: Path, groups: Mapping[str, Group]) -> dict[str, Tensor]:
    """Group -> p_k (K,) of its candidates; `none` costs nothing unless the file says so."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = f"cannot be read ({error.strerror}): give a JSON file of costs"
        raise _bad(path, why) from error
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"not JSON ({error}): give an object {{operation: cost}}") from error
    if not isinstance(data, dict):
        raise _bad(path, "not a JSON object {operation: cost} or {group: {operation: cost}}")
    known = {name for group in groups.values() for name in group.candidates}
    for name in data:
        if name not in known and name not in groups:
            raise _bad(path, str(unknown("operation or group", name, {*known, *groups})))
    return {name: _of_group(path, name, group, data) for name, group in groups.items()}


def _of_group(path: Path, name: str, group: Group, data: dict[str, Any]) -> Tensor:
    # a key may name a group or an operation; where it could be both it is the operation
    own = data.get(name, {}) if name not in group.candidates else {}
    if not isinstance(own, dict):
        found = json.dumps(own)[:40]
        raise _bad(path, f"group {name} has {found}: give an object {{operation: cost}}")
    for op in own:
        if op not in group.candidates:
            known = str(unknown("operation", op, group.candidates))
            raise _bad(path, f"group {name}: {known}")
    return torch.tensor(
        [_cost(path, name, op, own, data) for op in group.candidates], dtype=torch.float64
    )


def _cost(path: Path, group: str, op: str, own: dict[str, Any], data: dict[str, Any]) -> float:
    # the group's own, else the same for every group, else `none` for nothing
    value = own.get(op, data.get(op, 0.0 if op == NONE else None))
    if value is None:
        raise _bad(path, f"no cost for {op} of group {group}: give one, 0 if it is free")
    if type(value) not in (int, float) or not 0 <= value <= 1e300 or not math.isfinite(value):
        found = json.dumps(value)[:40]
        raise _bad(path, f"{op} costs {found}: give a finite number of at least 0")
    return float(value)


def _bad(path: Path, why: str) -> OptionError:
    """The error for a file of costs."""
    return OptionError("cost", path, escape(why))
