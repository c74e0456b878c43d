"""Where an epoch of NASP spends its time: the network's own operations against everything besides.

    python benchmarks/time_split.py DATA [search flags]      for example: digits, or a
        cifar-10-batches-bin folder

Everything besides is timed directly: streams, selection, the optimizers. What is left of a step is
the network: forward and backward of the selected operations and the forward of the candidates.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from proxnas.cli.search import parse_search
from proxnas.domains.images.data.images import load
from proxnas.searching.job import Search

STEPS = 30


def timed(owner: Any, name: str, spent: dict[str, float], key: str) -> None:
    """Let owner.name add its seconds to spent[key]."""
    real: Callable[..., Any] = getattr(owner, name)

    def wrapper(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return real(*arguments, **options)
        finally:
            spent[key] = spent.get(key, 0.0) + time.perf_counter() - start

    setattr(owner, name, wrapper)


def main() -> None:
    """Prints the shares of some steps and of the evaluation after an epoch."""
    config = parse_search(sys.argv[1:])
    search = Search(config, load(config.data, config.load_options()))
    method: Any = search.method
    for _ in range(3):
        search.totals.add(method.step())
    spent: dict[str, float] = {}
    timed(search.train, "next", spent, "streams and augmentation")
    timed(search.valid, "next", spent, "streams and augmentation")
    timed(method, "select", spent, "selection")
    timed(search.net, "use", spent, "selection")
    timed(method, "descend", spent, "optimizer of A")
    timed(method.w_optimizer.sgd, "step", spent, "optimizer of w")
    steps = min(STEPS, len(search.train))
    start = time.perf_counter()
    for _ in range(steps):
        search.totals.add(method.step())
    total = time.perf_counter() - start
    for name, seconds in spent.items():
        print(f"{name:28} {100 * seconds / total:5.1f}%")
    print(f"{'operations of the network':28} {100 * (1 - sum(spent.values()) / total):5.1f}%")
    print(
        f"a step {total / steps:.4f} s, an epoch of {len(search.train)} steps"
        f" {total / steps * len(search.train):.1f} s"
    )
    start = time.perf_counter()
    search.figures()
    print(f"evaluation at its end {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
