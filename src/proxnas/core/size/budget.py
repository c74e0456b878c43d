"""A limit on the final network: its parameters, multiply-adds or seconds as a sum over the entries
of A_bar.

    size(A_bar) = fixed + sum of entries[e,k] over the selected (e,k)

For parameters and multiply-adds that is exact, so a cell within the limit is a network within the
limit; wired groups are brought to one row for it (wiring.py). Seconds do not quite add up: there
the sum is a model, fitted to whole networks, and the limit that is aimed at can be tightened.

E edges, K candidates; entries are (E, K) for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from proxnas.common.errors import AboutOptions
from proxnas.common.quantities import shown
from proxnas.common.types import Matrices, State
from proxnas.core.groups import Group
from proxnas.core.size.nesting import best, best_within, losses, reached
from proxnas.core.size.projection import SLACK
from proxnas.core.size.wiring import (
    allowed,
    selected_sets,
    set_entries,
    set_scores,
    sets_of,
    unfolded,
)

Total = Callable[[Matrices], float]
"""The size of the whole network of an A_bar, counted or measured."""


class Sizes:
    """The sizes of a space's networks, and which of them are the smallest and the largest."""

    def __init__(
        self, of: str, entries: Matrices, groups: Mapping[str, Group], total: Total
    ) -> None:
        """`entries`: what each entry of A_bar adds; of wired groups what each node does."""
        self.of, self.groups, self.rows = of, groups, sets_of(groups)
        self.entries, self.fixed = set_entries(entries, groups), 0.0
        # `fixed` is still 0: low and high are sums of entries alone
        smallest, largest = (self._best(sign) for sign in (-1.0, 1.0))
        low, high, known = self(smallest), self(largest), total(smallest)
        # parts share overheads: a scale that is right at both ends
        if of == "latency" and high > low:
            scale = (total(largest) - known) / (high - low)
            scale = scale if scale > 0 else 1.0  # a machine too busy to tell them apart
            self.entries = {name: scale * matrix for name, matrix in self.entries.items()}
        # the stem, the classifier and what else every network has
        self.fixed = known - self(smallest)
        self.smallest, self.largest = self(smallest), self(largest)

    def __call__(self, A_bar: Matrices) -> float:
        """The size of the final network that A_bar selects."""
        # entries of A_bar may be a_k: a candidate that is there counts in full
        counted = reached(selected_sets(A_bar, self.groups), self.rows)
        parts = [(self.entries[name] * (counted[name] != 0)).sum() for name in self.entries]
        return self.fixed + float(torch.stack(parts).sum())

    def _best(self, sign: float) -> Matrices:
        """The cell of the space with the largest (1) or the smallest (-1) sum of entries, its
        inputs chosen too."""
        scores = {
            name: allowed(sign * matrix, self.groups[name]) for name, matrix in self.entries.items()
        }
        return unfolded(best(scores, self.rows), self.groups)

    def best_within(self, A: Matrices, limit: float) -> Matrices | None:
        """A_bar within the limit with the largest sum of A; None if there is none."""
        # wired groups as one row each, nested ones by what they lose: then a plain knapsack
        scores = losses(set_scores(A, self.groups), self.rows)
        found = best_within(scores, self.entries, self.rows, limit - self.fixed)
        return None if found is None else unfolded(found, self.groups)

    def state_dict(self) -> State:
        names = ("entries", "fixed", "smallest", "largest")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: State) -> None:
        # seconds are not measured alike twice: a run goes on with those that it began with
        vars(self).update(state)


class Budget:
    """A limit on one of the sizes, and the projection onto the cells within it."""

    def __init__(self, sizes: Sizes, limit: float, asked: str, or_else: str = "") -> None:
        """`asked`: {option} and its value, and `or_else`: another way out, for the error if no
        network is as small."""
        self.sizes, self.limit, self.aim = sizes, limit, limit
        if sizes.smallest > limit * (1 + SLACK):
            raise AboutOptions(
                f"{asked}: the smallest network of this space and size has"
                f" {shown(sizes.of, sizes.smallest)}: give at least that{or_else}"
            )

    def meets(self, A_bar: Matrices) -> bool:
        return self.sizes(A_bar) <= self.aim * (1 + SLACK)

    def excess(self, A_bar: Matrices) -> float:
        """How far beyond the limit, as a share of the span from the smallest to the largest
        network; below 0: room."""
        span = self.sizes.largest - self.sizes.smallest
        return (self.sizes(A_bar) - self.aim) / span if span else 0.0

    def project(self, A: Matrices, A_bar: Matrices) -> Matrices:
        """A_bar if it is within the limit, else the cell within it with the largest sum of A
        (entries 0 and 1).

        Entries are added up across rows, so they must mean the same in all of them: probabilities,
        not logits.
        """
        if self.meets(A_bar):
            return A_bar
        # `tighten` may have brought the aim below all networks: then the smallest is the answer
        found = self.sizes.best_within(A, max(self.aim, self.sizes.smallest))
        assert found is not None  # the smallest network fits
        return found

    def tighten(self, measured: float) -> None:
        """Aim lower after a network that the sums took for small enough turned out to be too
        large."""
        # by as much as was exceeded, and 2% more, lest the next one miss by a hair
        self.aim *= 0.98 * self.limit / measured

    def to_json(self) -> dict[str, Any]:
        """What result.json says of it."""
        sizes = {
            "limit": self.limit,
            "smallest": self.sizes.smallest,
            "largest": self.sizes.largest,
        }
        found: dict[str, Any] = {"of": self.sizes.of}
        for name, size in sizes.items():
            # parameters and multiply-adds are whole numbers, seconds are not
            found[name] = size if self.sizes.of == "latency" else round(size)
        return found

    def state_dict(self) -> State:
        return {"sizes": self.sizes.state_dict(), "aim": self.aim}

    def load_state_dict(self, state: State) -> None:
        self.sizes.load_state_dict(state["sizes"])
        self.aim = state["aim"]
