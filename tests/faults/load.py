"""Many runs in a folder, and many steps in a run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from faults import compare
from support.run_folders import make_rows


def many_runs(folder: Path, runs: int) -> None:
    """So many finished searches of ten epochs, as `search` writes them."""
    rows = "".join(json.dumps(row) + "\n" for row in make_rows(10))
    for number in range(runs):
        place = folder / f"run-{number}"
        place.mkdir(parents=True)
        (place / "config.json").write_text(
            json.dumps({"proxnas": "0", "command": "search", "epochs": 10})
        )
        (place / "metrics.jsonl").write_text(rows)
        if number % 2:
            (place / "result.json").write_text(
                json.dumps({"valid_accuracy": 0.9, "epochs": 10, "seconds": 1.0})
            )


def seconds_until(path: Path, *argv: str) -> float:
    """From the start of a command until it has made the file; then it is stopped."""
    begin = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "proxnas", *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while not path.exists() and process.poll() is None:
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        process.terminate()
    return seconds


def seconds_of(*argv: str) -> float:
    """Of a command, from its start to its end."""
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "proxnas", *argv], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"proxnas {' '.join(argv)}: {done.stderr}")
    return time.monotonic() - begin


def many_compared(data: Path, folder: Path, runs: int) -> list[str]:
    """A comparison of so many searches, all but the last finished; returns the command that goes on
    with it."""
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
    shutil.rmtree(place)
    return ["compare", f"--run={folder}", "--quiet"]


def _change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


class Watch:
    """A progress bar that looks at the memory and at metrics.jsonl after each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bytes, self.readable = (folder, [], True)  # type: tuple[Path, list[int], bool]

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
    """A search of so many steps over the smallest space: two candidates, two numbers an example."""
    import torch
    from torch import nn

    from proxnas.core.choice import Choice
    from proxnas.domains.modules.space import CustomSpace
    from proxnas.domains.modules.task import CustomData
    from proxnas.runs.folder import open_run
    from proxnas.runs.loop import run_epochs
    from proxnas.searching.job import Search
    from proxnas.searching.options import SearchOptions

    examples = 2 * steps // epochs
    half = torch.randn(examples, 2), torch.arange(examples) % 2
    module = nn.Sequential(
        Choice({"linear": nn.Linear(2, 2), "identity": nn.Identity()}), nn.Linear(2, 2)
    )
    flags = {
        "explore": 0.05,
        "look_ahead": 100,
        "arch_optimizer": "scaled",
        "learning_rate": 1e-4,
        "learning_rate_min": 1e-4,
    }
    config = SearchOptions.from_values(
        {
            "data": "noise",
            "space": "custom",
            "epochs": epochs,
            "batch_size": 2,
            "patience": 0,
            "threads": 1,
            "device": "cpu",
            **flags,
        }
    )
    watch = Watch(folder / "run")
    with open_run(folder / "run") as run:
        run.write_json("config.json", {"proxnas": "0", "command": "search"})
        run_epochs(
            Search(config, CustomData(half, half, None, None), CustomSpace(module)), run, watch
        )
    return watch
