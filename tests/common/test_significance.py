"""Whether differences are more than chance."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_1samp

from proxnas.common.significance import p_of_gain, p_value

GAINS = [0.085, -0.027, 0.053, -0.002, 0.079, 0.035, 0.052, 0.006]


def test_a_gain_is_asked_for_on_one_side() -> None:
    expected = ttest_1samp(GAINS, 0, alternative="greater").pvalue
    assert expected == pytest.approx(0.0205, 0.01)
    assert p_of_gain(GAINS) == pytest.approx(expected)
    assert p_of_gain([-gain for gain in GAINS]) == pytest.approx(1 - expected)
    assert p_value(GAINS) == pytest.approx(2 * expected)


def test_what_differences_do_not_say() -> None:
    assert p_of_gain([0.1, 0.2]) is None
    assert p_of_gain([0.0] * 8) == 0.5
    assert p_of_gain([0.1] * 8) is None  # as noise never is
