"""Latency by tables: measured with a clock that counts weights, so that everything is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.errors import InputError
from proxnas.common.onnx_runtime import onnx_available
from proxnas.core.choice import Source
from proxnas.core.size.complexity import parameters
from proxnas.core.size.latency_file import find_table, kept_folder, read_table
from proxnas.core.size.latency_table import About, fitted, rank_correlation
from proxnas.core.size.stopwatch import Onnx, Run, Stopwatch, Torch, choose
from proxnas.domains.images import task
from proxnas.domains.images.data.images import load
from proxnas.domains.images.spaces.resnet import GROUPS
from proxnas.searching.job import Search

CPU = torch.device("cpu")
CALL, EACH = 1e-5, 1e-8
"""Seconds of a call, and of a weight."""


class Counted:
    """A run that takes as long as its module has weights."""

    def __init__(self, module: nn.Module) -> None:
        self.seconds = CALL + EACH * parameters(module)

    def __call__(self) -> None:
        """Nothing: nobody waits."""


class Counting:
    """A runtime of such runs."""

    by, version, device = "torch", "counter 1", CPU

    def prepare(self, module: nn.Module, source: Source) -> Run:
        return Counted(module)


def count(run: Any) -> list[float]:
    return [run.seconds]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A table that was built by counting weights; meanwhile all networks are timed so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for module in ("proxnas.domains.images.task", "proxnas.core.size.latency_file"):
            patch.setattr(f"{module}.choose", lambda by, device: Counting())
        patch.setattr(task, "Stopwatch", partial(Stopwatch, time=count))
        patch.setattr(task, "ROUNDS", 1)
        assert call(*BUILD) == 0
        (path,) = kept_folder().iterdir()
        yield path


def call(*words: str) -> int:
    return main(["latency", *words])


BUILD = ("build", "digits", "--space", "resnet", "--final-channels", "8", "--threads", "1")
BUILD += ("--networks", "3")
SEARCH = ("--space", "resnet", "--final-channels", "8", "--channels", "2", "--threads", "1")


def search_by(*flags: str) -> Search:
    data = "pydocs" if "rnn" in flags else "digits"
    return Search(parse_search([data, *flags]), load("digits"))


def source(*shape: int) -> Source:
    return Source.of((torch.zeros(shape),), {})


def test_an_operation_is_its_time_without_the_call() -> None:
    watch, conv = Stopwatch(Counting(), count), nn.Conv2d(2, 3, 1, bias=False)
    assert watch.seconds(conv, source(1, 2, 4, 4)) == pytest.approx(CALL + 6 * EACH)
    assert watch.added(conv, source(1, 2, 4, 4)) == pytest.approx(6 * EACH)
    assert watch.added(nn.Identity(), source(1, 2, 4, 4)) == 0


def test_the_best_of_several_measurements_counts_and_of_one_the_lower_quartile() -> None:
    times = iter([[5.0, 3.0, 9.0, 4.0], [8.0] * 4, [2.0, 2.5, 7.0, 7.0]])
    watch, module = Stopwatch(Counting(), lambda run: next(times)), nn.Identity()
    found = [watch.seconds(module, source(1)) for _ in range(3)]
    assert found == [4.0, 4.0, 2.5]


def test_a_fit_of_a_line_and_of_what_is_none() -> None:
    line = fitted([1.0, 2.0, 4.0], [5.0, 7.0, 11.0])
    assert (line.fixed, line.scale) == pytest.approx((3.0, 2.0))
    falling = fitted([1.0, 2.0], [5.0, 4.0])
    assert falling.scale > 0 and falling.fixed == 0
    assert fitted([0.0, 0.0], [3.0, 5.0])(0.0) == 4.0


def test_ranks_with_equals() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(0.866, abs=1e-3)
    assert rank_correlation([1, 1], [1, 2]) == 0


def test_a_table_predicts_what_adds_up(counted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = read_table(counted, GROUPS)
    assert table.quality.networks == 3 and table.fit.scale == pytest.approx(1)
    assert call("show") == 0
    listed = capsys.readouterr().out
    assert counted.name in listed and "rank correlation 1.00, mean error 0.0%" in listed
    assert call("show", str(counted)) == 0
    shown = capsys.readouterr().out
    assert "body 2" in shown and "bottleneck_2_se" in shown


def test_a_limit_goes_by_the_kept_table(counted: Path) -> None:
    search, table = search_by("--max-latency", "1ms", *SEARCH), read_table(counted, GROUPS)
    assert search.budget is not None
    for name, matrix in table.entries.items():
        assert torch.allclose(search.budget.sizes.entries[name], matrix)
    A_bar = search.method.architecture()[1]
    assert search.budget.sizes(A_bar) == pytest.approx(table.seconds(A_bar))
    network = search.final_network(search.space.genotype(A_bar))
    assert table.seconds(A_bar) == pytest.approx(CALL + EACH * parameters(network))


def test_R_and_expected_costs_go_by_the_table(counted: Path) -> None:
    expected = read_table(counted, GROUPS).operations.total["body"].mean(0)
    by = ("--cost", "latency", "--latency-by", str(counted), *SEARCH)
    nasp: Any = search_by("--eta", "1", *by).method
    gates: Any = search_by("--method", "proxyless", "--expected-cost", "1", *by).method
    for costs in (nasp.penalty.costs, gates.costs):
        assert torch.allclose(costs["body"], expected / expected.sum())


ABOUT = About("resnet", (1, 8, 8), 10, 1, 8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"channels": 4}, "was built for channels 8, not for 4"),
        ({"space": "mobile"}, "was built for space resnet, not for mobile"),
        ({"image": (3, 8, 8)}, "was built for image 1x8x8, not for 3x8x8"),
    ],
)
def test_a_table_for_something_else_is_refused(
    counted: Path, change: dict[str, Any], said: str
) -> None:
    wanted = replace(ABOUT, **change)
    with pytest.raises(InputError, match=said):
        find_table(str(counted), wanted, GROUPS, CPU)
    with pytest.raises(InputError, match="there is none for this space"):
        find_table("table", wanted, GROUPS, CPU)
    assert find_table("auto", wanted, GROUPS, CPU) is None
    for by in ("table", "auto", str(counted)):
        assert find_table(by, ABOUT, GROUPS, CPU) is not None
    assert find_table("torch", ABOUT, GROUPS, CPU) is None


def test_a_table_of_another_machine_is_refused(counted: Path, tmp_path: Path) -> None:
    for name, value in {"threads": 7, "runtime": "counter 2", "processor": "an abacus"}.items():
        data = json.loads(counted.read_text())
        data["machine"][name] = value
        other = tmp_path / "other.json"
        other.write_text(json.dumps(data))
        with pytest.raises(InputError, match=f"was built for {name} {value}, not for"):
            find_table(str(other), ABOUT, GROUPS, CPU)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2}',
        '{"schema": 1, "kind": "latency", "by": "tea", "operations": [1]}',
    ],
)
def test_what_is_no_table_is_said(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    assert call("show", str(path)) == 2
    assert "no table of latencies" in capsys.readouterr().err


def test_a_table_without_an_operation_is_refused(counted: Path, tmp_path: Path) -> None:
    data = json.loads(counted.read_text())
    del data["operations"][3]
    path = tmp_path / "table.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="has no row for sep_conv_5x5 on edge 0 of entry"):
        read_table(path, GROUPS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "usage: proxnas latency"),
        (("bild",), "build"),
        (("build", "pydocs", "--space", "rnn"), "is for spaces of images"),
        (("build",), "DATA is missing"),
        (("build", "digits", "--file", "table.txt"), "ends in .json"),
    ],
)
def test_words_that_are_wrong(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words) == (2 if words else 0)
    printed = capsys.readouterr()
    assert said in printed.err + printed.out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--latency-by", "torch"), "does nothing for nasp without"),
        (("--latency-by", "tea", "--max-latency", "1ms"), "give auto, onnx, torch, table"),
        (("--latency-by", "none.json", "--max-latency", "1ms"), "no table of latencies"),
    ],
)
def test_flags_that_are_wrong(flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        search_by(*flags)


def test_text_is_timed_by_torch() -> None:
    with pytest.raises(InputError, match="is for images"):
        search_by("--space", "rnn", "--max-latency", "1s", "--latency-by", "onnx")


def test_what_is_deployed_is_measured_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = "proxnas.core.size.stopwatch.onnx_available"
    monkeypatch.setattr(place, lambda: True)
    assert choose("auto", CPU) == Onnx() and choose("torch", CPU) == Torch(CPU)
    assert choose("auto", torch.device("meta")).by == "torch"
    monkeypatch.setattr(place, lambda: False)
    assert choose("auto", CPU) == Torch(CPU)
    with pytest.raises(InputError, match=r"latency_by onnx: needs more packages"):
        choose("onnx", CPU)


@pytest.mark.parametrize("by", ["torch", "onnx"])
def test_a_runtime_runs(by: str) -> None:
    if by == "onnx" and not onnx_available():
        pytest.skip("the extra onnx is not installed")
    with torch.device("meta"):
        module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
        x = Source.of((torch.empty(1, 2, 6, 6),), {})
    found: Any = choose(by, CPU).prepare(module, x)()
    assert (found[0] if by == "onnx" else found[0].numpy()).shape[-3:] == (3, 4, 4)
