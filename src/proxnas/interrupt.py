"""SIGINT and SIGTERM end a run at the next step, after a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The run was asked to stop and has written its checkpoint."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


class Request:
    """Whether somebody asked to stop."""

    signum: int | None = None


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

    for signum in before:
        signal.signal(signum, note)
    try:
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
