"""Runs that are killed, or whose disk is full, at a chosen or random moment, and what is left of
them afterwards."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

FORKED = multiprocessing.get_context("forkserver")  # real processes that need not import torch anew
FORKED.set_forkserver_preload(
    [
        "proxnas.searching.job",
        "proxnas.domains.images.training",
        "proxnas.runs.progress",
        "proxnas.cli.search",
        "proxnas.cli.train",
        "proxnas.workflows.jobs",
        "torch._dynamo",
    ]
)
SIZES = {"cells": 2, "channels": 4, "batch-size": 16, "threads": 1, "checkpoint-minutes": 0}
EPOCHS = 4
CLOCK = ("seconds", "memory")


@dataclass(frozen=True)
class Fault:
    """What happens to a run. The moment is counted in what its kind names: seconds, bytes, syncs or
    renames."""

    kind: str
    """after: SIGKILL from outside, hangup: SIGHUP; write, sync, rename: SIGKILL in the middle of
    it; full: no space from then on."""
    moment: float

    def __str__(self) -> str:
        return f"{self.kind} {self.moment:g}"


def stripes(folder: Path) -> Path:
    """Two hundred images in four classes that are told apart easily."""
    random, y = np.random.RandomState(0), np.arange(200) % 4
    x = random.randint(0, 100, (200, 8, 8)).astype(np.uint8)
    for label in range(4):
        x[y == label, 2 * label : 2 * label + 2] += 120
    np.savez(folder / "stripes.npz", x_train=x, y_train=y)
    return folder / "stripes.npz"


def command(kind: str, data: Path, epochs: int = EPOCHS) -> list[str]:
    """A small search or training that writes a checkpoint after every step, to which --run is to be
    added."""
    flags = [f"--{name}={value}" for name, value in SIZES.items()] + [
        f"--epochs={epochs}",
        "--device=cpu",
        "--quiet",
    ]
    if kind == "search":
        return [
            "search",
            str(data),
            "--space=darts7",
            "--final-cells=1",
            "--final-channels=4",
            *flags,
        ]
    return [
        "train",
        "zoo:darts_v2",
        str(data),
        "--protocol=quick",
        "--drop-path=0.1",
        "--valid-share=0.2",
        *flags,
    ]


# in the process that is to fail


class _Disk:
    """Stands in for the file layer: counts, and strikes when the moment has come."""

    def __init__(self, fault: Fault) -> None:
        self.fault, self.counts = fault, {"write": 0, "sync": 0, "rename": 0}

    def arm(self) -> None:
        from proxnas.common import files

        real_open, real_sync, real_rename = files.open_new, os.fsync, os.replace
        files.open_new = lambda part: _File(real_open(part), self)  # type: ignore[assignment]
        os.fsync = lambda descriptor: (self.count("sync", 1), real_sync(descriptor))[1]
        os.replace = lambda source, target: (self.count("rename", 1), real_rename(source, target))[
            1
        ]  # type: ignore[assignment]

    def count(self, kind: str, amount: int) -> None:
        self.counts[kind] += amount
        if self.fault.kind == kind and self.counts[kind] >= self.fault.moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def left(self) -> int:
        """Bytes until the disk strikes."""
        return max(0, int(self.fault.moment) - self.counts["write"])


class _File:
    """A file on such a disk."""

    def __init__(self, file: IO[bytes], disk: _Disk) -> None:
        self.file, self.disk = file, disk

    def write(self, content: Any) -> int:
        content, limit = memoryview(content).cast("B"), self.disk.left()
        if self.disk.fault.kind in ("write", "full") and len(content) >= limit:
            self.file.write(content[:limit])  # torn in the middle
            self.file.flush()
            if self.disk.fault.kind == "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.disk.count("write", len(content))
        return self.file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def _work(argv: list[str], fault: Fault, notes: str, output: str) -> None:
    from proxnas.cli.main import main

    disk = _Disk(fault)
    disk.arm()
    with open(output, "a") as file:
        sys.stdout = sys.stderr = file
        begin = time.monotonic()
        code = main(argv)
    Path(notes).write_text(json.dumps(disk.counts | {"after": time.monotonic() - begin}))
    os._exit(code)  # not sys.exit: whatever else hangs on the process is not what is tested


# from outside


def run(
    argv: list[str],
    folder: Path,
    fault: Fault | None = None,
    resume: bool = False,
    notes_at: Path | None = None,
) -> int | None:
    """Exit code of the command in a process of its own; negative: killed.

    What it prints and counts is beside its folder, or beside `notes_at`.
    """
    beside = notes_at or folder
    fault, notes, output = fault or Fault("none", 0), f"{beside}.counts", f"{beside}.out"
    argv = [*argv, f"--run={folder}", *(["--resume"] if resume else [])]
    process = FORKED.Process(target=_work, args=(argv, fault, notes, output))
    process.start()
    process.join(fault.moment if fault.kind in ("after", "hangup") else None)
    if process.is_alive() and process.pid:
        os.kill(process.pid, signal.SIGHUP if fault.kind == "hangup" else signal.SIGKILL)
    process.join()
    return process.exitcode


def printed(folder: Path) -> str:
    """What the runs in a folder have said."""
    return Path(f"{folder}.out").read_text()


def counts(folder: Path) -> dict[str, float]:
    """How many seconds, bytes, syncs and renames an undisturbed run took."""
    found: dict[str, float] = json.loads(Path(f"{folder}.counts").read_text())
    return found


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be equal to the bit: metrics, result, genotype, the last state and the model,
    but for the clock."""
    from proxnas.runs.checkpoint import digest, sound_state

    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    model = folder / "model.safetensors"
    return {
        "genotype": (folder / "genotype.json").read_bytes(),
        "metrics": [
            {name: value for name, value in row.items() if name not in CLOCK} for row in rows
        ],
        "result": {name: value for name, value in result.items() if name not in CLOCK},
        "state": digest(sound_state(folder / "checkpoint.pt")),
        "model": model.read_bytes() if model.exists() else b"",
    }


def draw(random: np.random.RandomState, undisturbed: dict[str, float]) -> Fault:
    """A fault at a random moment of a run that takes so long and writes so much; half are signals
    from outside."""
    kind = random.choice(["after", "after", "hangup", "write", "sync", "rename"])
    moment = random.uniform(0, undisturbed["after" if kind == "hangup" else kind])
    return Fault(kind, moment if kind in ("after", "hangup") else 1 + int(moment))


def trial(argv: list[str], folder: Path, fault: Fault, wanted: dict[str, Any]) -> tuple[bool, bool]:
    """(whether the run was cut off, whether the resumed one ended as it should)."""
    code = run(argv, folder, fault)
    stopped = (
        (128 + signal.SIGHUP, -signal.SIGHUP) if fault.kind == "hangup" else (-signal.SIGKILL,)
    )
    if code not in (0, *stopped):
        return True, False
    resumed = run(argv, folder, resume=True)
    return code != 0, resumed == 0 and outcome(folder) == wanted
