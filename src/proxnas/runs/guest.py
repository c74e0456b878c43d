"""A job that runs inside somebody's program, not as a command: it leaves torch as it found it, and
a stop is the program's own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from proxnas.common.interrupt import Interrupted


@contextmanager
def as_guest(device: torch.device | str) -> Iterator[None]:
    """Within, a job may seed torch and choose its threads; afterwards the caller's random numbers
    go on as if there had been none, with the caller's number of threads. Whether the device is one
    is not asked here."""
    threads = torch.get_num_threads()
    cuda = str(device).startswith("cuda") and torch.cuda.is_available()
    try:
        with torch.random.fork_rng([torch.device(device)] if cuda else []):
            yield
    except Interrupted as stop:
        # as Python itself has it: Ctrl-C is a KeyboardInterrupt, SIGTERM ends the program
        if stop.exit_code == 128 + signal.SIGINT:
            raise KeyboardInterrupt(str(stop)) from stop
        raise SystemExit(stop.exit_code) from stop
    finally:
        torch.set_num_threads(threads)
