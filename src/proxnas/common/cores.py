"""The CPU cores that a process may use, how many threads it may ask for, and how its threads wait.
No torch here."""

from __future__ import annotations

import math
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Literal

from proxnas.common.errors import OptionError

Asked = Literal["auto"] | int
"""What --threads takes."""
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""In a container: microseconds of all cores together within a period, and the period."""


def cores() -> int:
    """The cores that this process may use: those it is bound to, and no more than its container is
    given."""
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(bound, _quota(QUOTA)))


def _quota(file: Path) -> int:
    """A container's limit in whole cores; where there is none, more than any machine has."""
    try:
        micros, period = file.read_text(encoding="ascii").split()
        # a part of a core still lets one thread run
        return math.ceil(int(micros) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
        return 2**20


def available() -> int:
    """The most threads that `auto` takes: the cores, or OMP_NUM_THREADS if that is fewer."""
    try:
        wanted = int(os.environ.get("OMP_NUM_THREADS", ""))
    except ValueError:
        return cores()
    return max(1, min(wanted, cores()))


def check_threads(asked: Asked) -> None:
    """An InputError for more threads than cores: they would wait for each other."""
    if asked != "auto" and asked > cores():
        advice = f"there are {cores()} cores: give a number from 1 to {cores()}, or auto"
        raise OptionError("threads", asked, advice)


def wait_without_spinning(environ: MutableMapping[str, str] = os.environ) -> None:
    """Threads that wait for others sleep, rather than keep a core busy that another program needs.

    OpenMP reads this once, when torch is loaded; so it is for a process of our own, before that.
    What the user has set stays.
    """
    known = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    if not any(name in environ for name in known):
        environ["OMP_WAIT_POLICY"] = "PASSIVE"
