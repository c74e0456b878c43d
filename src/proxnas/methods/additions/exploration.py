"""Exploration: noise on A when a step selects.

Why: Alg. 2 trains what is best so far and nothing else. A candidate that is never selected is never
trained and so keeps scoring badly, and a node whose edges all selected `none` gets no gradient to
leave that by. With noise on A others than the best are tried and trained too.
"""

from __future__ import annotations

import torch

from proxnas.common.types import Matrices
from proxnas.methods.gumbel import gumbel
from proxnas.methods.optimizers import WeightOptimizer


class Exploration:
    """Gumbel noise that falls to 0 by the last step, in proportion to the steps left."""

    def __init__(self, scale: float, seed: int, w: WeightOptimizer) -> None:
        self.scale, self.seed, self.w = scale, seed, w

    def noise(self, A: Matrices) -> Matrices | None:
        """What this step adds to A before selecting; None when the search is over.

        Drawn anew from the seed and the number of the step: the same however often a step asks, and
        no state to keep.
        """
        left = 1 - self.w.progress
        if left <= 0:
            return None
        generator = torch.Generator().manual_seed(self.seed + self.w.t)
        return {name: self.scale * left * gumbel(a.shape, generator) for name, a in A.items()}
