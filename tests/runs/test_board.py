"""--tensorboard: event files beside the run, and what a real search leaves for its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import proxnas.runs.tensorboard
from proxnas.cli.main import main
from proxnas.report.page_data import page_data
from proxnas.report.reading import find_runs

SMALL = "--space nasbench201 --cells 1 --channels 2 --batch-size 8 --epochs 2 --threads 1 --quiet"


@pytest.fixture(scope="module")
def run(stripes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of two epochs with event files."""
    pytest.importorskip("tensorboard")
    folder = tmp_path_factory.mktemp("board") / "run"
    assert (
        main(["search", str(stripes), *SMALL.split(), "--run", str(folder), "--tensorboard"]) == 0
    )
    return folder


def test_event_files_hold_the_figures_of_every_epoch(run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard")).Reload()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for name, key in (
        ("train/loss", "train_loss"),
        ("valid/accuracy", "valid_accuracy"),
        ("params", "params"),
    ):
        assert [(e.step, pytest.approx(e.value)) for e in events.Scalars(name)] == [
            (r["epoch"], r[key]) for r in rows
        ]
    assert {f"seconds/{part}" for part in rows[0]["seconds"]} <= set(events.Tags()["scalars"])


def test_the_flag_is_one_of_the_call(run: Path, stripes: Path) -> None:
    assert "tensorboard" not in json.loads((run / "config.json").read_text())
    assert main(["search", str(stripes), *SMALL.split(), "--run", str(run), "--resume"]) == 0


def test_epochs_that_are_run_again_hide_the_first_ones(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from proxnas.runs.loggers import with_loggers
    from proxnas.runs.progress import Silent

    for start, end, value in (
        (1, 3, 0.25),
        (2, 2, 0.75),
    ):  # stopped after three epochs, resumed from the first
        with with_loggers(Silent(), tmp_path, ["tensorboard"]) as progress:
            for epoch in range(start, end + 1):
                progress.begin(epoch, 3, 1)
                progress.step(0)
                progress.epoch({"epoch": epoch, "valid_loss": value, "seconds": {"other": 1.0}})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("valid/loss")] == [
        (1, 0.25),
        (2, 0.75),
    ]


def test_without_the_extra_one_line_says_so(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(proxnas.runs.tensorboard, "find_spec", lambda name: None)
    argv = ["search", str(stripes), *SMALL.split(), "--run", str(tmp_path / "run"), "--tensorboard"]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "proxnas: error: --tensorboard: not installed: pip install 'proxnas[tensorboard]'"
    )
    assert error.count("\n") == 1 and not (tmp_path / "run").exists()


def test_a_real_search_is_replayed(run: Path) -> None:
    (shown,) = page_data(find_runs(run))["runs"]
    (group,) = shown["replay"]["groups"]
    assert shown["replay"]["epochs"] == [1, 2] and len(shown["replay"]["cells"]) == 2
    assert group["edges"] == ["input → 1", "input → 2", "1 → 2", "input → 3", "1 → 3", "2 → 3"]
    assert len(group["A"]) == 2 and len(group["selected"][0]) == 6
    assert {chart["title"] for chart in shown["charts"]} >= {"accuracy", "loss", "changes of A_bar"}
