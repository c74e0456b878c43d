"""Are found cells better than random ones? A search on reduced CIFAR-10, and its cell trained beside random cells.

    python benchmarks/found_cells.py CIFAR_FOLDER [--spaces darts7,nasp12] [--random 8] [--folder found]

Reduced: 10,000 training images and the 10,000 test images averaged down to 16x16. The search has the defaults but for
its size; then the found cell and random cells of the same space, whose networks have about as many parameters, are
trained under the quick protocol with one seed. Resumable. Rows go into FOLDER/rows.jsonl, the summary is printed: the
found cell against mean and standard deviation of the random ones, and how many of them it beats.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proxnas import spaces
from proxnas.complexity import parameters
from proxnas.data.images import load, split
from proxnas.genotype import Genotype, read
from proxnas.networks.cnn import Size
from proxnas.selection import random_selection

IMAGES = 10_000
SEARCH = ["--cells", "5", "--channels", "8", "--epochs", "5", "--batch-size", "64"]
CELLS, CHANNELS = 5, 8
TRAIN = ["--cells", str(CELLS), "--channels", str(CHANNELS), "--epochs", "4", "--protocol", "quick"]
FINAL = ["--final-cells", str(CELLS), "--final-channels", str(CHANNELS)]
TOLERANCE = 0.1
"""How far the parameters of a random cell's network may be from those of the found one."""


def reduced(cifar: str, path: Path) -> Path:
    """A fixed, stratified fifth of the training images and all test images at 16x16."""
    if not path.exists():
        images = load(cifar)
        keep = split(images.y_train, len(images.y_train) // IMAGES, seed=0)[0][:IMAGES]
        parts = {"x_train": images.x_train[keep], "x_test": images.x_test}
        small = {name: halved(np.asarray(x)) for name, x in parts.items()}
        np.savez(path, **small, y_train=images.y_train[keep], y_test=images.y_test)
    return path


def halved(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(N, 32, 32, 3) -> (N, 16, 16, 3)."""
    mean: np.ndarray[Any, Any] = x.reshape(len(x), 16, 2, 16, 2, 3).mean((2, 4)).round().astype(np.uint8)
    return mean


def proxnas(*words: str) -> None:
    """One command in a process of its own; goes on where it was stopped."""
    command = [sys.executable, "-m", "proxnas", *words, "--threads", "1", "--quiet", "--resume"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def trained(cell: Path, data: Path, run: Path) -> dict[str, Any]:
    """result.json of the cell's training."""
    proxnas("train", str(cell), str(data), *TRAIN, "--run", str(run))
    result: dict[str, Any] = json.loads((run / "result.json").read_text())
    return result


def size_of(genotype: Genotype, space: str) -> int:
    """Parameters of the network that is trained."""
    with torch.device("meta"):
        return parameters(spaces.find(space).network(genotype, Size(CELLS, CHANNELS, 3, 10)))


def random_cells(space: str, wanted: int, number: int, folder: Path) -> list[Path]:
    """Random cells of the space, as files, whose networks have about as many parameters as wanted."""
    generator = torch.Generator().manual_seed(0)
    found: list[Path] = []
    while len(found) < number:
        A_bar = {name: random_selection(group, generator) for name, group in spaces.find(space).groups.items()}
        genotype = spaces.find(space).genotype(A_bar)
        if abs(size_of(genotype, space) / wanted - 1) <= TOLERANCE:
            found.append(folder / f"{space}-random-{len(found)}.json")
            found[-1].write_text(genotype.to_json())
    return found


def compare(space: str, data: Path, number: int, folder: Path) -> list[dict[str, Any]]:
    """The rows of one space: the found cell first."""
    run = folder / f"{space}-search"
    proxnas("search", str(data), "--space", space, *SEARCH, *FINAL, "--run", str(run))
    wanted = size_of(read(run), space)
    cells = {"found": run} | {path.stem: path for path in random_cells(space, wanted, number, folder)}
    rows = []
    for name, cell in cells.items():
        result = trained(cell, data, folder / f"{space}-train-{name.removeprefix(f'{space}-')}")
        rows.append(
            {"space": space, "cell": name, **{key: result[key] for key in ("params", "test_accuracy", "seconds")}}
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A Markdown row a space."""
    lines = ["| space | params found | test found | random mean | std | best random | random beaten |"]
    lines.append("|---|---|---|---|---|---|---|")
    for space in dict.fromkeys(row["space"] for row in rows):
        found, *others = [row for row in rows if row["space"] == space]
        tests = [row["test_accuracy"] for row in others]
        beaten = sum(test < found["test_accuracy"] for test in tests)
        lines.append(
            f"| {space} | {found['params']:,} | {found['test_accuracy']:.4f} | {statistics.mean(tests):.4f} | "
            f"{statistics.stdev(tests):.4f} | {max(tests):.4f} | {beaten} of {len(tests)} |"
        )
    return lines


def main() -> None:
    """Runs what is missing and prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cifar")
    parser.add_argument("--spaces", default="darts7,nasp12")
    parser.add_argument("--random", type=int, default=8)
    parser.add_argument("--folder", default="found")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = reduced(options.cifar, folder / "reduced.npz")
    rows = [row for space in options.spaces.split(",") for row in compare(space, data, options.random, folder)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
