"""Which process of a job this is: one of those that torchrun started, or the only one. No torch
here.

torchrun tells a process by its environment; the command line takes that up (`place_by_torchrun`),
and within a job everything else asks `here()`. A process that torchrun did not start is alone, and
nothing changes for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from proxnas.common.errors import AboutOptions, InputError, escape

BEGUN = time.monotonic()
"""When this process began, nearly: libraries that take seconds to load are loaded later."""
TOGETHER = ("search", "train")
"""Commands that several processes can do together."""


class PeerLost(Exception):
    """Another process of the job is gone, or has not answered for too long."""


@dataclass(frozen=True)
class ProcessPlace:
    """One process among those of a job."""

    rank: int = 0
    """Its number; process 0 writes all files."""
    size: int = 1
    """How many there are."""
    local_rank: int = 0
    """Its number on this machine: which accelerator it takes."""
    local_size: int = 1
    restarts: int = 0
    """How often torchrun has started the job anew."""

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def leads(self) -> bool:
        """Whether files and messages are its business."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """Its part of n things in a row: equal to within one, and together all of them."""
        # the first `larger` processes have one more
        small, larger = divmod(n, self.size)
        start = self.rank * small + min(self.rank, larger)
        return slice(start, start + small + (self.rank < larger))


ALONE = ProcessPlace()
_here = ALONE
_store: Any = None  # words that all processes of the job can write and read


def here() -> ProcessPlace:
    """This process within the job that it works on."""
    return _here


@contextmanager
def taking(place: ProcessPlace, store: Any = None) -> Iterator[None]:
    """Within, this process has that place."""
    global _here, _store
    before = _here, _store
    _here, _store = place, store
    try:
        yield
    finally:
        _here, _store = before


def speaks() -> bool:
    """Whether the closing message is this process's to write: the first that has one, so that a job
    ends with one."""
    if _store is None:
        return _here.leads
    try:
        return int(_store.add("spoken", 1)) == 1
    except RuntimeError:  # whoever kept the store is gone
        return True


def place_by_torchrun(environ: Mapping[str, str] = os.environ) -> ProcessPlace | None:
    """What torchrun says; None if it did not start this process."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not all(name in environ for name in names):
        return None
    try:
        rank, size, local_rank = (int(environ[name]) for name in names)
        local_size = int(environ.get("LOCAL_WORLD_SIZE", 1))
        restarts = int(environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    except ValueError as error:
        raise InputError(
            f"{', '.join(names)}: not whole numbers ({error}): start the command by torchrun"
        ) from error
    if not 0 <= rank < size:
        raise InputError(f"RANK {rank}: not below WORLD_SIZE {size}: start the command by torchrun")
    return ProcessPlace(rank, size, local_rank, local_size, restarts)


def check_command(place: ProcessPlace, argv: list[str]) -> None:
    """An InputError for a command that is no work for several processes."""
    if not place.alone and argv[:1] and argv[0] not in TOGETHER:
        raise InputError(
            f"{argv[0]}: torchrun is for {' and '.join(TOGETHER)}: start it without torchrun"
            " (fit: with --processes)"
        )


def check_alone(what: str) -> None:
    """An InputError if this is one of several processes; `what` is asked for, options in braces."""
    if not _here.alone:
        raise AboutOptions(
            f"{what}: is for one process: leave {{processes}} out, or start the command without"
            " torchrun"
        )


def check_flags(**given: object) -> None:
    """An InputError for the first option that is set, if this is one of several processes."""
    for name, value in given.items():
        if value:
            check_alone(f"{{{name}}}" if value is True else f"{{{name}}} {escape(value)}")


def command_to_continue(place: ProcessPlace, argv: list[str]) -> list[str]:
    """The command line of a process that torchrun has started anew: it goes on where the run folder
    stands."""
    if not place.restarts:
        return argv
    # it would begin anew what the first start has begun
    kept = [word for word in argv if word != "--force"]
    return kept if "--resume" in kept else [*kept, "--resume"]
