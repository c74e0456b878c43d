"""How many threads the steps of a job take: the number asked for, or whichever makes its steps
quickest.

A look compares counts of threads on consecutive steps of the job itself, so it costs no work and
changes no state but the order of sums. Two counts meet in a duel: they take turns (a b b a a b b a,
as steps may alternate between cheap and dear ones), and the one in use gives way to fewer threads
that are nearly as quick, or to more that are clearly quicker. Where other programs need the cores,
threads that wait for each other make a step many times as long, so a job begins with one thread,
and a duel ends as soon as one side is far behind.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from proxnas.common.cores import Asked, available
from proxnas.common.launch import here

GAIN = 0.95
"""More threads must take less than this share of the time of fewer."""
PAIRS = 4
"""Steps of each side of a duel."""
FAR_AHEAD = {1: 4.0, 2: 1.5, 3: 1.2}
"""After so many pairs: whose quickest step took so many times as long as the other's has lost."""
FIRST_FAR_AHEAD = 4.0
"""The same for the newcomer's first step, in which memory and kernels are made for its number of
threads."""
WARM = 2
"""Steps of a job before the first look: they also set things up."""
SLOW, SLOW_STEPS = 1.5, 3
"""So many steps in a row that take so many times as long as they did in the last look ask for
another one."""
SOONEST, LATEST = 50, 1600
"""Steps between two looks: the gap doubles while looks change nothing."""
KEPT = 100
"""Looks that are kept: the first and the last ones."""

Look = dict[str, Any]
"""epoch, step: where it began; why; seconds: threads -> median seconds of a step; choice."""
Keep = Callable[[list[Look]], None]


class Duel:
    """Two counts of threads that take turns: `old` is in use, `new` wants to replace it."""

    def __init__(self, old: int, new: int, usual: float) -> None:
        """`usual`: seconds of a step as it was before."""
        self.old, self.new, self.usual = old, new, usual
        # seconds of the newcomer's first step, which does not count: kernels are made for its
        # threads
        self.first: float | None = None
        self.seconds: dict[int, list[float]] = {old: [], new: []}

    def turn(self) -> int:
        """Whose the next step is."""
        if self.first is None:
            return self.new
        done = sum(map(len, self.seconds.values()))
        # a b b a: a trend over the steps falls on both alike
        return (self.old, self.new, self.new, self.old)[done % 4]

    def add(self, seconds: float) -> None:
        """A step of whose turn it was has taken so long."""
        if self.first is None:
            self.first = seconds
        else:
            self.seconds[self.turn()].append(seconds)

    def over(self) -> bool:
        return self._decided() is not None or min(map(len, self.seconds.values())) == PAIRS

    def winner(self) -> int:
        decided = self._decided()
        if decided is not None:
            return decided
        few, many = sorted((self.old, self.new))
        taken = {threads: statistics.median(seconds) for threads, seconds in self.seconds.items()}
        return many if taken[many] < GAIN * taken[few] else few

    def _decided(self) -> int | None:
        """Who is so far ahead that the rest need not be seen."""
        pairs, odd = divmod(sum(map(len, self.seconds.values())), 2)
        # nothing but the newcomer's first step is known yet
        if pairs == 0 and self.first is not None:
            return self.old if self.first > FIRST_FAR_AHEAD * self.usual else None
        # within a pair one side has more steps than the other
        ahead = None if odd else FAR_AHEAD.get(pairs)
        if ahead is None:
            return None
        # the quickest: what else the machine does makes steps slower only
        old, new = (min(seconds) for seconds in self.seconds.values())
        if new > ahead * old:
            return self.old
        return self.new if old > ahead * new else None

    def medians(self) -> dict[str, float]:
        """Threads -> seconds of a step; where none counted, of the one before the duel and the
        first within."""
        alone = {self.old: self.usual, self.new: self.first or 0.0}
        taken = {threads: seconds or [alone[threads]] for threads, seconds in self.seconds.items()}
        return {str(threads): statistics.median(seconds) for threads, seconds in taken.items()}


