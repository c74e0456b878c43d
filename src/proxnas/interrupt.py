"""SIGINT and SIGTERM end a run at the next step, after a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The run was asked to stop and, if `saved`, has written its checkpoint."""

    def __init__(self, signum: int, saved: bool = True) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum, self.saved, self.exit_code = signum, saved, 128 + signum


class Request:
    """Whether somebody asked to stop."""

    signum: int | None = None
    impatient = False

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A signal in here is an Interrupted where it strikes: for long work that can be done again from its start."""
        if self.signum is not None:
            raise Interrupted(self.signum, saved=False)
        self.impatient = True
        try:
            yield
        finally:
            self.impatient = False


@contextmanager
def stop_requests() -> Iterator[Request]:
    """Notes the first SIGINT or SIGTERM; a second one is handled as without us."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may install handlers
        return
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    def note(signum: int, frame: FrameType | None) -> None:
        request.signum = signum
        signal.signal(signum, before[signal.Signals(signum)])
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
    """SIGTERM outside of a loop is an exception, as Ctrl-C is: files and locks are closed, and the exit code is 143."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Interrupted(signum, saved=False)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


LIFELINE = "PROXNAS_LIFELINE"
"""Set for a worker: its standard input is a pipe that closes when whoever started it is gone."""


def end_with_parent() -> None:
    """In a worker: SIGTERM to itself when its parent is gone, even if that was killed; else nothing.

    A worker left alone would hold its folder and its cores against whoever starts the same work again.
    """
    if os.environ.pop(LIFELINE, None):  # popped: it is not for processes that the worker starts
        threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
