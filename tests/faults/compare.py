"""A comparison that is killed, with its workers or without them, and what is left of it
afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from faults.crash import EPOCHS, outcome

METHODS = "nasp,darts-1st"


def command(data: Path, folder: Path) -> list[str]:
    """Two methods, a seed each, in processes of their own."""
    more = folder.parent / "search.json"
    more.write_text(
        json.dumps(
            {
                "cells": 2,
                "channels": 4,
                "batch_size": 16,
                "checkpoint_minutes": 0,
                "final_cells": 1,
                "final_channels": 4,
            }
        )
    )
    words = [
        f"--methods={METHODS}",
        "--seeds=0",
        f"--epochs={EPOCHS}",
        "--threads=1",
        "--device=cpu",
    ]
    return [
        sys.executable,
        "-m",
        "proxnas",
        "compare",
        str(data),
        *words,
        "--quiet",
        f"--search-config={more}",
        f"--run={folder}",
    ]


def run(data: Path, folder: Path, seconds: float | None = None, workers: bool = False) -> int:
    """Exit code of the comparison, killed after so many seconds, if at all, with its workers or
    without them."""
    with Path(f"{folder}.out").open("ab") as output:
        process = subprocess.Popen(command(data, folder), stdout=output, stderr=output)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in [process.pid, *(children(process.pid) if workers else [])]:
                os.kill(pid, signal.SIGKILL)
            return process.wait()


def children(parent: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = place.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended meanwhile
        if int(ppid) == parent and state != "Z":
            found.append(int(place.parent.name))
    return found


def outcomes(folder: Path) -> dict[str, Any]:
    """The outcomes of all runs, and the rows of the table but for the clock."""
    rows = json.loads((folder / "table.json").read_text())
    found: dict[str, Any] = {
        path.name: outcome(path)
        for path in sorted((folder / "search").iterdir())
        if path.is_dir() and path.name != "logs"
    }
    return found | {
        "table": [
            {
                k: v
                for k, v in row.items()
                if "seconds" not in k and "memory" not in k and "speed" not in k
            }
            for row in rows
        ]
    }


def trial(
    data: Path, folder: Path, seconds: float, workers: bool, wanted: dict[str, Any]
) -> tuple[bool, bool]:
    """(whether it was cut off, whether it ended as it should when started again)."""
    cut = run(data, folder, seconds, workers) != 0
    return cut, run(data, folder) == 0 and outcomes(folder) == wanted


def timed(data: Path, folder: Path) -> float:
    """Seconds of an undisturbed comparison."""
    begin = time.monotonic()
    if code := run(data, folder):
        raise SystemExit(f"the undisturbed comparison ended with {code}: see {folder}.out")
    return time.monotonic() - begin
