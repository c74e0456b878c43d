"""What candidates cost: by hand, for cells, recurrent cells and any Choice; and costs from a
file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.core.choice import Choice
from proxnas.core.groups import Group
from proxnas.core.size.complexity import R, R_gradient, parameter_costs, shares
from proxnas.core.size.costs import candidate_costs, entries
from proxnas.core.size.materialised import materialised
from proxnas.core.size.stopwatch import Stopwatch, Torch
from proxnas.core.supernet import Supernet
from proxnas.searching.job import Search
from proxnas.searching.sizing import read_costs
from support.searches import spy_on_paths

CPU = torch.device("cpu")
BY_TORCH = Stopwatch(Torch(CPU)).added


def net_of_two() -> Supernet:
    """Two Choices of one row, at 4 and at 2 units; a product of n units has n * n weights and
    multiply-adds."""

    def choice(n: int) -> Choice:
        candidates = {
            "skip": nn.Identity(),
            "one": nn.Linear(n, n, bias=False),
            "none": nn.Identity(),
        }
        two = nn.Sequential(nn.Linear(n, n, bias=False), nn.Linear(n, n, bias=False))
        return Choice(candidates | {"two": two}, share="c")

    return Supernet(nn.Sequential(choice(4), nn.Linear(4, 2, bias=False), choice(2)))


def test_p_is_the_mean_over_the_places_of_an_operation() -> None:
    net, x = net_of_two(), torch.zeros(3, 4)
    expected = torch.tensor(
        [0.0, 10.0, 0.0, 20.0], dtype=torch.float64
    )  # (16 + 4) / 2 and twice that
    assert torch.equal(candidate_costs(net, x, "flops", BY_TORCH)["c"], expected)
    assert torch.equal(parameter_costs(net)["c"], expected / 30)


def test_R_by_hand() -> None:
    """p = (0, 10, 0, 20), p_bar = 30; a = (0.5, 0.5, 1, 0.9)."""
    costs = shares({"c": torch.tensor([0.0, 10.0, 0.0, 20.0], dtype=torch.float64)})
    A = {"c": torch.tensor([[0.5, 0.5, 1.0, 0.9]], dtype=torch.float64)}
    assert R(A, costs).item() == pytest.approx(1 / 3 * 0.25 + 2 / 3 * 0.81)
    assert R_gradient(A, costs)["c"].tolist()[0] == pytest.approx([0, 2 / 3 * 0.5, 0, 4 / 3 * 0.9])


def test_costs_of_zero_give_no_R() -> None:
    costs = shares({"c": torch.zeros(4, dtype=torch.float64)})
    assert R({"c": torch.ones(1, 4, dtype=torch.float64)}, costs).item() == 0.0


def test_entries_are_sums_over_the_places_of_a_row() -> None:
    net, x = net_of_two(), torch.zeros(3, 4)
    for of in ("params", "flops"):
        assert entries(net, x, of, BY_TORCH)["c"].tolist() == [[0.0, 20.0, 0.0, 40.0]]


def test_a_module_that_runs_twice_has_its_weights_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.choice = Choice({"a": nn.Linear(2, 2, bias=False)})

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.choice(self.choice(x))
            return y

    net = Supernet(Twice())
    found = [
        entries(net, torch.zeros(1, 2), of, BY_TORCH)["choice"].item() for of in ("params", "flops")
    ]
    assert found == [4, 8]


def test_seconds_are_measured_once_for_each_operation_and_shape() -> None:
    calls: list[tuple[int, ...]] = []

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(tuple(x.shape))
            return x

    def choice(name: str) -> Choice:
        return Choice({"skip": nn.Identity(), "slow": Slow()}, share=name)

    net = Supernet(nn.Sequential(choice("a"), choice("a"), choice("b")))
    watch = Stopwatch(Torch(CPU), lambda run: [float(run() is None)])
    entries(net, torch.zeros(2, 3), "latency", watch.added)
    # once in the pass that meets the places, at three of them
    assert calls == [(2, 3)]


def test_a_shadow_becomes_a_module_that_runs() -> None:
    with torch.device("meta"):
        shadow = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).eval()
    output = materialised(shadow, CPU)(torch.rand(1, 2, 4, 4))
    assert output.isfinite().all() and output.abs().max() > 0


@pytest.mark.parametrize(
    "flags",
    [
        ("--cost", "flops"),
        ("--cost", "latency", "--latency-by", "torch"),
        ("--cost", "flops", "--space", "nasbench201"),
    ],
)
def test_a_search_has_the_costs_that_are_asked_for(
    make_search: Callable[..., Search], flags: tuple[str, ...]
) -> None:
    method: Any = make_search("--eta", "1", *flags).method
    found = method.penalty.costs
    for group, costs in found.items():
        assert float(costs.sum()) == pytest.approx(1.0)
        free = [
            op
            for op, cost in zip(method.net.groups[group].candidates, costs, strict=True)
            if cost == 0
        ]
        assert ("none" in free) == ("none" in method.net.groups[group].candidates)
    if "flops" in flags and "normal" in found:
        names = method.net.groups["normal"].candidates
        cost = dict(zip(names, found["normal"].tolist(), strict=True))
        assert (
            cost["skip_connect"]
            == 0
            < cost["dil_conv_3x3"]
            < cost["sep_conv_3x3"]
            < cost["sep_conv_5x5"]
        )


def test_activations_cost_nothing_but_time(make_search: Callable[..., Search]) -> None:
    search = make_search("--space", "rnn", "--eta", "1", "--cost", "latency")
    method: Any = search.method
    assert method.penalty.costs["recurrent"].any()
    search.step()
    for cost in ("params", "flops"):
        with pytest.raises(InputError, match=r"eta 1\.0: does nothing for nasp in space rnn"):
            make_search("--space", "rnn", "--eta", "1", "--cost", cost)


@pytest.mark.parametrize(("at", "explore"), [("A_bar", "0"), ("A_bar", "0.5"), ("A", "0")])
def test_R_presses_what_a_step_selects_or_all_of_A(
    make_search: Callable[..., Search], at: str, explore: str
) -> None:
    plain = (
        "--arch-optimizer",
        "sgd",
        "--look-ahead",
        "0",
        "--arch-learning-rate",
        "1e-9",
        "--eta",
        "1e6",
    )
    method: Any = make_search(*plain, "--eta-at", at, "--explore", explore).method
    before, paths = method.A["normal"].clone(), spy_on_paths(method.net)
    method.step()
    path = paths[0]["normal"]  # where line 4 takes the gradient
    pressed = (before - method.A["normal"]) > 1e-6
    costly = (method.penalty.costs["normal"] > 0).expand_as(pressed)
    assert torch.equal(pressed, costly if at == "A" else costly & (path != 0))


def test_what_costs_nothing_is_said(
    stripes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "free.json").write_text(json.dumps(dict.fromkeys(OPS, 0)))
    size = [
        "--cells",
        "1",
        "--channels",
        "2",
        "--epochs",
        "1",
        "--threads",
        "1",
        "--run",
        str(tmp_path / "run"),
    ]
    words = [
        "search",
        str(stripes),
        "--space",
        "nasbench201",
        "--eta",
        "1",
        "--cost",
        str(tmp_path / "free.json"),
    ]
    assert main([*words, *size, "--quiet"]) == 0
    assert "did nothing" in capsys.readouterr().err


# ---------------------------------------------------------------- files

OPS = ("skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
GROUPS = {
    "normal": Group(("skip_connect", "conv", "none")),
    "reduce": Group(("skip_connect", "pool")),
}


def write(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "costs.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_costs_by_operation_and_by_group(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"skip_connect": 0, "pool": 1, "normal": {"conv": 4, "skip_connect": 0.5}}
    )
    found = read_costs(path, GROUPS)
    assert {name: p.tolist() for name, p in found.items()} == {
        "normal": [0.5, 4.0, 0.0],
        "reduce": [0.0, 1.0],
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            {"skip_connect": 0, "pool": 1, "conf": 2},
            "unknown operation or group 'conf': did you mean conv",
        ),
        ({"skip_connect": 0, "pool": 1}, "no cost for conv of group normal"),
        (
            {"skip_connect": 0, "pool": -1, "conv": 1},
            "pool costs -1: give a finite number of at least 0",
        ),
        ({"skip_connect": 0, "pool": "1", "conv": 1}, 'pool costs "1"'),
        ({"skip_connect": True, "pool": 1, "conv": 1}, "skip_connect costs true"),
        ('{"skip_connect": 0, "pool": Infinity, "conv": 1}', "pool costs Infinity"),
        ('{"skip_connect": 0, "pool": NaN, "conv": 1}', "pool costs NaN"),
        ({"skip_connect": 0, "pool": 1, "normal": 3}, "group normal has 3"),
        ({"normal": {"pool": 1}}, "group normal: unknown operation 'pool'"),
        ([1, 2], "not a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_costs(write(tmp_path, value), GROUPS)
    assert (
        said in str(caught.value)
        and "costs.json" in str(caught.value)
        and "\n" not in str(caught.value)
    )


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "digits", "--eta", "1", "--cost", "no/such.json"]) == 2
    assert "--cost no/such.json: cannot be read" in capsys.readouterr().err
