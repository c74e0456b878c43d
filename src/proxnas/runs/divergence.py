"""Loss and gradient must be finite: judged on the device in every step, which otherwise is not
taken.

The host reads the verdict when the next step is under way, so that it never waits for an
accelerator; until then the optimizer itself leaves an unsound step out. The loop then goes back to
the last checkpoint, at a lower learning rate.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from proxnas.common.errors import AboutOptions

MOST = 3
"""So many times a run goes back before it gives up."""
SLOWER = 0.5
"""What the learning rate is multiplied by each time."""
UNREAD = 64
"""Verdicts that are kept if nobody asks, as in a measurement of single steps."""


class Diverged(AboutOptions):
    """A number that must be finite is not. Bad input unless a loop catches it: nobody else can go
    back."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not finite: lower {{learning_rate}} or use {{precision}} fp32")
        self.what = what


class Guard:
    """How sound the last steps were, and how often the run has gone back; shared by a loop and its
    optimizer."""

    def __init__(self) -> None:
        self.rollbacks = 0
        self._verdicts: deque[Tensor] = deque(maxlen=UNREAD)

    @property
    def factor(self) -> float:
        """What the learning rate is multiplied by now."""
        return float(SLOWER**self.rollbacks)

    def judge(self, *figures: Tensor) -> Tensor:
        """1.0 if one of the scalars is not finite, else 0.0, on the device: the `found_inf` of an
        optimizer."""
        # NaN and infinity survive a sum: one look for all of them
        total = torch.stack([figure.detach().float() for figure in figures]).sum()
        unsound = total.isfinite().logical_not_().float()
        self._verdicts.append(unsound)
        return unsound

    def check(self) -> None:
        """Diverged if a step was unsound; on an accelerator the latest one is left for the next
        time."""
        while self._verdicts and len(self._verdicts) > (self._verdicts[-1].device.type != "cpu"):
            self._read()

    def settle(self) -> None:
        """Diverged if any step was unsound: asked before a sound checkpoint would be replaced."""
        while self._verdicts:
            self._read()

    def _read(self) -> None:
        if self._verdicts.popleft().item():
            raise Diverged("the loss or its gradient")

    def go_back(self, rollbacks: int) -> None:
        """What was judged since then no longer counts."""
        self.rollbacks = rollbacks
        self._verdicts.clear()


def step_if_sound(optimizer: torch.optim.Optimizer, unsound: Tensor) -> None:
    """A step that is left out if the verdict is 1: on the device where the optimizer can, else by a
    look at it."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        if not unsound.item():
            optimizer.step()
        return
    # fused ones ask for it, as GradScaler knows
    optimizer.found_inf = unsound  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]
