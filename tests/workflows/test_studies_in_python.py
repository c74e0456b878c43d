"""`proxnas.compare` and `proxnas.sweep` in Python: what the commands make of the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import proxnas
from proxnas.cli.main import main
from proxnas.workflows import study
from support.commands import stripes
from support.here import Here

SIZES = {"cells": 1, "channels": 2, "batch_size": 20, "final_cells": 1, "final_channels": 2}
SMALL: dict[str, Any] = {"space": "nasbench201", "epochs": 1, "search_config": SIZES}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    executor = Here()
    monkeypatch.setattr(study, "make_executor", lambda *_: executor)
    monkeypatch.setattr("proxnas.report.comparison_figures.draw_comparison", lambda *_: [])
    monkeypatch.setattr("proxnas.report.sweep_report.draw_sweep", lambda *_: [])
    return executor


def figures(folder: Path) -> list[dict[str, Any]]:
    """The rows of a table without what depends on the clock and on where the data are."""
    rows = json.loads((folder / "table.json").read_text())
    return [
        {name: row[name] for name in row if "seconds" not in name and name != "data"}
        for row in rows
    ]


def test_arrays_are_compared_as_the_command_compares_their_file(here: Here, tmp_path: Path) -> None:
    asked = {"seeds": [2], **SMALL}
    found = proxnas.compare(stripes(80), ["nasp", "pa"], run=tmp_path / "python", **asked)
    assert [row["method"] for row in found.rows] == ["nasp", "pa"]
    assert found.best["mean"] == max(row["mean"] for row in found.rows)
    assert found.table == (tmp_path / "python" / "table.md").read_text()
    assert found.report().stat().st_size > 10_000 and not found.failed
    data, sizes = (str(found.path / name) for name in ("data.npz", "search_config.json"))
    words = ["--methods=nasp,pa", "--seeds=2", "--space=nasbench201", "--epochs=1"]
    words += [f"--search-config={sizes}", f"--run={tmp_path / 'command'}", "--quiet"]
    assert main(["compare", data, *words]) == 0
    assert figures(tmp_path / "command") == figures(found.path)
    here.ran.clear()
    again = proxnas.compare(stripes(80), ["nasp", "pa"], run=found.path, **asked)
    assert (here.ran, again.rows) == ([], found.rows)


def test_a_sweep_takes_lists_and_keeps_its_data(tmp_path: Path) -> None:
    asked = {"eta": [1, 0.5], "seeds": [3], "run": tmp_path / "run", **SMALL}
    found = proxnas.sweep(stripes(80), **asked)
    assert [(row["eta"], row["seeds"]) for row in found.rows] == [(0.5, [3]), (1.0, [3])]
    before = (tmp_path / "run" / "data.npz").read_bytes()
    with pytest.raises(proxnas.InputError, match="holds other data than these: give force"):
        proxnas.sweep(stripes(84), **asked)
    assert (tmp_path / "run" / "data.npz").read_bytes() == before


def test_errors_name_the_field(tmp_path: Path) -> None:
    for call, said in (
        (lambda: proxnas.compare("digits", ["nasb"]), "unknown methods 'nasb'"),
        (lambda: proxnas.compare("digits", seeds=[1, 1]), "seeds 1,1: name each seed once"),
        (lambda: proxnas.compare("digits", tau=1), "unknown option 'tau'"),
        (lambda: proxnas.sweep("digits"), "give one of eta, max_params, max_flops, max_latency"),
        (lambda: proxnas.sweep("digits", eta=[-1]), "eta -1: give numbers"),
    ):
        with pytest.raises(proxnas.InputError) as caught:
            call()
        assert str(caught.value).startswith(said)


def test_what_failed_is_told_and_the_rest_is_there(tmp_path: Path) -> None:
    broken = tmp_path / "run" / "search" / "nasp-0"
    broken.mkdir(parents=True)
    (broken / "checkpoint.pt").write_text("whose?")
    found = proxnas.compare(stripes(80), "nasp,pa", seeds=[0], run=tmp_path / "run", **SMALL)
    assert list(found.failed) == ["nasp seed 0"]
    assert found.best["method"] == "pa"
