"""Does a search in a module of one's own pay? The transformer of examples/transformer.py with the
blocks of a search, beside those that take attention, convolution or MLP everywhere: each trained
anew for as long, on the same data.

    python benchmarks/any_model.py [--seeds 0,1,2] [--steps 300]

Seconds are of the process, not of the clock: on one thread the time without waiting for others.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import proxnas

EXAMPLE = Path(__file__).parents[1] / "examples" / "transformer.py"
KINDS = ("attention", "convolution", "mlp")


def example() -> Any:
    """The module of the example."""
    spec = importlib.util.spec_from_file_location("transformer_example", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_loss(this: Any, genotype: dict[str, str], seed: int, steps: int) -> float:
    """Mean loss a character on the last fifth of the text, after training from fresh weights on the
    first 60%."""
    torch.manual_seed(seed)
    model = proxnas.derive(this.Transformer(), genotype)
    adam = torch.optim.AdamW(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, 3e-3, total_steps=steps)
    for x, y in this.windows(0, 0.6, steps, 1000 + seed):
        adam.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        adam.step()
        schedule.step()
    with torch.no_grad():
        losses = [
            nn.functional.cross_entropy(model.eval()(x), y) for x, y in this.windows(0.8, 1, 100, 0)
        ]
    return float(torch.stack(losses).mean())


def compare(this: Any, seed: int, steps: int, **smaller: int) -> dict[str, Any]:
    """One seed: the test losses, what was found, and the seconds of the search and of
    everything."""
    start = time.process_time()
    found = this.search(seed=seed, **smaller)
    searched = time.process_time() - start
    genotypes = {"found": found.genotype} | {
        kind: dict.fromkeys(found.genotype, kind) for kind in KINDS
    }
    losses = {name: test_loss(this, genotype, seed, steps) for name, genotype in genotypes.items()}
    blocks = list(found.genotype.values())
    return losses | {
        "blocks": blocks,
        "search_seconds": searched,
        "seconds": time.process_time() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=300)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in asked.seeds.split(","):
        rows.append(compare(example(), int(seed), asked.steps))
        print(json.dumps(rows[-1]), flush=True)
    for name in ("found", *KINDS):
        losses = [row[name] for row in rows]
        print(
            f"{name:<12} {statistics.mean(losses):.3f} +-"
            f" {statistics.stdev(losses) if len(losses) > 1 else 0.0:.3f}"
        )
    print(f"seconds      {sum(row['seconds'] for row in rows):.0f}")


if __name__ == "__main__":
    main()
