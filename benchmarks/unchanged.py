"""Does a change of the code change what is found? Fifteen short runs over all commands, domains and
kinds of methods, each with a fixed seed on one thread, and whether two versions of proxnas wrote
the same of them: genotype.json and metrics.jsonl to the bit, without seconds, memory and
the number of their schema.

    PYTHONPATH=before/src python benchmarks/unchanged.py before
    PYTHONPATH=after/src python benchmarks/unchanged.py after
    python benchmarks/unchanged.py after --against before

A run that is there already is not repeated. Fits by the clock are left out: they stop where the
clock says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IMAGES = "--cells 2 --channels 4 --final-cells 2 --final-channels 4 --epochs 1 --batch-size 64"
TEXT = "--space rnn --units 16 --final-units 16 --epochs 1 --batch-size 64 --train-tokens 20000"
RUNS = {
    "search-nasp": f"search digits {IMAGES} --look-ahead 3 --max-params 8k",
    "search-201": f"search digits --space nasbench201 --method gdas {IMAGES}",
    "search-paper": f"search digits --preset paper --method pa --eta 1 {IMAGES}",
    "search-2nd": f"search digits --method darts-2nd --space darts8 {IMAGES}",
    "search-cells": f"search digits --method evolution --evaluations 4 {IMAGES}",
    "search-proxyless": f"search digits --space resnet --method proxyless {IMAGES}",
    "search-enas": f"search digits --method enas --controller-steps 2 {IMAGES}",
    "search-text": f"search pydocs {TEXT}",
    "search-text-drawn": f"search pydocs --method random-ws --random-cells 3 {TEXT}",
    "train": "train zoo:NASP_12ops digits --cells 2 --channels 4 --epochs 2 --cutout 2 --ema 0.9",
    "train-text": "train zoo:LSTM pydocs --units 16 --epochs 1 --train-tokens 20000",
    "fit": "fit digits --space nasbench201 --search-epochs 1 --epochs 1 --cells 1 --channels 4",
    "compare": "compare digits --methods nasp,random --seeds 0 --search-config FLAGS --epochs 1",
    "sweep": "sweep digits --eta 0,1 --seeds 0 --search-config FLAGS --epochs 1",
    "module": "",
}
"""Name -> command; FLAGS: a file with the sizes of IMAGES; module: see `search_module`."""
FLAGS = {"cells": 2, "channels": 4, "final_cells": 2, "final_channels": 4, "batch_size": 64}
LEFT_OUT = {"seconds", "memory", "schema"}


def search_module(folder: Path) -> None:
    """A search in a module of one's own."""
    import torch
    from torch import nn

    import proxnas

    torch.manual_seed(0)
    choice = proxnas.Choice({"relu": nn.ReLU(), "tanh": nn.Tanh(), "wide": nn.Linear(8, 8)})
    net = nn.Sequential(nn.Linear(4, 8), choice, nn.Linear(8, 3))
    x = torch.randn(240, 4)
    rows = x, x.argmax(1) % 3
    train, valid = ((part[0], part[1]) for part in zip(*(r.split(120) for r in rows), strict=True))
    proxnas.search(net, train, valid, proxnas.NASP(eta=0.1), epochs=3, run=folder, threads=1)


def run(name: str, folder: Path) -> None:
    """In a process of its own, as a user would."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = folder.parent / "flags.json"
    flags.write_text(json.dumps(FLAGS))
    words = RUNS[name].replace("FLAGS", str(flags)).split()
    command = [*words, "--threads", "1", "--run", str(folder), "--quiet", "--force"]
    calls = ["-m", "proxnas", *command] if words else [__file__, str(folder), "--module"]
    subprocess.run([sys.executable, *calls], check=True, stdout=subprocess.DEVNULL)


def written(folder: Path) -> Iterator[tuple[Path, Any]]:
    """What is compared: a file, and what it says."""
    for file in sorted(folder.rglob("genotype.json")):
        yield file.relative_to(folder), json.loads(file.read_text())
    for file in sorted(folder.rglob("metrics.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            for key in LEFT_OUT:
                row.pop(key, None)
        yield file.relative_to(folder), rows


def main() -> None:
    """Runs what is missing, or compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", type=Path, help="the folder of another version")
    parser.add_argument("--only", default=",".join(RUNS), help="names with commas between")
    parser.add_argument("--module", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.module:
        return search_module(asked.folder)
    for name in asked.only.split(","):
        folder = asked.folder / name
        if asked.against is None:
            if not list(written(folder)):
                run(name, folder)
            continue
        here, there = dict(written(folder)), dict(written(asked.against / name))
        differ = [str(path) for path in here | there if here.get(path) != there.get(path)]
        outcome = f"differ: {', '.join(differ)}" if differ else "the same"
        print(f"{name:<20} {len(here)} files {outcome if here else 'missing'}")


if __name__ == "__main__":
    main()
