"""The rule by which a node keeps its inputs: part of `select`, so that the cell returned is the
cell trained.

E edges, K candidates; all on the host, where these few numbers are decided once a step.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, SKIP, Group


def keep_inputs(A: Tensor, A_bar: Tensor, group: Group, priority: Tensor | None = None) -> Tensor:
    """A_bar with, for each node, only the `max_inputs` edges whose selected entry of A is largest;
    the others zero.

    An edge that selected `none` is absent and not counted. A node left without any input keeps its
    best edge that is not `none`. Where the space sets no limit, every edge stays as it is. If more
    than `max_skip` edges are then skip connections, the one with the smallest entry turns to its
    next best candidate, and so on.
    """
    kept = _strongest(A, A_bar, group, priority)
    others = set(group.candidates) - {SKIP, NONE}
    if group.max_skip is None or not others or SKIP not in group.candidates:
        return kept
    skip = group.candidates.index(SKIP)
    # ends: each round turns one more row, and a row once turned is no skip connection again
    while len(skips := kept[:, skip].nonzero().flatten().tolist()) > group.max_skip:
        A_bar = _turned(A, A_bar, min(skips, key=lambda e: float(A[e, skip])), group)
        # a turned edge may be too weak now: which inputs its node keeps is asked anew
        kept = _strongest(A, A_bar, group, priority)
    return kept


def _turned(A: Tensor, A_bar: Tensor, e: int, group: Group) -> Tensor:
    """A_bar with the best candidate of row e that is neither a skip connection nor `none`."""
    others = [k for k, name in enumerate(group.candidates) if name not in (SKIP, NONE)]
    k = max(others, key=lambda k: float(A[e, k]))
    turned = A_bar.clone()
    turned[e] = 0.0
    turned[e, k] = _value(A[e, k])
    return turned


def _strongest(A: Tensor, A_bar: Tensor, group: Group, priority: Tensor | None) -> Tensor:
    if group.max_inputs is None:
        return A_bar
    selected = A_bar != 0
    # (E,): the selected entry of each row, for a row has only one
    strength = torch.where(selected, A, 0.0).sum(-1).tolist()
    if priority is None:
        order = [0.0] * len(strength)
    else:
        order = torch.where(selected, priority, 0.0).sum(-1).tolist()
    absent = _selects_none(selected, group)
    kept = torch.zeros_like(A_bar)
    for rows in group.nodes:
        present = [e for e in rows if not absent[e]]
        # sorting is stable: where nothing else decides, the edge from the earlier state stays
        for e in sorted(present, key=lambda e: (-strength[e], -order[e]))[: group.max_inputs]:
            kept[e] = A_bar[e]
        if not present:
            _keep_best(A, kept, rows, group)
    return kept


def one_hot(A: Tensor, group: Group) -> Tensor:
    """A discrete A_bar from weights over candidates, as DARTS derives it: per row the best
    candidate, `none` never counted where nodes keep a number of inputs; ranked by that candidate's
    weight."""
    usable = A.clone()
    if group.max_inputs is not None and NONE in group.candidates and len(group.candidates) > 1:
        # a node that keeps a fixed number of inputs drops edges itself; `none` has nothing to add
        usable[:, group.candidates.index(NONE)] = -torch.inf
    A_bar = torch.zeros_like(A).scatter_(-1, usable.argmax(-1, keepdim=True), 1.0)
    # an entry that was turned on holds its value
    return (keep_inputs(A, A_bar, group) != 0).to(A.dtype)


def changed(before: Matrices, after: Matrices) -> int:
    """How many entries of A_bar were switched on or off."""
    return sum(int(((before[name] != 0) != (after[name] != 0)).sum()) for name in after)


def without_weights(A_bar: Matrices, groups: Mapping[str, Group]) -> list[str]:
    """The groups that selected nothing but skip connections, pooling and `none`, though they had a
    choice."""
    found = []
    for name, group in groups.items():
        # which columns of A have something to train
        weighty = [not (op in (SKIP, NONE) or "pool" in op) for op in group.candidates]
        if any(weighty) and not (A_bar[name] != 0)[:, weighty].any():
            found.append(name)
    return found


def random_selection(group: Group, generator: torch.Generator) -> Tensor:
    """A uniformly random A_bar of the group: random operations, random inputs."""
    return one_hot(torch.rand(group.shape, generator=generator, dtype=torch.float64), group)


def _selects_none(selected: Tensor, group: Group) -> list[bool]:
    if NONE not in group.candidates:
        return [False] * selected.shape[0]
    absent: list[bool] = selected[:, group.candidates.index(NONE)].tolist()
    return absent


def _keep_best(A: Tensor, kept: Tensor, rows: tuple[int, ...], group: Group) -> None:
    usable = [k for k, name in enumerate(group.candidates) if name != NONE]
    # a group of `none` alone leaves the node empty
    if usable:
        e, k = max(((e, k) for e in rows for k in usable), key=lambda entry: float(A[entry]))
        kept[e, k] = _value(A[e, k])


def _value(a: Tensor) -> float:
    """What a selected entry is worth in A_bar: lazy PA's A may leave (0, 1]."""
    return min(float(a), 1.0) if a > 0 else 1.0
