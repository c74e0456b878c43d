"""Which images train the network and which choose its weights, or its architecture."""

from __future__ import annotations

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.seeds import Array, split, stable_seed
from proxnas.domains.images.data.arrays import Images, Part


def train_parts(images: Images, share: float) -> tuple[Part, Part | None]:
    """(training part, validation part): the data's own, or a share held out of the training part;
    None without."""
    x, y = images.x_train, images.y_train
    if images.x_valid is not None and images.y_valid is not None:
        return (x, y), (images.x_valid, images.y_valid)
    train, valid = held_out(images.target.strata(y), share)
    return ((x[train], y[train]), (x[valid], y[valid])) if len(valid) else ((x, y), None)


def held_out(y: Array, share: float) -> tuple[Array, Array]:
    """Indices that stay and that are held out: fixed whatever the seed, equal shares of each class
    to within one."""
    # RandomState: its numbers are frozen for all versions of numpy
    random = np.random.RandomState(stable_seed(0, "held out") % 2**32).random_sample(len(y))
    # class by class, in random order within each (lexsort: the last key comes first)
    order = np.lexsort((random, y))
    # every 1/share-th in that order is held out: where floor(n * share) rises by one
    count = np.floor(np.arange(1, len(y) + 1) * share)
    chosen = np.zeros(len(y), dtype=bool)
    chosen[order] = count > np.floor(np.arange(len(y)) * share)
    _, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
    chosen[counts[inverse] == 1] = False  # the only image of its class is for training
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def search_parts(images: Images, seed: int) -> tuple[Part, Part]:
    """The part that trains w and the part that trains A: x_train and x_valid, or two seeded halves
    of x_train."""
    x, y = images.x_train, images.y_train
    if images.x_valid is not None and images.y_valid is not None:
        return (x, y), (images.x_valid, images.y_valid)
    w, A = split(y, 2, seed)
    if not len(A):
        raise InputError(
            f"{images.name}: one image a class is left to search on, which cannot be halved: give"
            " more, or a valid part"
        )
    return (x[w], y[w]), (x[A], y[A])
