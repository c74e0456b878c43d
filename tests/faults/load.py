"""Many runs in a folder, and many steps in a run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from faults import compare
from run_folders import make_rows


def many_runs(folder: Path, runs: int) -> None:
    """So many finished searches of ten epochs, as `search` writes them."""
    rows = "".join(json.dumps(row) + "\n" for row in make_rows(10))
    for number in range(runs):
        place = folder / f"run-{number}"
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps({"proxnas": "0", "command": "search", "epochs": 10}))
        (place / "metrics.jsonl").write_text(rows)
        if number % 2:
            (place / "result.json").write_text(json.dumps({"valid_accuracy": 0.9, "epochs": 10, "seconds": 1.0}))


def seconds_of(*argv: str) -> float:
    """Of a command, from its start to its end."""
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "proxnas", *argv], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"proxnas {' '.join(argv)}: {done.stderr}")
    return time.monotonic() - begin


def many_compared(data: Path, folder: Path, runs: int) -> list[str]:
    """A comparison of so many finished searches but without its result; returns the command that goes on with it."""
    compare.timed(data, folder)
    seeds = list(range(runs // 2))
    for method in compare.METHODS.split(","):
        for seed in seeds[1:]:
            place = folder / "search" / f"{method}-{seed}"
            place.mkdir()
            for name in ("config.json", "result.json", "metrics.jsonl", "genotype.json"):
                shutil.copy(folder / "search" / f"{method}-0" / name, place / name)
            for name in ("config.json", "result.json"):
                _change(place / name, seed=seed)
    _change(folder / "config.json", seeds=",".join(map(str, seeds)))
    _change(folder / "plan.json", seeds=seeds)
    (folder / "result.json").unlink()
    return ["compare", f"--run={folder}", "--quiet"]


def _change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def noise(folder: Path, images: int) -> Path:
    """Images of 4 x 4 pixels in two classes."""
    random = np.random.RandomState(0)
    x = random.randint(0, 256, (images, 4, 4)).astype(np.uint8)
    np.savez(folder / "noise.npz", x_train=x, y_train=np.arange(images) % 2, x_test=x[:4], y_test=np.arange(4) % 2)
    return folder / "noise.npz"


class Watch:
    """A progress bar that looks at the memory and at metrics.jsonl after each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bytes, self.readable = folder, [], True  # type: tuple[Path, list[int], bool]

    def begin(self, epoch: int, epochs: int, steps: int) -> None: ...

    def step(self, changes: int) -> None: ...

    def epoch(self, row: dict[str, Any]) -> None:
        lines = (self.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
        self.readable &= len(lines) == row["epoch"] and all(line.endswith("\n") for line in lines)
        self.readable &= json.loads(lines[-1])["epoch"] == row["epoch"]
        self.bytes.append(1024 * int(_status("VmRSS")))

    def growth(self) -> float:
        """Of the memory from a tenth of the run on, as a share."""
        first = self.bytes[len(self.bytes) // 10]
        return (self.bytes[-1] - first) / first


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def many_steps(folder: Path, steps: int, epochs: int = 100) -> Watch:
    """A search of so many steps over the smallest space."""
    from proxnas.run import open_run
    from proxnas.searching import Search, search
    from proxnas.settings import parse_search
    from proxnas.tasks import load_data

    data = noise(folder, 2 * 2 * steps // epochs)
    flags = ["--space=nasbench201", "--cells=1", "--channels=2", "--batch-size=2", f"--epochs={epochs}", "--patience=0"]
    config = parse_search([str(data), *flags, "--threads=1", "--device=cpu", "--final-cells=1", "--final-channels=2"])
    watch = Watch(folder / "run")
    with open_run(folder / "run") as run:
        run.write_json("config.json", {"proxnas": "0", "command": "search"})
        search(Search(config, load_data(config)), run, watch)
    return watch
