"""A method is one file: what a stranger's method gets by being registered, and by nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import proxnas
from proxnas import methods
from proxnas.common.errors import InputError
from proxnas.common.plugins import of_others
from proxnas.core.choice import Choice
from proxnas.workflows import study
from support.commands import call, one_line
from support.here import Here
from support.packages import installed

TOY = '''
"""A method of somebody else's: random steps of A, of a length of its own."""
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Mapping

import torch

from proxnas.common.options import Range
from proxnas.core.selection import changed, one_hot
from proxnas.methods.base import weight_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import MethodOptions, Traits
from proxnas.runs.metrics import Metrics


@dataclass(frozen=True)
class ToyOptions(MethodOptions):
    """Random steps of A."""

    traits: ClassVar[Traits] = Traits(any_length=True)
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0, "momentum": 0.5}

    stride: Annotated[float, Range(0, 10, above=True)] = 0.5
    """Length of a random step of A."""


class Toy:
    Options = ToyOptions

    def __init__(self, setup):
        self.net, self.train, self.clock = setup.net, setup.train, setup.clock
        self.options = setup.options
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.A = {n: torch.zeros(g.shape, dtype=torch.float64) for n, g in self.net.groups.items()}
        self.w_optimizer = WeightOptimizer(self.net, setup.weights, len(self.train))
        self.A_bar = self.derive()

    def derive(self):
        return {name: one_hot(A.softmax(-1), self.net.groups[name]) for name, A in self.A.items()}

    def step(self):
        batch, before = self.train.next(), self.A_bar
        for A in self.A.values():
            A += self.options.stride * torch.randn(A.shape, generator=self.generator, dtype=A.dtype)
        self.A_bar = self.derive()
        self.net.use(self.A_bar)
        loss, right = weight_step(self.net, batch, self.w_optimizer, self.clock)
        return Metrics(loss, right, len(batch.y), changed(before, self.A_bar))

    def architecture(self):
        return self.A, self.A_bar

    def state_dict(self):
        return {"A": self.A, "w": self.w_optimizer.state_dict(),
                "generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.A = {name: A.clone() for name, A in state["A"].items()}
        self.w_optimizer.load_state_dict(state["w"])
        self.generator.set_state(state["generator"])
        self.A_bar = self.derive()
'''
TINY = [
    "--space",
    "nasbench201",
    "--cells",
    "1",
    "--channels",
    "2",
    "--batch-size",
    "20",
    "--final-cells",
    "1",
]
ONE = ["--threads", "1", "--device", "cpu", "--quiet"]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package: a module, and an entry point, which worker processes find too."""
    site = installed(tmp_path, "toy_method", TOY, "[proxnas.methods]\ntoy = toy_method:Toy\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{Path(proxnas.__file__).parent.parent}")
    of_others.cache_clear()
    monkeypatch.delitem(sys.modules, "toy_method", raising=False)
    assert "toy" in methods.names()
    yield
    of_others.cache_clear()


def rows(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.mark.usefixtures("toy")
def test_its_option_is_a_flag_with_help_and_range(
    stripes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("search", stripes, "--method", "toy", "--help") == 0
    said = capsys.readouterr().out
    assert "--stride 0.5" in said and "Length of a random step of A" in said
    assert "--momentum 0.5" in said and "--look-ahead" not in said
    assert call("search", stripes, "--method", "toy", "--stride", "11") == 2
    assert one_line(capsys.readouterr().err).startswith("--stride 11.0: give a number above 0")
    assert call("search", stripes, "--method", "nasp", "--stride", "1") == 2
    assert "--stride 1: is for toy, not for nasp: leave it out" in capsys.readouterr().err
    assert call("search", stripes, "--method", "toy", "--tau-end", "1") == 2
    assert "is for snas, gdas, asap, not for toy" in capsys.readouterr().err


@pytest.mark.usefixtures("toy")
def test_it_is_a_class_of_proxnas() -> None:
    assert proxnas.Toy(stride=0.2).stride == 0.2
    with pytest.raises(InputError, match=r"^stride 11: give a number above 0, at most 10$"):
        proxnas.Toy(stride=11)
    x, y = torch.randn(24, 4), torch.arange(24) % 2
    module = nn.Sequential(Choice({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2, bias=False)}))
    found = proxnas.search(module, (x, y), (x, y), proxnas.Toy(stride=0.2), epochs=1, batch_size=8)
    assert found.result["method"] == "toy"


@pytest.mark.usefixtures("toy")
def test_a_resumed_search_by_it_equals_an_uninterrupted_one(stripes: Path, tmp_path: Path) -> None:
    flags = [*TINY, *ONE, "--method", "toy", "--stride", "0.3"]
    steady = ["--learning-rate", "0.01", "--learning-rate-min", "0.01"]
    assert call("search", stripes, *flags, *steady, "--epochs", "2", "--run", tmp_path / "a") == 0
    assert call("search", stripes, *flags, *steady, "--epochs", "1", "--run", tmp_path / "b") == 0
    more = ["--resume", "--epochs", "2", *ONE]
    assert call("search", stripes, *flags, *steady, *more, "--run", tmp_path / "b") == 0
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    assert json.loads((tmp_path / "b" / "config.json").read_text())["stride"] == 0.3


@pytest.mark.usefixtures("toy")
def test_it_has_a_row_in_a_comparison(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "make_executor", lambda *_: Here())  # processes are slow
    run = tmp_path / "study"
    (tmp_path / "c.json").write_text(
        '{"cells": 1, "channels": 2, "batch_size": 20, "final_cells": 1, "stride": 0.3}'
    )
    flags = ["--space", "nasbench201", "--epochs", "1", "--seeds", "0", "--run", run, *ONE]
    asked = ["--methods", "toy,random", "--search-config", tmp_path / "c.json"]
    assert call("compare", stripes, *flags, *asked) == 0
    table = json.loads((run / "table.json").read_text())
    assert [row["method"] for row in table] == ["toy", "random"]
    of_toy = json.loads((run / "search" / "toy-0" / "config.json").read_text())
    of_random = json.loads((run / "search" / "random-0" / "config.json").read_text())
    assert of_toy["stride"] == 0.3 and "stride" not in of_random


def test_a_program_may_register_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))
    methods.register("again", methods.find("gdas"))
    assert "again" in methods.names() and methods.options_of("again").public == "GDAS"
