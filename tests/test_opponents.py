"""benchmarks/opponents.py: networks that people would have taken, in the same time."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from proxnas.core.size.complexity import parameters
from proxnas.workflows import fit_plan
from support.commands import stripes
from support.places import ROOT

FOLDER = ROOT / "benchmarks"


@pytest.fixture
def opponents(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, whose process needs no time to load."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("opponents", FOLDER / "opponents.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "opponents", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOADING", 0.0)
    monkeypatch.setattr(fit_plan, "EXPORT_SECONDS", 0.0)
    return module


@pytest.mark.parametrize(
    ("name", "size"), [("resnet-18", 11_173_962), ("mobilenet-v2", 2_236_682), ("resnet-8", 78_042)]
)
def test_opponents_are_what_they_are_called(opponents: ModuleType, name: str, size: int) -> None:
    network = opponents.NETWORKS[name](3, 10)
    assert parameters(network) == size
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("name", ["four convolutions", "four convolutions by adam", "narrow"])
def test_an_opponent_is_trained_for_its_time_and_tested(
    opponents: ModuleType, tmp_path: Path, name: str
) -> None:
    np.savez(tmp_path / "stripes.npz", **stripes(200))
    row = opponents.make_row(name, str(tmp_path / "stripes.npz"), 1.5, 0)
    assert (row["data"], row["name"], row["seed"]) == ("stripes", name, 0)
    assert row["steps"] > 5 and row["test"] > 0.5
    if name == opponents.NARROW:
        assert row["params"] <= opponents.half_of(str(tmp_path / "stripes.npz"), 1.5, 0)


def test_a_summary_says_how_far_ahead_of_each_a_fit_is(opponents: ModuleType) -> None:
    common = {"data": "d", "seconds": 60.0, "params": 10, "steps": 5}
    rows = [
        common | {"name": name, "seed": seed, "test": test}
        for name, seed, test in (("fit", 0, 0.8), ("fit", 1, 0.82), ("other", 0, 0.79))
    ]
    ours, other = opponents.summary(rows)[2:]
    assert ours == "| d | 60 | fit | 2 | 81.00 | 1.41 | 10 | 5 |  |"
    assert other == "| d | 60 | other | 1 | 79.00 |  | 10 | 5 | +1.00 |"
