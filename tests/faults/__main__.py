"""`make faults`: faults in great number, and a summary for docs/reliability.md. Takes about 25
minutes of one core."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from faults import bombs, compare, crash, disk, fuzz, load, methods, tampered
from proxnas import methods as registry

LINES: list[str] = []
FAILED: list[str] = []


def tell(line: str, ok: bool = True) -> None:
    """A line of the summary."""
    LINES.append(line if ok else f"FAILED: {line}")
    FAILED.extend([] if ok else [line])
    print(LINES[-1], flush=True)


def kills(kind: str, number: int, seed: int, place: Path) -> None:
    """A search or a training, killed at random moments."""
    random, data = np.random.RandomState(seed), crash.stripes(place)
    argv, alone = crash.command(kind, data), place / f"{kind}-alone"
    if crash.run(argv, alone) != 0:
        return tell(f"{kind}: the undisturbed run failed: {crash.printed(alone)}", ok=False)
    wanted, counts = crash.outcome(alone), crash.counts(alone)
    faults = [crash.draw(random, counts) for _ in range(number)]
    results = [
        crash.trial(argv, place / f"{kind}-{i}", fault, wanted) for i, fault in enumerate(faults)
    ]
    _tell_kills(kind, results, [str(fault) for fault in faults])


def kills_of_compare(number: int, seed: int, place: Path) -> None:
    """A comparison, killed at random moments, every other time together with its workers."""
    random, data = np.random.RandomState(seed), crash.stripes(place)
    seconds = compare.timed(data, place / "compare-alone")
    wanted = compare.outcomes(place / "compare-alone")
    moments = [float(moment) for moment in random.uniform(0, seconds, number)]
    results = [
        compare.trial(data, place / f"compare-{i}", moment, bool(i % 2), wanted)
        for i, moment in enumerate(moments)
    ]
    _tell_kills("compare", results, [f"after {moment:.2f}" for moment in moments])


def kills_of_methods(place: Path) -> None:
    """A search by each method, killed twice."""
    data, names = crash.stripes(place), registry.names()
    results = [methods.trial(name, data, place) for name in names]
    _tell_kills("a search by each method, killed twice", results, names)


def _tell_kills(kind: str, results: list[tuple[bool, bool]], faults: list[str]) -> None:
    same = sum(ok for _, ok in results)
    cut = sum(cut for cut, _ in results)
    wrong = ", ".join(fault for fault, (_, ok) in zip(faults, results, strict=True) if not ok)
    tell(
        f"{kind}: {len(results)} runs, {cut} killed before their end; {same} of {len(results)}"
        " resumed to the same bits" + (f" (not: {wrong})" if wrong else ""),
        same == len(results),
    )


def disks(place: Path) -> None:
    """Disks that are full or may not be written."""
    for name, (ok, said) in disk.trials(place).items():
        tell(f"disk, {name}: {said}", ok)


def strangers(inputs: int, seed: int, place: Path) -> None:
    """Malformed files, bombs and canaries, in a process of its own, which gets limits."""
    found = fuzz.fuzz(inputs, seed, tell=print)
    tell(f"malformed files: {found}", not found.findings)
    canary, report = place / "canary", fuzz.Report()
    with fuzz.limits():
        for sample in bombs.bombs(place / "bombs"):
            fuzz.judge(sample, sample.content, sample.place, report)
    tell(f"bombs below 1 MB: {report}", not report.findings)
    evil = fuzz.Report()
    with fuzz.limits():
        for sample in bombs.evil(place / "evil", canary):
            fuzz.judge(sample, sample.content, sample.place, evil)
    silent = not canary.exists()
    tell(
        f"pickles that would run code: {evil}; the canary is {'silent' if silent else 'SINGING'}",
        silent and evil.refused == evil.inputs and not evil.findings,
    )
    for finding in found.findings + report.findings + evil.findings:
        print("  " + finding)


def tamper(trials: int, seed: int, place: Path) -> None:
    """One value changed in files of runs and models, for every command that reads them."""
    count, found = tampered.fuzz(place, crash.stripes(place), trials, seed)
    tell(f"one value changed in a run or a model: {count} times, {len(found)} findings", not found)
    for finding in found:
        print("  " + repr(finding))


def loads(steps: int, runs: int, place: Path) -> None:
    """Many steps, many runs."""
    watch = load.many_steps(place, steps)
    tell(
        f"{steps} steps: memory grew by {100 * watch.growth():.2f}%, metrics.jsonl readable after"
        f" each epoch: {watch.readable}",
        watch.growth() < 0.01 and watch.readable,
    )
    load.many_runs(place / "runs", runs)
    seconds = load.seconds_of("runs", str(place / "runs"))
    tell(f"proxnas runs with {runs} runs: {seconds:.1f} s", seconds < 2)
    argv = load.many_compared(crash.stripes(place), place / "compared", runs)
    logs = place / "compared" / "search" / "logs"
    seconds = load.seconds_until(
        logs / f"{compare.METHODS.split(',')[-1]}-{runs // 2 - 1}.log", *argv
    )
    tell(
        f"proxnas compare with {runs - 1} finished runs begins the last one after {seconds:.1f} s",
        seconds < 5,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of each: search, train, compare")
    parser.add_argument("--inputs", type=int, default=10_000, help="malformed files")
    parser.add_argument(
        "--trials", type=int, default=10, help="changed values for each command and file"
    )
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only",
        default="search,train,methods,compare,disk,strangers,tampered,load",
        help="parts, with commas between",
    )
    asked = parser.parse_args()
    parts: dict[str, Callable[[Path], Any]] = {
        "search": lambda place: kills("search", asked.kills, asked.seed, place),
        "train": lambda place: kills("train", asked.kills, asked.seed, place),
        "methods": kills_of_methods,
        "compare": lambda place: kills_of_compare(asked.kills, asked.seed, place),
        "disk": disks,
        "strangers": lambda place: strangers(asked.inputs, asked.seed, place),
        "tampered": lambda place: tamper(asked.trials, asked.seed, place),
        "load": lambda place: loads(asked.steps, asked.runs, place),
    }
    names = asked.only.split(",")
    if (
        len(names) > 1
    ):  # each in a process of its own: limits, threads and memory are not for the next one
        return _each(names)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="proxnas-faults-") as place:
        parts[names[0]](Path(place))
    return bool(FAILED)


def _each(names: list[str]) -> int:
    begin, code = time.monotonic(), 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in names:
        code |= subprocess.run(
            [sys.executable, "-m", "faults", *sys.argv[1:], f"--only={name}"]
        ).returncode
    print(
        f"{'FAILED' if code else 'all as promised'}, {(time.monotonic() - begin) / 60:.0f} minutes"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
