"""Whether training images may be mirrored, asked of the data.

A model that has seen no mirrored image answers them as well as others where left and right mean
nothing (photos of things), and far worse where they do (writing). A linear model on pixels, which
is made anyhow, tells it before the first step.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxnas.domains.images.baselines import LINEAR, MOST_FREQUENT, Baseline

FEWEST = 100
"""Validation images that can tell."""
AS_WELL = 0.5
"""Share of what is known beyond chance that must be known of mirrored images too. Measured: 0.9 to
1.05 of photos, grey ones too; 0.7 of clothes, which are better learnt mirrored; 0.2 to 0.3 of
digits, coloured ones too."""
SURE = 4.0
"""Standard errors by which more must be known than the most frequent class."""


def keep_their_class(simple: Sequence[Baseline], images: int) -> bool | None:
    """Whether mirrored images do, by what simple models know of so many validation images; None:
    they cannot tell."""
    known = {model.name: model for model in simple}
    if images < FEWEST or LINEAR not in known or MOST_FREQUENT not in known:
        return None
    chance, right = known[MOST_FREQUENT].valid_accuracy, known[LINEAR].valid_accuracy
    mirrored = known[LINEAR].mirrored_accuracy
    if chance is None or right is None or mirrored is None:
        return None
    # the standard error of a share p of n images: sqrt(p (1 - p) / n)
    if right - chance < SURE * (chance * (1 - chance) / images) ** 0.5:
        return None
    # beyond chance: of mirrored images at least so much as of the others
    return mirrored - chance >= AS_WELL * (right - chance)
