"""A -> A_bar: the prox on every row, the inputs of every node, the value of an entry; within a
limit if there is one.

E edges, K candidates; A is (E, K) for each group and stays on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, Group
from proxnas.core.prox import prox_c
from proxnas.core.selection import keep_inputs
from proxnas.core.size.budget import Budget

Prox = Callable[[Tensor, Tensor | None], Tensor]
"""A (E, K) and what decides among equal entries (E, K) -> the nearest point of a set."""


class Discretizer:
    """What A selects, by a prox and the rules that the paper leaves open: ties, and the value of a
    selected entry (`ProximalOptions.ties`, `.value`)."""

    def __init__(
        self,
        groups: Mapping[str, Group],
        prox: Prox,
        *,
        value: str,
        ties: str,
        lots: Matrices,
        budget: Budget | None = None,
    ) -> None:
        """`lots`: random numbers in [0, 1) that decide among equals where nothing else does."""
        self.groups, self.prox, self.budget = groups, prox, budget
        self.value, self.ties, self.lots = value, ties, lots

    def __call__(self, A: Matrices, last: Matrices, noise: Matrices | None = None) -> Matrices:
        """What A, with the noise on it, selects, or the nearest cell within the limit; `last`: what
        was selected last and stays in a tie."""
        wanted = self.unlimited(A, last, noise)
        if self.budget is None:
            return wanted
        # so all that is trained is small enough, and what is returned too
        within = self.budget.project(_disturbed(A, noise), wanted)
        # what fits is handed back itself, with its values; another cell comes with entries 1
        return wanted if within is wanted else self._valued(A, within)

    def unlimited(self, A: Matrices, last: Matrices, noise: Matrices | None = None) -> Matrices:
        """The same where no limit is set."""
        # noise takes entries out of [0, 1]; there prox_C still means the largest, prox_C1 the
        # largest in magnitude
        prox = self.prox if noise is None else prox_c
        selected = {}
        for name, a in _disturbed(A, noise).items():
            priority = self.priority(name, last)
            selected[name] = keep_inputs(a, prox(a, priority), self.groups[name], priority)
        has_values = self.value == "a_k" and noise is None  # the prox has left them
        return selected if has_values else self._valued(A, selected)

    def priority(self, name: str, last: Matrices) -> Tensor:
        """Who comes first among equal entries (E, K), or (K,) for every row."""
        if self.ties == "first":
            # but never `none`, which the code with that rule does not have: a network of ties would
            # be empty for ever
            order = [-float(op == NONE) for op in self.groups[name].candidates]
            return torch.tensor(order, dtype=torch.float64)
        if name not in last:
            return self.lots[name]
        # what was selected last stays in a tie: two entries clipped to 1 must not take turns
        # lots are below 1, so one more puts it before all others
        return self.lots[name] + (last[name] != 0)

    def _valued(self, A: Matrices, selected: Matrices) -> Matrices:
        """The same entries with their values: 1, or a_k without noise."""
        if self.value == "one":
            return {name: (a != 0).to(a.dtype) for name, a in selected.items()}
        # an entry of 0 that was selected keeps a factor: at 0 it would no longer be part of A_bar
        return {
            name: torch.where(a != 0, A[name].clamp(1e-6, 1.0), 0.0) for name, a in selected.items()
        }


def _disturbed(A: Matrices, noise: Matrices | None) -> Matrices:
    return A if noise is None else {name: a + noise[name] for name, a in A.items()}
