"""Packages of others bring spaces, operations, data and loggers by entry points; methods and
domains have tests of their own beside this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import proxnas
from proxnas.common.errors import AboutOptions
from proxnas.runs.loggers import LogFlags, check_logger
from support.packages import installed

TOY = '''
import numpy as np
from torch import nn

from proxnas.domains.images.spaces.cnn import CellSpace


def scale(C, stride, norm):
    """A candidate operation: (channels, stride, what normalises) -> module."""
    return nn.Conv2d(C, C, 1, stride=stride, groups=C, bias=False)


def small():
    """A space: cells with two candidates, one of them our own."""
    candidates = ("skip_connect", "toy_scale")
    return CellSpace("small", candidates, candidates)


def stripes(rest):
    """Data `toy:NUMBER`: what Python may hand over."""
    y = np.arange(int(rest)) % 2
    x = np.zeros((len(y), 8, 8), np.uint8)
    x[y == 1, 4:] = 200
    return x, y


class Counter:
    """A logger: a line an epoch."""

    def __init__(self, folder):
        self.file = open(folder / "counted.txt", "a")

    def epoch(self, row):
        self.file.write(f"{row['epoch']} {row['train_loss']:.3f}\\n")

    def close(self):
        self.file.write("closed\\n")
        self.file.close()
'''
POINTS = """
[proxnas.spaces]
small = toy_package:small
[proxnas.operations]
toy_scale = toy_package:scale
[proxnas.data]
toy = toy_package:stripes
[proxnas.loggers]
counter = toy_package:Counter
"""


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """The environment in which the package is installed."""
    site = installed(tmp_path, "toy_package", TOY, POINTS)
    source = Path(proxnas.__file__).parent.parent
    return os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{source}"}


def call(place: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "proxnas", *words]
    return subprocess.run(argv, env=place, capture_output=True, text=True, check=False)


def test_a_search_is_made_of_what_others_bring(place: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    sizes = ["--epochs=2", "--cells=1", "--channels=2", "--batch-size=10"]
    sizes += ["--final-cells=1", "--final-channels=2"]
    words = ["search", "toy:40", "--space=small", "--loggers=counter", *sizes, "--threads=1"]
    done = call(place, *words, "--quiet", f"--run={run}")
    assert done.returncode == 0, done.stderr
    cell = json.loads((run / "genotype.json").read_text())
    operations = {op for node in cell["cells"]["normal"]["nodes"] for op, *_ in node}
    assert operations <= {"skip_connect", "toy_scale"} and cell["space"] == "small"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = [f"{row['epoch']} {row['train_loss']:.3f}" for row in rows]
    assert (run / "counted.txt").read_text().splitlines() == [*told, "closed"]
    assert "loggers" not in json.loads((run / "config.json").read_text())


def test_what_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"counter": "json:dumps", "lost": "json:Nothing"}
    monkeypatch.setattr("proxnas.runs.loggers.of_others", lambda group: others)
    with pytest.raises(proxnas.InputError, match="logger lost: json:Nothing cannot be"):
        check_logger("lost")
    with pytest.raises(AboutOptions) as caught:
        LogFlags(loggers="countr")
    assert caught.value.as_flag() == "unknown --loggers 'countr': did you mean counter?"
    assert LogFlags(True, "counter,tensorboard").names() == ["tensorboard", "counter"]
