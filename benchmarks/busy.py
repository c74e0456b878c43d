"""Does `--threads auto` keep up on a machine that is not quiet? A default search on the digits
beside busy processes.

    python benchmarks/busy.py FOLDER [--busy 0,1,2,4] [--epochs 4] [--rounds 3] [--threads auto,1,2]

In every round a search with `--threads auto`, one with `--threads 1` and one with all cores run one
after the other beside so many processes that do nothing but compute. Seconds are those of the whole
command, as a user waits for it, and beside them those of its epochs alone. Resumable: rows go into
FOLDER/busy-EPOCHS.jsonl. Medians are printed, with the ratio of auto to the better of the other
two.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proxnas.common.cores import cores
from proxnas.common.files import append_line

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))\n"
"""Computes until whoever started it is gone."""
Row = dict[str, Any]


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Within, so many processes compute."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def search(threads: str, epochs: int) -> Row:
    """One search: seconds of the command and of its epochs, and the numbers of threads that auto
    took."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        flags = [
            "--epochs",
            str(epochs),
            "--device",
            "cpu",
            "--threads",
            threads,
            "--quiet",
            "--run",
            str(run),
        ]
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "proxnas", "search", "digits", *flags],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        whole = time.perf_counter() - start
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        looks = json.loads((run / "environment.json").read_text()).get("looks", [])
    within = sum(sum(row["seconds"].values()) for row in rows)
    return {"whole": whole, "within": within, "choices": [look["choice"] for look in looks]}


def kinds() -> list[str]:
    """What the searches are given as --threads, unless one asks for others."""
    return list(dict.fromkeys(["auto", "1", str(cores())]))


def measure(
    file: Path, loads: Sequence[int], epochs: int, rounds: int, kinds: list[str]
) -> list[Row]:
    """The rows of all rounds; those that the file has are not measured again."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = {(row["round"], row["busy"], row["threads"]) for row in rows}
    for number in range(rounds):
        for load in loads:
            turn = number % len(kinds)
            for threads in kinds[turn:] + kinds[:turn]:  # none is always the first
                if (number, load, threads) in known:
                    continue
                with busy(load):
                    row = {"round": number, "busy": load, "threads": threads} | search(
                        threads, epochs
                    )
                append_line(file, json.dumps(row) + "\n")
                rows.append(row)
                print(json.dumps(row), flush=True)
    return rows


def summary(rows: Sequence[Row]) -> list[str]:
    """A table: medians over rounds, and the ratio of auto to the better of the others."""
    fixed = list(dict.fromkeys(row["threads"] for row in rows if row["threads"] != "auto"))
    lines = [
        "| busy processes | auto | "
        + " | ".join(f"{n} thread{'s' * (n != '1')}" for n in fixed)
        + " | ratio | epochs alone |",
        "|---" * (len(fixed) + 4) + "|",
    ]
    for load in sorted({row["busy"] for row in rows}):
        these = [row for row in rows if row["busy"] == load]
        there = [n for n in ("auto", *fixed) if any(row["threads"] == n for row in these)]
        whole, within = ({n: median(these, n, key) for n in there} for key in ("whole", "within"))
        seconds = " | ".join(f"{whole[n]:.1f} s" if n in whole else "" for n in ("auto", *fixed))
        lines.append(f"| {load} | {seconds} | {ratio(whole):.2f} | {ratio(within):.2f} |")
    return lines


def median(rows: Sequence[Row], threads: str, key: str) -> float:
    """Over the rounds."""
    return statistics.median(row[key] for row in rows if row["threads"] == threads)


def ratio(seconds: dict[str, float]) -> float:
    """auto to the better of the others."""
    return seconds["auto"] / min(value for name, value in seconds.items() if name != "auto")


def main() -> None:
    """Measures what is missing and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--busy", default="0,1,2,4")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default=",".join(kinds()))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / f"busy-{options.epochs}.jsonl"
    loads = [int(number) for number in options.busy.split(",")]
    rows = measure(file, loads, options.epochs, options.rounds, options.threads.split(","))
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
