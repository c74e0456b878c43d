"""SIGINT, SIGTERM and SIGHUP (a closed terminal) end a run at the next step, after a checkpoint."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""The terminal was closed; not every system has it."""
STOPPING = (signal.SIGINT, signal.SIGTERM, *([HANGUP] if HANGUP else []))
"""Signals that ask a run to stop."""


class Interrupted(BaseException):
    """The run was asked to stop and, if `saved`, has written its checkpoint.

    No Exception: whoever takes every error of a damaged file for damage must not take a request to
    stop for it.
    """

    def __init__(self, signum: int, saved: bool = True) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum, self.saved, self.exit_code = signum, saved, 128 + signum


class Request:
    """Whether somebody asked to stop."""

    signum: int | None = None
    impatient = False

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A signal in here is an Interrupted where it strikes: for long work that can be done again
        from its start."""
        if self.signum is not None:
            raise Interrupted(self.signum, saved=False)
        self.impatient = True
        try:
            yield
        finally:
            self.impatient = False


@contextmanager
def stop_requests() -> Iterator[Request]:
    """Notes the first signal of STOPPING; a second one is handled as without us."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may install handlers
        return
    before = {signum: signal.getsignal(signum) for signum in STOPPING}
    if HANGUP and before[HANGUP] is signal.SIG_IGN:
        del before[HANGUP]  # started by nohup: it is to go on when the terminal is closed

    def note(signum: int, frame: FrameType | None) -> None:
        request.signum = signum
        # from now on as without us: a second Ctrl-C ends the program at once
        signal.signal(signum, before[signal.Signals(signum)])
        if signum == HANGUP:
            leave_terminal()
        if request.impatient:
            raise Interrupted(signum, saved=False)

    for signum in before:
        signal.signal(signum, note)
    try:
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM or SIGHUP outside of a loop is an exception, as Ctrl-C is: files and locks are
    closed, and the exit code is 143 or 129."""
    main = threading.current_thread() is threading.main_thread()
    ours = [signum for signum in STOPPING if main and signal.getsignal(signum) is signal.SIG_DFL]

    def stop(signum: int, frame: FrameType | None) -> None:
        if signum == HANGUP:
            leave_terminal()
        raise Interrupted(signum, saved=False)

    for signum in ours:
        signal.signal(signum, stop)
    try:
        yield
    finally:
        for signum in ours:
            signal.signal(signum, signal.SIG_DFL)


def leave_terminal() -> None:
    """What is printed from now on to a terminal that is gone goes nowhere: else the first line
    would be an error, which would end the run before its checkpoint."""
    for descriptor in (1, 2):
        try:
            device = stat.S_ISCHR(os.fstat(descriptor).st_mode)
            if device and not os.isatty(descriptor):  # a terminal that was closed is none any more
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
        except OSError:
            continue  # closed before


LIFELINE = "PROXNAS_LIFELINE"
"""Set for a worker: its standard input is a pipe that closes when whoever started it is gone."""


def end_with_parent() -> None:
    """In a worker: SIGTERM to itself when its parent is gone, even if that was killed; else
    nothing.

    A worker left alone would hold its folder and its cores against whoever starts the same work
    again.
    """
    if os.environ.pop(LIFELINE, None):  # popped: it is not for processes that the worker starts
        threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    # returns no bytes when the other end of the pipe is closed, by whatever death
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
