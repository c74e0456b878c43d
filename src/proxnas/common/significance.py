"""Whether differences are more than chance: Student's t test that their mean is zero."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

FEWEST = 3
"""Differences below which nothing is said: two give no idea of their own spread."""


def p_value(differences: Sequence[float]) -> float | None:
    """Of a two-sided test; None if the differences do not say."""
    if len(differences) < FEWEST:
        return None
    if not any(differences):
        return 1.0
    # all alike, which a finite sample of noise is not: the test has no answer
    if statistics.stdev(differences) == 0:
        return None
    # it takes most of a second to load
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(differences, 0.0).pvalue)


def p_of_gain(differences: Sequence[float]) -> float | None:
    """Of a one-sided test: how likely so large a mean gain is where there is none."""
    both = p_value(differences)
    if both is None:
        return None
    return both / 2 if statistics.mean(differences) > 0 else 1 - both / 2
