"""Who trains and who tests: splits that are the same in every process, with every version of
numpy."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def split(y: Array, parts: int, seed: int) -> list[Array]:
    """Deal the indices of y into parts of equal class shares (to within one); a class of one goes
    to the first part."""
    # RandomState: its numbers are frozen for all versions of numpy, so a split means the same
    # images everywhere
    random = np.random.RandomState(stable_seed(seed, "split") % 2**32).random_sample(len(y))
    part = np.empty(len(y), dtype=np.int64)
    # sorted by class, within it by chance, and dealt out in turn
    part[np.lexsort((random, y))] = np.arange(len(y)) % parts
    _, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
    part[counts[inverse] == 1] = 0
    return [np.flatnonzero(part == p) for p in range(parts)]


def stable_seed(seed: int, name: str, number: int = 0) -> int:
    """A 63-bit seed for the number-th use of randomness called `name`: the same in every process,
    unlike hash()."""
    digest = hashlib.sha256(f"{seed}/{name}/{number}".encode()).digest()
    # torch takes seeds as signed numbers of 64 bits
    return int.from_bytes(digest[:8], "big") >> 1
