"""Choices inside candidates of other Choices, where sizes are counted: a decision counts only if it
is reached.

    size(A_bar) = fixed + sum of entries over the selected entries of those rows whose holder is
        selected too

The holder of a row is the candidate that it is decided inside of (`Group.inside`), itself inside
another one perhaps. Rows with holders have one edge (E = 1), K candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from proxnas.common.errors import InputError
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import Group, Holder
from proxnas.core.size import projection


class Option(NamedTuple):
    """What a Choice can be with all that is decided inside of it."""

    cost: float
    score: float
    picks: tuple[tuple[str, int], ...]
    """(group, candidate)."""


def reached(A_bar: Matrices, groups: Mapping[str, Group]) -> Matrices:
    """A_bar without the rows inside candidates that are not selected."""

    def counts(name: str) -> bool:
        holder = groups[name].inside
        return holder is None or (bool(A_bar[holder.group][0, holder.k]) and counts(holder.group))

    return {
        name: matrix if counts(name) else torch.zeros_like(matrix) for name, matrix in A_bar.items()
    }


def losses(A: Matrices, groups: Mapping[str, Group]) -> Matrices:
    """A, or where rows may be unreached how far its entries are below the best of their row: with
    plain sums of A a candidate would win by holding more decisions."""
    nested = any(group.inside for group in groups.values())
    # (1, K), at most 0: what is not reached loses nothing
    return {name: a - a.amax(1, keepdim=True) for name, a in A.items()} if nested else A


def best_within(
    A: Matrices, costs: Matrices, groups: Mapping[str, Group], room: float
) -> Matrices | None:
    """A_bar with the largest sum of A over what is reached whose cost is at most `room`; None if
    everything costs more.

    A Choice with all that is inside of it is one row of the knapsack.
    """
    roots = [name for name, group in groups.items() if group.inside is None]
    if len(roots) == len(groups):
        return projection.best_within(A, costs, groups, room)
    # each root becomes one row whose columns are its options
    options = {name: _options(name, A, costs, groups) for name in roots}
    rows = {name: Group(tuple(str(i) for i in range(len(each)))) for name, each in options.items()}
    scores = {name: _row([option.score for option in each]) for name, each in options.items()}
    prices = {name: _row([option.cost for option in each]) for name, each in options.items()}
    chosen = projection.best_within(scores, prices, rows, room)
    if chosen is None:
        return None
    picks = {
        name: k for root in roots for name, k in options[root][int(chosen[root].argmax())].picks
    }
    # what is not reached keeps its best
    best = {name: picks.get(name, int(a.argmax())) for name, a in A.items()}
    return {
        name: _row([float(k == best[name]) for k in range(a.shape[1])]) for name, a in A.items()
    }


def best(A: Matrices, groups: Mapping[str, Group]) -> Matrices:
    """A_bar with the largest sum of A, whatever it costs."""
    found = best_within(A, {name: torch.zeros_like(a) for name, a in A.items()}, groups, 0.0)
    assert found is not None  # what costs nothing fits
    return found


def _options(name: str, A: Matrices, costs: Matrices, groups: Mapping[str, Group]) -> list[Option]:
    """Those of a Choice that no other beats in cost and score."""
    found = []
    for k in range(len(groups[name].candidates)):
        parts = [Option(float(costs[name][0, k]), float(A[name][0, k]), ((name, k),))]
        # decisions inside one candidate are free of each other: all pairs, then those worth having
        for inner in (other for other, group in groups.items() if group.inside == Holder(name, k)):
            more = _options(inner, A, costs, groups)
            parts = _undominated(
                [Option(a[0] + b[0], a[1] + b[1], a[2] + b[2]) for a in parts for b in more]
            )
        found += parts
    return _undominated(found)


def _undominated(options: list[Option]) -> list[Option]:
    kept: list[Option] = []
    # by rising cost, of equals the best first: whatever does not score more is beaten
    for option in sorted(options, key=lambda o: (o.cost, -o.score)):
        if not kept or option.score > kept[-1].score:
            kept.append(option)
    return kept


def _row(values: list[float]) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


# ------------------------------------------------------------- modules


class Holders(NamedTuple):
    """Which candidates hold what; None: it stands outside of all Choices."""

    rows: dict[str, set[Holder | None]]
    weights: dict[nn.Parameter, set[Holder | None]]


def holders(module: nn.Module) -> Holders:
    """Of the rows and the trained weights of a module whose rows are named."""
    found = Holders({}, {})
    seen: set[tuple[int, Holder | None]] = set()
    waiting: list[tuple[nn.Module, Holder | None]] = [(module, None)]
    while waiting:
        part, holder = waiting.pop()
        # a module that stands in several places is gone through once for each holder
        if (id(part), holder) in seen:
            continue
        seen.add((id(part), holder))
        for w in part.parameters(recurse=False):
            found.weights.setdefault(w, set()).add(holder)
        if isinstance(part, Choice) and part.row:
            found.rows.setdefault(part.row.group, set()).add(holder)
            waiting += [
                (candidate, Holder(part.row.group, k))
                for k, candidate in enumerate(part.candidates)
            ]
        else:
            waiting += [(child, holder) for child in part.children()]
    return found


def own_parameters(module: nn.Module, groups: Mapping[str, Group]) -> Matrices:
    """Group -> (1, K): the trained weights of each candidate, without those of the Choices inside
    of it.

    An InputError where sizes are no sums: a decision or a weight that several candidates hold.
    """
    check_holders(module)
    total = {name: torch.zeros(group.shape, dtype=torch.float64) for name, group in groups.items()}
    for w, of in holders(module).weights.items():
        if None in of or not w.requires_grad:
            continue  # what stands outside of all Choices too is there whatever is selected
        for holder in of:
            assert holder is not None
            total[holder.group][0, holder.k] += w.numel()
    return total


def check_holders(module: nn.Module) -> None:
    """An InputError where the size of a network is no sum over the candidates that it is made
    of."""
    rows, weights = holders(module)
    for name, of in rows.items():
        if len(of) > 1:
            raise InputError(
                f"Choice {name!r}: stands in {_places(of)}: with a limit a decision must have one"
                " place"
            )
    names = {id(w): name for name, w in module.named_parameters()}
    for w, of in weights.items():
        if len(of) > 1 and None not in of:
            raise InputError(
                f"parameter {names[id(w)]!r}: stands in {_places(of)}: with a limit give each"
                " its own"
            )


def _places(of: set[Holder | None]) -> str:
    return " and ".join(sorted(_place(holder) for holder in of))


def _place(holder: Holder | None) -> str:
    return f"candidate {holder.k} of {holder.group!r}" if holder else "no candidate"
