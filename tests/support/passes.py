"""Passes by the clock that are as small as can be."""

from __future__ import annotations

from proxnas.domains.images.data.arrays import from_arrays
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.recipe import Plan
from support.commands import stripes

PLAN = Plan(
    seconds=1.0,
    batch_size=20,
    channels=4,
    image_size=0,
    epochs=1,
    search=True,
    flip=False,
    flip_test=False,
    reach=1 / 8,
    rotation=0.0,
    weighted=False,
    threads=1,
    device="cpu",
)
SHARES = [i / 24 for i in range(24)]
"""Of the time, before each step."""


def images(**changes: object) -> Images:
    return from_arrays(stripes(200, **changes), "stripes", "stripes")
