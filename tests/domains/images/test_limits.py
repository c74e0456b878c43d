"""A limit of seconds on a pass by the clock: by what networks are deployed with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from proxnas.common.errors import OptionError
from proxnas.common.onnx_runtime import onnx_available
from proxnas.core.choice import Source
from proxnas.core.size.stopwatch import HOST, Run
from proxnas.domains.images import limits
from proxnas.domains.images.data.images import load
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.spaces.resnet import middle
from proxnas.workflows.fit_plan import check_asked

SIZE, SHAPE = Size(1, 4, 1, 10), (1, 8, 8)


class Counting:
    """A runtime that runs nothing, and counts what it was to run."""

    by, version, device = "counting", "counting 1", HOST

    def __init__(self) -> None:
        self.prepared: list[nn.Module] = []

    def prepare(self, module: nn.Module, source: Source) -> Run:
        self.prepared.append(module)
        return lambda: None


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Counting:
    made = Counting()
    limits._entries.cache_clear()
    monkeypatch.setattr(limits, "choose", lambda by, device: made)
    monkeypatch.setattr("proxnas.core.size.stopwatch.LIMIT", 0.0)
    return made


def test_seconds_are_by_the_chosen_runtime_and_parts_are_measured_once(runtime: Counting) -> None:
    assert limits.network_size("latency", middle(), SIZE, SHAPE, HOST) < 1e-3
    assert len(runtime.prepared) == 1
    limits.budget_for("latency", 1.0, "limit", SIZE, SHAPE, HOST)
    parts = len(runtime.prepared)
    limits.budget_for("latency", 1.0, "limit", SIZE, SHAPE, HOST)
    assert parts > 20 and len(runtime.prepared) <= parts + 2  # the smallest and the largest


def test_what_is_counted_is_not_timed(runtime: Counting) -> None:
    limits.budget_for("params", 1e9, "limit", SIZE, SHAPE, HOST)
    assert runtime.prepared == []


def asked(**flags: Any) -> FitConfig:
    return FitConfig(data="digits", channels=4, device="cpu", max_latency="1s", **flags)


@pytest.mark.skipif(not onnx_available(), reason="the extra onnx is not installed")
def test_onnx_runtime_times_a_pass_by_the_clock_where_it_is_installed() -> None:
    torch.set_num_threads(1)
    images = load("digits")
    for by in ("onnx", "torch"):
        check_asked(asked(latency_by=by), images)
    with pytest.raises(OptionError, match="networks by onnx or torch"):
        check_asked(asked(latency_by="table"), images)


def test_a_pass_is_timed_by_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def runtime(by: str, device: torch.device) -> Any:
        seen.append(by)
        return Counting()

    monkeypatch.setattr(limits, "choose", runtime)
    limits.budget_for("latency", 1.0, "limit", SIZE, SHAPE, HOST, "torch")
    assert seen and {*seen} == {"torch"}


def test_torch_does_where_it_is_not(runtime: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxnas.core.size.stopwatch.onnx_available", lambda: False)
    check_asked(asked(latency_by="torch"), load("digits"))
    for by, said in (("onnx", "needs more packages"), ("table", "networks by onnx or torch")):
        with pytest.raises(OptionError, match=said):
            check_asked(asked(latency_by=by), load("digits"))
