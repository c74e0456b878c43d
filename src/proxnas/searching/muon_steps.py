"""What trains w by `--weight-optimizer muon`, and the cells of short trainings: Muon for
convolutions, Nesterov descent for the rest.

In a few hundred steps it comes about twice as far as descent does. Candidates are then scored at
weights that have learnt something, and what a short training tells is what longer ones tell
(docs/signals.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proxnas.training.muon import Muon

RATE = 0.05
"""Of both at the first step of a short training; it falls by the cosine of the training."""
MOMENTUM = 0.85
"""Of what is not turned."""


class MuonSteps(Muon):
    """Muon that leaves classifiers, norms and convolutions of single channels to Nesterov descent.

    They stand in its groups, so that rates, checkpoints and restarts are theirs, too.
    """

    def __init__(self, weights: list[Tensor], rate: float = RATE) -> None:
        super().__init__(weights, lr=rate)
        # a convolution of one channel has nothing to orthogonalise but its few pixels
        self.plain = [w for w in weights if w.ndim != 4 or w.size(1) == 1]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # none is called
        """One step of all weights that have a gradient."""
        moved = [w for w in self.plain if w.grad is not None]
        gradients = [w.grad for w in moved]
        if moved:
            # the Nesterov momentum: G + momentum B with B <- momentum B + G
            rate = self.param_groups[0]["lr"]
            for w, direction in zip(moved, self._directions(moved, MOMENTUM), strict=True):
                w.sub_(direction, alpha=rate)
        for w in moved:
            w.grad = None  # Muon passes over what has no gradient
        super().step()
        for w, gradient in zip(moved, gradients, strict=True):
            # as it was: whoever looks at gradients after the step finds all of them
            w.grad = gradient
