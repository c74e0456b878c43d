"""How long a network takes for a batch, on the device where it is."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from proxnas.common.clock import Clock

WARM_RUNS = 5


@dataclass(frozen=True)
class Latency:
    """Seconds of a forward pass, and under which conditions."""

    seconds: float
    """The median."""
    fastest: float
    slowest: float
    runs: int
    batch: int
    device: str
    threads: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@torch.inference_mode()
def latency(
    network: nn.Module,
    shape: tuple[int, int, int],
    batch: int = 1,
    runs: int = 50,
    limit: float = 5.0,
) -> Latency:
    """Of images (C, H, W) in evaluation mode; see `warm_runs`."""
    device = next(network.parameters(), torch.empty(0)).device
    x = torch.rand(batch, *shape, device=device).to(memory_format=torch.channels_last)
    training = network.training
    network.eval()
    try:
        # exact: the clock waits for the device, else only the queueing would be timed
        seconds = warm_runs(lambda: network(x), Clock(device, exact=True), runs, limit)
    finally:
        network.train(training)
    return summary(seconds, batch, str(device))


def warm_runs(
    run: Callable[[], object], clock: Clock, runs: int = 50, limit: float = 5.0
) -> list[float]:
    """Seconds of so many runs, or of as many as fit into `limit` seconds, but of three at least.

    The first ones, in which kernels are chosen and memory is allocated, do not count.
    """
    begin = clock.now()
    for _ in range(WARM_RUNS):
        if clock.now() - begin < limit:
            run()
    seconds: list[float] = []
    # three at least: a median of fewer would be any one of them
    while len(seconds) < max(runs, 3) and (sum(seconds) < limit or len(seconds) < 3):
        start = clock.now()
        run()
        seconds.append(clock.now() - start)
    return seconds


def summary(seconds: list[float], batch: int, device: str) -> Latency:
    """The median of the runs and their range."""
    times = (statistics.median(seconds), min(seconds), max(seconds))
    return Latency(*times, len(seconds), batch, device, torch.get_num_threads())
