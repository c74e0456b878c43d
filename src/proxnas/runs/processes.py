"""`--processes N`: a command line in N processes that work together on this machine, as torchrun
would start them.

torchrun itself takes some of our flags for abbreviations of its own, ends with exit code 1 whatever
happened, and writes its own lines around ours. What it tells its processes is a few variables
(launch.py). No torch here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from proxnas.common.cores import available, cores
from proxnas.common.errors import OptionError
from proxnas.common.interrupt import LIFELINE, STOPPING, Request, stop_requests
from proxnas.common.launch import place_by_torchrun

PROGRAM = (sys.executable, "-m", "proxnas")
MOST_A_CORE = 4
"""Processes, each of which holds torch and all of the state."""
LOOK = 0.1
"""Seconds between two looks at the processes."""
GRACE = 60.0
"""Seconds that the others have, after one has failed, to notice it by themselves and end; then they
are ended."""


class Ended(BaseException):
    """The processes have ended with that code; what went wrong is said."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


def run_together(argv: Sequence[str], processes: int, silent: bool = False) -> None:
    """Runs `proxnas` with these words in so many processes, to their end; Ended unless all of them
    did their work.

    SIGINT, SIGTERM and SIGHUP are passed on. The processes end when this one does, however it does.
    `silent`: what they print is not for the user; what they complain of is.
    """
    with stop_requests() as request:
        team = [_start_member(argv, place, silent) for place in _places(processes)]
        try:
            _wait(team, request)
        finally:
            for process in team:
                process.kill()
                process.wait()
                if process.stdin:
                    process.stdin.close()
    code = exit_code([process.returncode for process in team])
    if code:
        raise Ended(code)


def to_start(processes: int) -> int:
    """How many processes this one is to start: those asked for, unless it is one of them itself; 0:
    none."""
    place = place_by_torchrun()
    if place is None:
        _check_room(processes)
        return processes if processes > 1 else 0
    if processes not in (1, place.size):
        advice = f"torchrun has started {place.size} already: leave it out"
        raise OptionError("processes", processes, advice)
    return 0


def _check_room(processes: int) -> None:
    """An InputError for so many that they would only wait for each other, and fill the memory."""
    most = MOST_A_CORE * cores()
    if processes > most:
        advice = f"there are {cores()} cores: give a number from 1 to {most}"
        raise OptionError("processes", processes, advice)


def check_untimed(processes: int, minutes: float) -> None:
    """An InputError for a deadline by several processes: each would stop by its own clock."""
    if processes > 1 and minutes:
        advice = "is for one process: leave it or {processes} out"
        raise OptionError("minutes", f"{minutes:g}", advice)


def exit_code(codes: Sequence[int]) -> int:
    """One for all: that of a request to stop, else of bad input, else of an internal error, a death
    included."""
    # before a process could answer them
    by_signals = {-signum: 128 + signum for signum in STOPPING}
    stopped = [by_signals.get(code, code) for code in codes if code > 128 or code in by_signals]
    # a request to stop counts most: others may have failed only because of it
    if stopped:
        return stopped[0]
    if 2 in codes:
        return 2
    return 1 if any(codes) else 0


def _places(size: int) -> list[dict[str, str]]:
    """What each is told; their share of the cores is the most that each takes."""
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": str(max(1, available() // size)),
    }
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _start_member(
    argv: Sequence[str], place: dict[str, str], silent: bool
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *argv],
        stdin=subprocess.PIPE,  # never written to: it closes when we die, however we die
        stdout=subprocess.DEVNULL if silent else None,
        env=os.environ | place | {LIFELINE: "1"},
        # Ctrl-C is for us to pass on: twice, it would end them without a checkpoint
        process_group=0,
    )


def _wait(team: Sequence[subprocess.Popen[bytes]], request: Request) -> None:
    """Until all have ended, or those that are left have not for too long after one has failed."""
    told, limit = False, float("inf")
    while any(process.poll() is None for process in team):
        if request.signum is not None and not told:
            _tell(team, request.signum)
            told = True
        # poll: None while it runs, 0 if all went well
        if limit == float("inf") and any(process.poll() for process in team):
            limit = time.monotonic() + GRACE
        if time.monotonic() > limit:
            return
        time.sleep(LOOK)


def _tell(team: Sequence[subprocess.Popen[bytes]], signum: int) -> None:
    for process in team:
        with suppress(ProcessLookupError):
            process.send_signal(signum)
