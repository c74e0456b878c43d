"""Partial scoring: unselected candidates are scored on a part of the batch or of the nodes.

Why: running every candidate once is what line 4 costs. On a part of them the score has the same
mean and more noise, for less time.
"""

from __future__ import annotations

import torch

from proxnas.core.choice import Share
from proxnas.methods.optimizers import WeightOptimizer


class PartialScoring:
    """Which part is scored in a step."""

    def __init__(self, batch: float, nodes: float, seed: int, w: WeightOptimizer) -> None:
        """`batch`: share of the examples; `nodes`: chance of a node to be scored."""
        self.batch, self.nodes, self.seed, self.w = batch, nodes, seed, w

    def share(self) -> Share:
        """Drawn anew each step from the seed, so that there is no state to keep."""
        generator = torch.Generator().manual_seed(self.seed + self.w.t)
        return Share(self.batch, self.nodes, generator)
