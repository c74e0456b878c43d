"""What the tests of commands share: calling one, small searches on striped images, and what a
folder holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from proxnas.cli.main import main
from proxnas.common.interrupt import Interrupted
from proxnas.searching.job import Search

SIZES = {
    "epochs": 2,
    "cells": 1,
    "channels": 4,
    "final-cells": 1,
    "final-channels": 4,
    "batch-size": 16,
    "threads": 1,
}
SMALL = [
    "--space",
    "nasbench201",
    *(word for name, n in SIZES.items() for word in (f"--{name}", str(n))),
]


def call(*argv: str | Path) -> int:
    """The exit code, whether it is returned or, by tyro, raised."""
    try:
        return main([str(word) for word in argv])
    except SystemExit as stop:
        return int(stop.code or 0)


def stripes(n: int = 200, **changes: Any) -> dict[str, Any]:
    """Arrays of n images in four classes."""
    y = np.arange(n) % 4
    x = np.random.RandomState(0).randint(0, 100, (n, 8, 8)).astype(np.uint8)
    for label in range(4):
        x[y == label, 2 * label : 2 * label + 2] += 120
    return {"x_train": x, "y_train": y} | changes


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def one_line(error: str) -> str:
    """The message, if it is exactly one line as promised."""
    assert (
        error.startswith("proxnas: error: ") and error.endswith("\n") and error.count("\n") == 1
    ), error
    return error.removeprefix("proxnas: error: ")


def stripes_file(folder: Path) -> Path:
    path = folder / "stripes.npz"
    np.savez(path, **stripes())
    return path


def finished_run(data: Path, folder: Path) -> Path:
    """The folder of a finished run, to be read only."""
    run = folder / "run"
    assert call("search", data, *SMALL, "--run", run) == 0
    return run


@contextmanager
def interrupted_at(last: int) -> Iterator[None]:
    """Ctrl-C comes in so many-th step of the searches in this process."""
    plain, steps = Search.step, []

    def step(self: Search) -> object:
        steps.append(1)
        if len(steps) == last:
            raise Interrupted(2)
        return plain(self)

    with patch.object(Search, "step", step):
        yield
