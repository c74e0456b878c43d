"""Time as the measure of a training: how much is used before each step, and what that decides.

A schedule over steps needs to know their number, which nobody does on a machine that others use
too. A schedule over the share of time used comes to its end whatever happens. What the clock said
is kept step by step, so that a run that goes on, or is repeated, can follow it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from proxnas.common.types import State

WARM_UP = 0.2
"""Share of the time in which the learning rate rises."""
LOWEST = 0.005
"""Of the peak rate: a step that is made at all moves something."""


def rate_factor(share: float) -> float:
    """What the peak learning rate is multiplied by: linearly up, then linearly down to 0."""
    rising, falling = share / WARM_UP, (1 - share) / (1 - WARM_UP)
    return max(LOWEST, min(rising, falling))


class Pace:
    """The share of the seconds that is used, asked once a step."""

    def __init__(
        self,
        seconds: float,
        follow: Sequence[float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`follow`: what the clock said in another run, to be repeated; its steps are all."""
        self.seconds, self.follow, self.clock = seconds, follow, clock
        self.shares: list[float] = []
        self.begun = clock()
        self.before = 0.0
        """Seconds that earlier calls of the same run took."""

    def used(self) -> float:
        """Seconds used so far."""
        return self.before + self.clock() - self.begun

    def begin(self) -> None:
        """From now on time counts: what was before is forgotten, but for that of earlier calls."""
        self.begun = self.clock()

    def next(self) -> float:
        """The share of the time that is used before the next step, in [0, 1]."""
        if self.follow is not None:
            share = self.follow[len(self.shares)]
        else:
            share = round(min(1.0, self.used() / self.seconds), 6)
        self.shares.append(share)
        return share

    def over(self) -> bool:
        """Whether there is no time for another step."""
        if self.follow is not None:
            return len(self.shares) >= len(self.follow)
        return self.used() >= self.seconds

    def finish(self) -> None:
        """No more steps than are made."""
        self.follow = list(self.shares)

    def state_dict(self) -> State:
        return {"used": self.used(), "shares": torch.tensor(self.shares, dtype=torch.float64)}

    def load_state_dict(self, state: State) -> None:
        self.shares = state["shares"].tolist()
        self.before = float(state["used"])
        self.begin()
