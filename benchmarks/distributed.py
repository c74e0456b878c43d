"""What a step by several processes costs: predicted from parts that are measured alone, and
measured.

    torchrun --nproc-per-node 2 benchmarks/distributed.py

A step = the computation on this process's part of the batch + for each message a latency and its
bytes over the speed of the network (docs/scaling.md). The computation is timed without exchange,
the network by messages of two sizes, and the bytes are counted from the shapes of the network. Then
the search runs, and both are compared. Process 0 prints.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from proxnas.cli.search import parse_search
from proxnas.common.launch import ALONE, here, place_by_torchrun, taking
from proxnas.domains.images.data.images import load
from proxnas.runs.consensus import BITS
from proxnas.runs.messages import exchange, gather, meet, take_part, team
from proxnas.searching.job import Search

FLAGS = [
    "digits",
    "--space",
    "darts7",
    "--cells",
    "5",
    "--channels",
    "16",
    "--device",
    "cpu",
    "--threads",
    "1",
]
FLAGS += ["--explore", "0", "--look-ahead", "0"]  # the path is A_bar, and all steps are alike
BATCHES, STEPS = (8, 32), 15
TAIL = 1 + 1 + 3 + BITS
"""Numbers besides the gradients: loss, examples, wishes, bits."""


@dataclass(frozen=True)
class Network:
    """A message of n bytes takes latency + n / speed seconds."""

    latency: float
    speed: float

    def seconds(self, size: float) -> float:
        return self.latency + size / self.speed


def medians(times: int, *works: Callable[[], object]) -> list[float]:
    """Seconds of each work, taken in turns, so that another load falls on all; of all processes the
    slowest one's, for which the others wait."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for work, seconds in zip(works, taken, strict=True):
            meet()
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
    mine = torch.tensor([statistics.median(seconds) for seconds in taken], dtype=torch.float64)
    found: list[float] = gather(mine).amax(0).tolist()
    return found


def network() -> Network:
    small, large = torch.zeros(256), torch.zeros(4_000_000)
    quick, slow = medians(20, lambda: exchange(small), lambda: exchange(large))
    return Network(quick, 4 * (large.numel() - small.numel()) / max(slow - quick, 1e-9))


def made(batch: int) -> Search:
    return Search(parse_search([*FLAGS, "--batch-size", str(batch)]), load("digits"))


def computing(batch: int) -> Callable[[], None]:
    """A step on one process's part of a batch, while the others do the same; nothing is
    exchanged."""

    def alone() -> None:
        with taking(ALONE):
            search.step()

    with taking(ALONE):
        search = made(batch)
    alone()
    return alone


def predicted(search: Search) -> tuple[int, int]:
    """Bytes of a step's messages: the weights that A_bar uses with the tail; A with its count."""
    A_bar = search.method.architecture()[1]
    numbers = sum(w.numel() for w in search.net.module.parameters())
    for choice in search.net.choices.values():
        assert choice.row is not None
        row = A_bar[choice.row.group][choice.row.edge]
        numbers -= sum(
            w.numel()
            for k, part in enumerate(choice.candidates)
            if not row[k]
            for w in part.parameters()
        )
    return 4 * (numbers + TAIL), 8 * (sum(a.numel() for a in A_bar.values()) + 1)


def compare(batch: int, line: Network) -> str:
    """A search with that batch, foreseen and as it is."""
    compute, search = computing(batch // here().size), made(batch)
    search.step()
    foreseen: list[tuple[int, int]] = []
    sent: list[int] = []

    def step() -> None:
        before = team().traffic.bytes
        search.step()
        sent.append(team().traffic.bytes - before)
        foreseen.append(predicted(search))

    alone, taken = medians(STEPS, compute, step)
    seconds = alone + statistics.mean(
        line.seconds(weights) + line.seconds(A) for weights, A in foreseen
    )
    everything = sum(w.numel() * w.element_size() for w in search.net.module.parameters())
    return (
        f"batch {batch}: bytes a step predicted {statistics.mean(map(sum, foreseen)):,.0f},"
        f" measured {statistics.mean(sent):,.0f} (all weights: {everything:,}); seconds a step"
        f" predicted {seconds:.4f}, measured {taken:.4f} (computation {alone:.4f})"
    )


def main() -> None:
    """Prints a line a batch size."""
    place = place_by_torchrun()
    if place is None or place.alone:
        raise SystemExit("start it by torchrun --nproc-per-node 2")
    torch.set_num_threads(1)
    with take_part(place):
        line = network()
        if place.leads:
            print(
                f"network: {1e6 * line.latency:.0f} us a message, {line.speed / 1e6:.0f} MB/s",
                flush=True,
            )
        for batch in BATCHES:
            words = compare(batch, line)
            if place.leads:
                print(words, flush=True)


if __name__ == "__main__":
    main()
