"""Real processes of one job for tests, as torchrun would start them, but forked: they need not
import torch anew."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    [
        "pytest",
        "proxnas.searching.job",
        "proxnas.runs.progress",
        "proxnas.cli.search",
        "torch._dynamo",
    ]
)
SECONDS = 120  # nothing takes so long


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def begin(environment: dict[str, str], log: Path, work: Callable[..., Any], *args: Any) -> None:
    """In the process: what it says goes to files, its exit code is that of the command line."""
    os.environ.update(environment)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(log.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    code = work(*args)
    sys.exit(code or 0)


class Job:
    """Some processes that do one thing together."""

    def __init__(
        self, folder: Path, size: int, work: Callable[..., Any], *args: Any, **environment: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(size),
        } | environment
        self.logs = [folder / f"process{rank}" for rank in range(size)]
        self.processes = [
            FORKED.Process(
                target=begin,
                args=(shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, log, work, *args),
            )
            for rank, log in enumerate(self.logs)
        ]
        for process in self.processes:
            process.start()

    def codes(self) -> list[int | None]:
        """The exit codes, when all have ended."""
        for process in self.processes:
            process.join(SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        return [process.exitcode for process in self.processes]

    def said(self) -> list[str]:
        """What each has written to standard error."""
        return [log.with_suffix(".err").read_text() for log in self.logs]
