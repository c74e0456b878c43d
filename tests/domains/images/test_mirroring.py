"""Whether images may be mirrored: what simple models say of it, and what a fit makes of that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proxnas.domains.images.baselines import Baseline, baselines
from proxnas.domains.images.data.arrays import from_arrays
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.images.mirroring import keep_their_class
from proxnas.workflows.fit_plan import mirrors


def simple(known: float | None, mirrored: float | None, chance: float = 0.1) -> list[Baseline]:
    """A linear model that is so good."""
    most = Baseline("most frequent class", chance, chance, 0, 0.0, chance)
    return [most, Baseline("logistic regression", known, 0.5, 10, 0.0, mirrored)]


@pytest.mark.parametrize(
    ("models", "images", "expected"),
    [
        (simple(0.5, 0.48), 200, True),
        (simple(0.5, 0.2), 200, False),
        (simple(0.5, 0.301), 200, True),  # half of 0.4 beyond chance
        (simple(0.5, 0.299), 200, False),
        (simple(0.18, 0.18), 200, None),  # hardly more than by chance: 3.8 standard errors
        (simple(0.19, 0.19), 200, True),
        (simple(0.5, 0.48), 99, None),  # too few images
        (simple(1.0, 1.0, chance=1.0), 200, True),
        (simple(None, None), 200, None),  # no validation part
        ([Baseline("mean", 0.1, 0.1, 0, 0.0)], 200, None),  # numbers are learnt
        ([], 200, None),
    ],
)
def test_they_may_be_where_a_linear_model_knows_mirrored_ones_too(
    models: list[Baseline], images: int, expected: bool | None
) -> None:
    assert keep_their_class(models, images) is expected


def halves(axis: int, number: int) -> tuple[Any, Any]:
    """Images of two classes: which half along the axis is brighter."""
    random = np.random.RandomState(0)
    y = np.arange(number) % 2
    x = random.randint(0, 100, (number, 8, 8, 1))
    for half in (0, 1):
        part = [slice(None), slice(None), slice(None)]
        part[axis], part[0] = slice(4 * half, 4 * half + 4), y == half
        x[tuple(part)] += 100
    return x.astype(np.uint8), y


@pytest.mark.parametrize(("axis", "kept"), [(1, True), (2, False)])
def test_images_themselves_tell(axis: int, kept: bool) -> None:
    x, y = halves(axis, 600)
    part = slice(0, 300), slice(300, 500), slice(500, 600)
    train, valid, test = ((x[p], y[p]) for p in part)
    found = baselines(train, valid, test)
    assert keep_their_class(found, 200) is kept
    assert keep_their_class(baselines(train, None, test), 0) is None


@pytest.mark.parametrize(
    ("told", "asked", "expected"),
    [
        (simple(0.5, 0.48), {}, True),
        (simple(0.5, 0.3), {}, False),
        (simple(0.5, 0.48), {"flip": "no"}, False),
        (simple(0.5, 0.3), {"flip": "yes"}, True),
        ([], {}, False),  # grey images
        (simple(0.5, 0.48), {"flip_test": True}, False),  # that was promised before anything ran
    ],
)
def test_what_was_asked_for_goes_before_what_models_say(
    told: list[Baseline], asked: dict[str, Any], expected: bool
) -> None:
    x, y = halves(1, 40)
    images = from_arrays({"x_train": x, "y_train": y, "x_test": x, "y_test": y}, "halves", "halves")
    assert mirrors(FitConfig(data="halves", **asked), images, told, 200) is expected
