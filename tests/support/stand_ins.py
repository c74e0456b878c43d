"""Workers without torch, for tests of executors."""

from __future__ import annotations

import time
from collections.abc import Callable

from proxnas.runs.executors.tasks import RunTask

STAND_IN = """
import os, signal, sys, time
from pathlib import Path

def end(signum, frame):
    (folder / "checkpoint").write_text("written")
    sys.exit(128 + signum)

signal.signal(signal.SIGTERM, end)
from proxnas.common.interrupt import end_with_parent
end_with_parent()
flags = dict(word[2:].split("=") for word in sys.argv[1:] if "=" in word)
folder = Path(flags["run"])
folder.mkdir(parents=True, exist_ok=True)
with (folder / "starts").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
starts = len((folder / "starts").read_text().splitlines())
"""
"""A worker without torch, which a real one spends two seconds on: it notes its starts, then does
what a test says."""


FINISH = '(folder / "result.json").write_text("{}")'


def starts(task: RunTask) -> int:
    path = task.folder / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_for(ready: Callable[[], bool], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < limit
        time.sleep(0.01)
