"""Latency: medians of warm runs, and nothing of the network changed."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

from proxnas.core.size.latency import WARM_RUNS, latency


class Timed(nn.Module):
    """Takes the times given, one a call, over and over; notes what it was called with."""

    def __init__(self, *seconds: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seconds, self.calls = seconds, list[tuple[torch.Size, bool]]()

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.seconds[min(len(self.calls), len(self.seconds) - 1)])
        self.calls.append((x.shape, self.training))
        return x


def test_slow_first_runs_do_not_count() -> None:
    network = Timed(*[0.05] * WARM_RUNS, 0.002).train()
    measured = latency(network, (3, 4, 5), batch=2, runs=7)
    assert (
        0.002 <= measured.fastest <= measured.seconds <= measured.slowest
        and measured.seconds < 0.04
    )
    assert (measured.runs, measured.batch, measured.device) == (7, 2, "cpu")
    assert measured.threads == torch.get_num_threads()
    assert network.calls == [((2, 3, 4, 5), False)] * (WARM_RUNS + 7) and network.training


def test_the_median_ignores_a_hiccup() -> None:
    measured = latency(Timed(*[0.001] * (WARM_RUNS + 2), 0.08, 0.001), (1, 2, 2), runs=7)
    assert measured.slowest >= 0.08 and measured.seconds < 0.04


def test_a_slow_network_is_run_three_times_at_least_and_no_longer_than_needed() -> None:
    network = Timed(0.02)
    assert latency(network, (1, 2, 2), runs=1000, limit=0.01).runs == 3
    assert len(network.calls) == 4  # one warm run was all that the limit left


def test_no_gradient_is_recorded_and_a_network_without_weights_works() -> None:
    assert latency(nn.Identity(), (1, 2, 2), runs=3).runs == 3


def test_a_failing_network_is_left_in_its_mode() -> None:
    network = nn.Sequential(nn.Linear(3, 3)).train()
    with pytest.raises(RuntimeError):
        latency(network, (1, 2, 2))
    assert network.training
