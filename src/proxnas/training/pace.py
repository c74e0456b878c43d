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
WINDOW = 4.0
"""Seconds over which it is measured how busy the machine is."""
LEAST_SHARE = 0.2
"""Of the planned seconds: that much is for steps however busy the machine becomes."""

Clock = Callable[[], float]


def rate_factor(share: float) -> float:
    """What the peak learning rate is multiplied by: linearly up, then linearly down to 0."""
    rising, falling = share / WARM_UP, (1 - share) / (1 - WARM_UP)
    # the two lines meet where the share is WARM_UP, both at 1
    return max(LOWEST, min(rising, falling))


class Busy:
    """How much longer things take than they compute, because others use the machine too."""

    def __init__(self, first: float, clock: Clock, computing: Clock) -> None:
        """`first`: what holds until there is something to measure; `computing`: seconds that this
        thread has computed."""
        self.ratio, self.clock, self.computing = first, clock, computing
        self.since = clock(), computing()

    def look(self) -> float:
        """The ratio over the last few seconds, at least 1."""
        now = self.clock(), self.computing()
        # a thread that waits for a core passes time and computes nothing
        passed, computed = (end - begin for end, begin in zip(now, self.since, strict=True))
        if passed >= WINDOW:
            self.ratio = max(1.0, passed / max(computed, 1e-3))
            self.since = now
        return self.ratio


class Pace:
    """The share of the seconds that is used, asked once a step."""

    def __init__(
        self,
        seconds: float,
        follow: Sequence[float] | None = None,
        clock: Clock = time.monotonic,
        delivery: float = 0.0,
        busy: float = 1.0,
        computing: Clock = time.thread_time,
    ) -> None:
        """`follow`: what the clock said in another run, to be repeated; its steps are all.

        `delivery`: seconds of computing that come after the last step. On a machine that is `busy`
        times slower than it could be there are `seconds` for the steps; if that changes, they have
        less or more, and everything ends when it should.
        """
        self.seconds, self.follow, self.clock = seconds, follow, clock
        self.delivery, self.expected = delivery, busy
        self.busy = Busy(busy, clock, computing)
        self.shares: list[float] = []
        self.begun = clock()
        self.before = 0.0
        """Seconds that earlier calls of the same run took."""

    def used(self) -> float:
        """Seconds used so far."""
        return self.before + self.clock() - self.begun

    def begin(self, since: float | None = None) -> None:
        """Time counts since then, by the clock, or from now on: what was before is forgotten, but
        for that of earlier calls."""
        self.begun = self.clock() if since is None else since

    def given(self) -> float:
        """Seconds for all steps, as busy as the machine is now."""
        changed = self.delivery * (self.busy.look() - self.expected)
        return max(LEAST_SHARE * self.seconds, self.seconds - changed)

    def next(self) -> float:
        """The share of the time that is used before the next step, in [0, 1]; it never falls."""
        if self.follow is not None:
            share = self.follow[len(self.shares)]
        else:
            last = self.shares[-1] if self.shares else 0.0
            share = max(last, round(min(1.0, self.used() / self.given()), 6))
        self.shares.append(share)
        return share

    def over(self) -> bool:
        """Whether there is no time for another step."""
        if self.follow is not None:
            return len(self.shares) >= len(self.follow)
        return self.used() >= self.given()

    def finish(self) -> None:
        """No more steps than are made."""
        self.follow = list(self.shares)

    def state_dict(self) -> State:
        return {"used": self.used(), "shares": torch.tensor(self.shares, dtype=torch.float64)}

    def load_state_dict(self, state: State) -> None:
        self.shares = state["shares"].tolist()
        self.before = float(state["used"])
        # from now on: the time between two calls is nobody's
        self.begin()
