"""How long a network takes for a batch, on the device where it is."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from proxnas.clock import Clock

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
    network: nn.Module, shape: tuple[int, int, int], batch: int = 1, runs: int = 50, limit: float = 5.0
) -> Latency:
    """Of images (C, H, W): the median of warm runs in evaluation mode, so many or as many as fit into `limit` seconds.

    At least three are run. The first ones, in which kernels are chosen and memory is allocated, do not count.
    """
    device = next(network.parameters(), torch.empty(0)).device
    x = torch.rand(batch, *shape, device=device).to(memory_format=torch.channels_last)
    clock, training = Clock(device, exact=True), network.training
    network.eval()
    try:
        start = clock.now()
        for _ in range(WARM_RUNS):
            if clock.now() - start < limit:
                network(x)
        seconds: list[float] = []
        while len(seconds) < max(runs, 3) and (sum(seconds) < limit or len(seconds) < 3):
            start = clock.now()
            network(x)
            seconds.append(clock.now() - start)
    finally:
        network.train(training)
    times = (statistics.median(seconds), min(seconds), max(seconds))
    return Latency(*times, len(seconds), batch, str(device), torch.get_num_threads())
