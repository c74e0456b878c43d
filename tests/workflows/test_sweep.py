"""`proxnas sweep`: values side by side, nothing run twice, tables, front and figures of what there
is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.errors import InputError, in_flags
from proxnas.common.words import words_for
from proxnas.report.sweep_report import with_front
from proxnas.workflows import study
from proxnas.workflows.sweep import SweepConfig, search_values
from support.here import Here

SIZES = {"cells": 1, "channels": 2, "batch_size": 20, "final_cells": 1, "final_channels": 2}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    executor = Here()
    monkeypatch.setattr(study, "make_executor", lambda *_: executor)
    return executor


@pytest.fixture
def argv(stripes: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "sizes.json").write_text(json.dumps(SIZES))
    words = ["sweep", str(stripes), "--space", "nasbench201", "--epochs", "1"]
    return [
        *words,
        "--search-config",
        str(tmp_path / "sizes.json"),
        "--run",
        str(tmp_path / "run"),
        "--quiet",
    ]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_sweep_over_eta(
    here: Here, argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv, "--eta", "10,0", "--seeds", "0,1"]) == 0
    rows = read(tmp_path / "run" / "table.json")
    assert [(row["eta"], row["method"], row["space"], row["seeds"]) for row in rows] == [
        (0.0, "nasp", "nasbench201", [0, 1]),
        (10.0, "nasp", "nasbench201", [0, 1]),
    ]
    results = [
        read(tmp_path / "run" / "search" / f"eta-10-{seed}" / "result.json") for seed in (0, 1)
    ]
    assert rows[1]["params_mean"] == sum(result["params"] for result in results) / 2
    assert rows[1]["mean"] == pytest.approx(sum(result["valid_accuracy"] for result in results) / 2)
    assert rows[1]["params_std"] >= 0 and any(row["front"] for row in rows)
    assert read(tmp_path / "run" / "search" / "eta-10-1" / "config.json")["eta"] == 10
    assert "| eta-10 |" in capsys.readouterr().out
    for name in (
        "table.md",
        "table.csv",
        "penalty.svg",
        "penalty.png",
        "pareto.svg",
        "pareto.png",
        "result.json",
    ):
        assert (tmp_path / "run" / name).stat().st_size > 0
    assert len(here.ran) == 4
    assert main([*argv, "--eta", "10,0", "--seeds", "0,1"]) == 0
    assert len(here.ran) == 4  # nothing twice
    assert main([*argv, "--eta", "0,1", "--seeds", "0,1"]) == 2


def test_a_sweep_over_limits(here: Here, argv: list[str], tmp_path: Path) -> None:
    assert main([*argv, "--max-params", "5k,2.5k", "--seeds", "3"]) == 0
    rows = read(tmp_path / "run" / "table.json")
    assert [(row["limit"], row["of"]) for row in rows] == [(2500, "params"), (5000, "params")]
    assert all(row["params_mean"] <= row["limit"] for row in rows)


def test_an_impossible_limit_is_said_before_the_folder_is_made(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv, "--max-params", "5k,20"]) == 2
    assert "--max-params 20: the smallest network" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_front_has_what_no_other_beats_in_size_and_figure() -> None:
    points = [(1, 0.5), (2, 0.7), (3, 0.6), (2, 0.6), (4, 0.7), (5, 0.8), (2, 0.7)]
    rows = [
        {"figure": "valid_accuracy", "params_mean": size, "mean": mean} for size, mean in points
    ]
    assert [row["front"] for row in with_front(rows)] == [
        True,
        True,
        False,
        False,
        False,
        True,
        True,
    ]
    rows = [row | {"figure": "valid_perplexity"} for row in rows]
    assert [row["front"] for row in with_front(rows)] == [
        True,
        False,
        False,
        False,
        False,
        False,
        False,
    ]
    assert with_front([]) == []


def test_a_search_of_a_sweep() -> None:
    config = SweepConfig(data="digits", max_flops="20M,5M", cost="params", epochs=2)
    assert [setting.name for setting in config.settings()] == ["max-flops-5M", "max-flops-20M"]
    words = ["search", *words_for(search_values(config, "max-flops-5M", 3))]
    assert words == [
        *("search", "digits", "--space=darts7", "--method=nasp", "--wiring=free", "--epochs=2"),
        *("--max-flops=5M", "--cost=params", "--seed=3"),
    ]
    assert parse_search(words[1:]).max_flops == "5M"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"eta": "0,x"}, "--eta x: give numbers of at least 0"),
        ({"eta": "0,-1"}, "--eta -1: give numbers of at least 0"),
        ({"eta": "1,1.0"}, "--eta 1,1.0: name each value once"),
        ({"max_params": "5k,many"}, "--max-params many: give a number above 0"),
        ({"max_latency": "2"}, "--max-latency 2: give a time"),
        ({"eta": "0", "max_params": "5k"}, "give one of --eta, --max-params"),
        ({"method": "nsap"}, "unknown --method 'nsap': did you mean"),
    ],
)
def test_bad_values_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        SweepConfig(data="digits", **values)
    assert in_flags(caught.value).startswith(said)


def test_values_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "digits"]) == 2
    assert "for example --eta 0,0.1,1,10" in capsys.readouterr().err
