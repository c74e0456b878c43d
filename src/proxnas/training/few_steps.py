"""Trainings on few data or in little time: what counts is how many steps there are, not how many
epochs.

Batches of 64 of 288 images make 4 steps an epoch, and after 24 such epochs a network has hardly
left its initial weights. So where nobody asked for a size, batches are small enough for a training
to have steps.
"""

from __future__ import annotations

LEAST_STEPS = 300
"""Steps that a training should have, whatever its data."""
SMALLEST_BATCH = 16
"""Smaller batches make no more of the same time, and their statistics are poor."""


def batch_for(images: int, epochs: int, usual: int, smallest: int = SMALLEST_BATCH) -> int:
    """The usual size of a batch, halved until the epochs have LEAST_STEPS steps; never more images
    than there are."""
    size = usual
    while size // 2 >= smallest and epochs * (images // size) < LEAST_STEPS:
        size //= 2
    # batch norms need two
    return max(2, min(size, images))


def epochs_for(images: int, batch_size: int, usual: int, most: int) -> int:
    """The usual epochs, or as many (up to `most` times the usual) as LEAST_STEPS steps take."""
    steps = max(1, images // batch_size)
    needed = -(-LEAST_STEPS // steps)
    return max(usual, min(most * usual, needed))


def windows_for(
    tokens: int, batch_size: int, bptt: int, fixed: tuple[bool, bool]
) -> tuple[int, int]:
    """Columns and window of a text, made smaller where it is too short for them; `fixed`: which of
    them were asked for.

    A column needs bptt tokens and one more to predict: first there are fewer columns, then shorter
    windows.
    """
    if not fixed[0]:
        while batch_size > 2 and tokens // batch_size - 1 < bptt:  # a search needs two
            batch_size = max(2, batch_size // 2)
    rows = tokens // batch_size - 1
    return batch_size, bptt if fixed[1] else max(1, min(bptt, rows))
