"""Which methods differ: paired t tests over common seeds, corrected for their number.

A seed fixes the split of the data and the order of the batches, so two methods are compared seed by
seed. With p values p_(1) <= ... <= p_(m) Holm's corrected ones are max over i <= k of (m - i + 1)
p_(i): the chance of calling any two alike methods different is then at most the level, however many
pairs there are.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from proxnas.common.significance import p_value

LEVEL = 0.05


@dataclass(frozen=True)
class Pair:
    """Two methods: the mean of first minus second, and the corrected p value; None if it cannot be
    told."""

    first: str
    second: str
    seeds: int
    difference: float
    p: float | None
    corrected: float | None = None

    @property
    def verdict(self) -> str:
        if self.corrected is None:
            return "cannot be told"
        return "different" if self.corrected < LEVEL else "not told apart"


def compare_pairs(figures: Mapping[str, Mapping[int, float]]) -> list[Pair]:
    """All pairs of methods; figures: method -> seed -> figure."""
    pairs = [_pair(a, b, figures[a], figures[b]) for a, b in combinations(figures, 2)]
    corrected = iter(holm([pair.p for pair in pairs if pair.p is not None]))
    found = []
    for pair in pairs:
        # pairs without a p value are no tests, and do not count in the correction
        told = pair if pair.p is None else replace(pair, corrected=next(corrected))
        if pair.seeds:
            found.append(told)
    return found


def _pair(first: str, second: str, a: Mapping[int, float], b: Mapping[int, float]) -> Pair:
    # a seed decides data and weights alike, so differences within a seed have less noise
    common = sorted(a.keys() & b.keys())
    differences = [a[seed] - b[seed] for seed in common]
    mean = statistics.mean(differences) if common else 0.0
    return Pair(first, second, len(common), mean, p_value(differences))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's corrected p values, in the order given."""
    corrected, highest = [0.0] * len(p), 0.0
    # from the smallest p value to the largest
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        # the r-th smallest of m (from 0) times m - r, and never below the one before
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        corrected[i] = highest
    return corrected
