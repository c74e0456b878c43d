"""Are found cells better than random ones? Searches on reduced CIFAR-10, and their cells trained
beside random cells.

    python benchmarks/found_cells.py CIFAR_FOLDER [--spaces darts7,nasp12] [--seeds 0,1] [--variant
        NAME] [--random 8]
                                     [--epochs 4] [--folder found]

Reduced: 10,000 training images and the 10,000 test images averaged down to 16x16. The searches have
the defaults but for their size, or NASP is changed as variants.py says; then the found cells and
random cells of the same space, whose networks have about as many parameters, are trained under the
quick protocol with one seed. Resumable. Rows go into FOLDER/rows.jsonl, the summary is printed:
found less random, with a 95% interval (t).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.core.selection import random_selection
from proxnas.core.size.complexity import parameters
from proxnas.domains import spaces
from proxnas.domains.images.data.images import load, split
from proxnas.domains.images.networks.cnn import Size

IMAGES = 10_000
SEARCH = ["--cells", "5", "--channels", "8", "--epochs", "5", "--batch-size", "64"]
CELLS, CHANNELS = 5, 8
TRAIN = ["--cells", str(CELLS), "--channels", str(CHANNELS), "--protocol", "quick"]
FINAL = ["--final-cells", str(CELLS), "--final-channels", str(CHANNELS)]
TOLERANCE = 0.1
"""How far the parameters of a random cell's network may be from those of the found ones in the
mean."""
T = {
    1: 12.71,
    2: 4.30,
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    11: 2.20,
    14: 2.14,
    19: 2.09,
}
"""Degrees of freedom -> two-sided 95% quantile of Student's t."""


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
    mean: np.ndarray[Any, Any] = (
        x.reshape(len(x), 16, 2, 16, 2, 3).mean((2, 4)).round().astype(np.uint8)
    )
    return mean


def proxnas(*words: str, variant: str = "") -> None:
    """One command in a process of its own; goes on where it was stopped."""
    start = (
        [str(Path(__file__).with_name("variants.py")), variant] if variant else ["-m", "proxnas"]
    )
    command = [sys.executable, *start, *words, "--threads", "1", "--quiet", "--resume"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def trained(cell: Path, data: str, run: Path, *flags: str) -> dict[str, Any]:
    """What a row says of the cell's training."""
    proxnas("train", str(cell), data, *flags, "--run", str(run))
    result = json.loads((run / "result.json").read_text())
    return {key: result[key] for key in ("params", "test_accuracy", "seconds")}


def interval(groups: list[tuple[list[float], list[float]]]) -> tuple[float, float]:
    """(difference, half the width of its 95% interval) from found and random cells in each group.

    The mean over groups of found less random; one variance within all samples, by Student's t.
    """
    differences = [statistics.mean(found) - statistics.mean(others) for found, others in groups]
    samples = [sample for pair in groups for sample in pair]
    freedom = sum(len(sample) - 1 for sample in samples)
    variance = sum((len(x) - 1) * statistics.variance(x) for x in samples if len(x) > 1) / freedom
    error = math.sqrt(variance * sum(1 / len(sample) for sample in samples)) / len(groups)
    quantile = T[
        max(k for k in T if k <= freedom)
    ]  # the next smaller one that is listed: never too narrow
    return statistics.mean(differences), quantile * error


def size_of(genotype: Genotype, space: str) -> int:
    """Parameters of the network that is trained."""
    with torch.device("meta"):
        return parameters(spaces.find(space).network(genotype, Size(CELLS, CHANNELS, 3, 10)))


def random_cells(space: str, wanted: float, number: int, folder: Path) -> list[Path]:
    """Random cells of the space, as files, whose networks have about as many parameters as
    wanted."""
    generator = torch.Generator().manual_seed(0)
    found: list[Path] = []
    while len(found) < number:
        A_bar = {
            name: random_selection(group, generator)
            for name, group in spaces.find(space).groups.items()
        }
        genotype = spaces.find(space).genotype(A_bar)
        if abs(size_of(genotype, space) / wanted - 1) <= TOLERANCE:
            found.append(folder / f"{space}-random-{len(found)}.json")
            found[-1].write_text(genotype.to_json())
    return found


def compare(
    space: str, data: str, folder: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """The rows of one space: the found cells first."""
    cells = {
        f"found-{seed}": folder / f"{space}-search-{seed}" for seed in options.seeds.split(",")
    }
    for seed, run in zip(options.seeds.split(","), cells.values(), strict=True):
        flags = ["--space", space, *SEARCH, *FINAL, "--seed", seed, "--run", str(run)]
        proxnas("search", data, *flags, variant=options.variant)
    wanted = statistics.mean(size_of(read_genotype(run), space) for run in cells.values())
    cells |= {
        path.stem.removeprefix(f"{space}-"): path
        for path in random_cells(space, wanted, options.random, folder)
    }
    flags = [*TRAIN, "--epochs", str(options.epochs)]
    return [
        {"space": space, "cell": name}
        | trained(cell, data, folder / f"{space}-train-{name}", *flags)
        for name, cell in cells.items()
    ]


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A Markdown row a space."""
    lines = [
        "| space | found | mean | params | random mean | std | best random | found - random, 95% |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for space in dict.fromkeys(row["space"] for row in rows):
        mine = [row for row in rows if row["space"] == space]
        found, others = (
            [row for row in mine if row["cell"].startswith(kind)] for kind in ("found", "random")
        )
        ours, tests = ([row["test_accuracy"] for row in group] for group in (found, others))
        mean, half = interval([(ours, tests)])
        lines.append(
            f"| {space} | {', '.join(f'{test:.4f}' for test in ours)} | {statistics.mean(ours):.4f}"
            f" | {statistics.mean(row['params'] for row in found):,.0f} |"
            f" {statistics.mean(tests):.4f} | {statistics.stdev(tests):.4f} | {max(tests):.4f} |"
            f" {mean:+.4f} +- {half:.4f} |"
        )
    return lines


def main() -> None:
    """Runs what is missing and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cifar")
    parser.add_argument("--spaces", default="darts7,nasp12")
    parser.add_argument("--seeds", default="0,1", help="of searches")
    parser.add_argument("--variant", default="", help="of NASP, a name of variants.py")
    parser.add_argument("--random", type=int, default=8, help="random cells")
    parser.add_argument("--epochs", type=int, default=4, help="of each training")
    parser.add_argument("--folder", default="found")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = str(reduced(options.cifar, folder / "reduced.npz"))
    rows = [
        row for space in options.spaces.split(",") for row in compare(space, data, folder, options)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