@dataclass
class Auto:
    """The search for the quickest number of threads, along the steps of a job."""

    most: int
    keep: Keep = lambda looks: None
    looks: list[Look] = field(default_factory=list)
    set_threads: Callable[[int], None] = lambda threads: torch.set_num_threads(threads)
    now: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self.choice, self.usual = _last_choice(self.looks, self.most)
        self.gap = SOONEST
        self.wait = SOONEST if self.looks else WARM
        self.recent: list[float] = []
        self.duel: Duel | None = None
        self.waiting: list[int] = []  # counts that have not met the one in use
        self.look: Look = {}
        self.set_threads(self.choice)

    @property
    def settled(self) -> bool:
        """Whether a choice was made and none is under way."""
        return bool(self.looks) and self.duel is None

    @contextmanager
    def step(self, epoch: int, number: int) -> Iterator[None]:
        """Within is a step of the job: the number of that epoch."""
        if self.duel is None and self.most > 1 and (why := self._why()):
            self._begin({"epoch": epoch, "step": number, "why": why, "seconds": {}})
        if self.duel:
            self.set_threads(self.duel.turn())
        start = self.now()
        yield
        self._add(self.now() - start)

    def _why(self) -> str:
        """Why it is time to look, or nothing."""
        if self.wait <= 0:
            return "again" if self.looks else "start"
        recent = self.recent[-SLOW_STEPS:]
        slow = (
            self.usual is not None and len(recent) == SLOW_STEPS and min(recent) > SLOW * self.usual
        )
        return "slow" if slow and self.choice > 1 else ""

    def _begin(self, look: Look) -> None:
        """First one thread, in case the cores have become busy, then the counts beside the one in
        use."""
        self.look, self.before = look, self.choice
        counts = _counts(self.most)
        place = counts.index(self.choice)
        near = [counts[0], *counts[max(0, place - 1) : place + 2]]
        self.waiting = [n for n in dict.fromkeys(near) if n != self.choice]
        self._next_duel()

    def _next_duel(self) -> None:
        usual = self.look["seconds"].get(str(self.choice), self.recent[-1])
        self.duel = Duel(self.choice, self.waiting.pop(0), usual)

    def _add(self, seconds: float) -> None:
        if self.duel is None:
            self.wait -= 1
            self.recent = [*self.recent, seconds][-SLOW_STEPS:]
            return
        self.duel.add(seconds)
        if self.duel.over():
            self._end_duel(self.duel)

    def _end_duel(self, duel: Duel) -> None:
        self.look["seconds"] |= duel.medians()
        if duel.winner() == duel.new:
            self.choice = duel.new
            larger = [n for n in _counts(self.most) if n > duel.new]
            self.waiting = [n for n in larger[:1] if n != duel.old]
        # what a step of the winner takes: the measure of later steps, and of the next newcomer
        self.usual = self.look["seconds"].get(str(self.choice), self.usual)
        if self.waiting:
            self._next_duel()
        else:
            self._end()

    def _end(self) -> None:
        self.duel = None
        self.set_threads(self.choice)
        self.gap = SOONEST if self.choice != self.before else min(2 * self.gap, LATEST)
        self.wait, self.recent = self.gap, []
        self.looks.append(self.look | {"choice": self.choice})
        # the middle goes: how it began and how it stands are worth more
        del self.looks[KEPT // 2 : -KEPT // 2]
        self.keep(self.looks)


class Fixed:
    """A number of threads that stays."""

    settled = True

    def __init__(self, threads: int) -> None:
        self.looks: list[Look] = []
        torch.set_num_threads(threads)

    def step(self, epoch: int, number: int) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()


def threads_for(
    asked: Asked, device: torch.device, keep: Keep = lambda looks: None, looks: object = None
) -> Auto | Fixed:
    """What --threads asks for, for a job whose steps run on the device; `looks`: those of a run
    that goes on.

    `auto` looks for the quickest only where threads do the work, and for a process that is alone:
    several wait for each other in every step, so that each takes its share.
    """
    if asked != "auto":
        return Fixed(asked)
    if device.type != "cpu" or not here().alone or available() == 1:
        return Fixed(available())
    return Auto(available(), keep, _sound(looks))


def _counts(most: int) -> list[int]:
    """1, 2, 4, ... and the most."""
    counts = [1]
    while 2 * counts[-1] < most:
        counts.append(2 * counts[-1])
    return counts if most == 1 else [*counts, most]


def _sound(looks: object) -> list[Look]:
    """Those that were read from a file and have the form of ours."""
    found = looks if isinstance(looks, list) else []
    return [look for look in found if isinstance(look, dict) and type(look.get("choice")) is int]


def _last_choice(looks: Sequence[Look], most: int) -> tuple[int, float | None]:
    """The choice of the last look and its seconds a step, if it can be made here; else one
    thread."""
    if not looks or looks[-1]["choice"] not in _counts(most):
        return 1, None
    choice, seconds = looks[-1]["choice"], looks[-1].get("seconds")
    usual = seconds.get(str(choice)) if isinstance(seconds, dict) else None
    return choice, usual if isinstance(usual, float) else None
