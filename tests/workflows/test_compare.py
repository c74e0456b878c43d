"""`proxnas compare`: every method and seed in a folder of its own, nothing run twice, tables of
what there is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.config_file import read_values
from proxnas.common.errors import InputError, in_flags
from proxnas.common.words import words_for
from proxnas.methods import METHODS
from proxnas.runs.executors.tasks import RunTask, reason
from proxnas.searching.options import SearchOptions
from proxnas.workflows import study
from proxnas.workflows.compare import CompareConfig, claiming, search_values
from proxnas.workflows.study_options import train_argv
from support.here import Here

SIZES = {"cells": 1, "channels": 2, "batch_size": 20, "final_cells": 1, "final_channels": 2}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Here]:
    """here(...) -> the executor that comparisons take from now on."""

    def use(stop_after: int | None = None) -> Here:
        executor = Here(stop_after)
        monkeypatch.setattr(study, "make_executor", lambda *_: executor)
        monkeypatch.setattr(
            "proxnas.report.comparison_figures.draw_comparison", lambda *_: []
        )  # tested elsewhere, and slow
        return executor

    return use


@pytest.fixture
def argv(stripes: Path, tmp_path: Path) -> list[str]:
    """A comparison of two methods and two seeds, as small as can be."""
    (tmp_path / "sizes.json").write_text(json.dumps(SIZES))
    words = [
        "compare",
        str(stripes),
        "--space",
        "nasbench201",
        "--methods",
        "nasp,pa-2nd",
        "--seeds",
        "0,1",
    ]
    place = [
        "--search-config",
        str(tmp_path / "sizes.json"),
        "--run",
        str(tmp_path / "run"),
        "--quiet",
    ]
    return [*words, "--epochs", "1", *place]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def files(folder: Path) -> dict[str, int]:
    """Everything in the runs -> when it was written."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): path.stat().st_mtime_ns for path in found}


def test_every_method_and_seed_gets_a_folder_and_a_place_in_the_tables(
    here: Callable[..., Here], argv: list[str], tmp_path: Path, capsys: Any
) -> None:
    executor = here()
    assert main(argv) == 0
    assert executor.ran == ["nasp seed 0", "pa-2nd seed 0", "nasp seed 1", "pa-2nd seed 1"]
    rows = read(tmp_path / "run" / "table.json")
    assert [(row["method"], row["seeds"], row["order"]) for row in rows] == [
        ("nasp", [0, 1], 1),
        ("pa-2nd", [0, 1], 2),
    ]
    assert all(
        None not in (row["mean"], row["std"], row["params_mean"], row["seconds_mean"])
        for row in rows
    )
    stored = read_values(tmp_path / "run" / "search" / "pa-2nd-1" / "config.json", SearchOptions)
    assert {key: stored[key] for key in ("method", "order", "seed", "epochs", "channels")} == {
        "method": "pa",
        "order": 2,
        "seed": 1,
        "epochs": 1,
        "channels": 2,
    }
    said = capsys.readouterr().out
    assert (tmp_path / "run" / "table.md").read_text() in said
    assert "it cannot be told" in said


def test_started_again_it_repeats_nothing(
    here: Callable[..., Here], argv: list[str], tmp_path: Path
) -> None:
    argv[argv.index("0,1")] = "0"
    here()
    assert main(argv) == 0
    before = files(tmp_path / "run" / "search")
    assert len(before) > 10
    for extra in ([], ["--resume"]):
        executor = here()
        assert main([*argv, *extra]) == 0
        assert (executor.ran, files(tmp_path / "run" / "search")) == ([], before)
    assert (
        main(["compare", "--run", str(tmp_path / "run"), "--quiet"]) == 0
    )  # the folder knows the rest


def test_stopped_in_the_middle_it_goes_on_there(
    here: Callable[..., Here], argv: list[str], tmp_path: Path, capsys: Any
) -> None:
    here(stop_after=3)
    assert main(argv) == 143
    assert "the same command with --resume goes on" in capsys.readouterr().err
    assert [row["seeds"] for row in read(tmp_path / "run" / "table.json")] == [
        [0, 1],
        [0],
    ]  # as far as it came
    before = files(tmp_path / "run" / "search")
    executor = here()
    assert main([word for word in argv if word != "--quiet"]) == 0
    assert executor.ran == ["pa-2nd seed 1"]
    assert (
        "4/4 pa-2nd seed 1: done" in capsys.readouterr().out
    )  # of all, not of those that were left
    assert {name: files(tmp_path / "run" / "search")[name] for name in before} == before


@pytest.mark.parametrize(
    "extra", [["--epochs", "2"], ["--methods", "nasp"], ["--seeds", "0,2"], ["--space", "darts7"]]
)
def test_flags_that_contradict_are_named(
    here: Callable[..., Here], argv: list[str], extra: list[str], tmp_path: Path, capsys: Any
) -> None:
    here(stop_after=0)
    assert main(argv) == 143
    before = (tmp_path / "run" / "config.json").read_bytes()
    capsys.readouterr()
    assert main([*argv, *extra]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"proxnas: error: {' '.join(extra)}: the run in {tmp_path / 'run'} was started with"
    )
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_force_begins_anew(here: Callable[..., Here], argv: list[str], tmp_path: Path) -> None:
    here(stop_after=2)
    assert main(argv) == 143
    here(stop_after=1)
    assert main([*argv, "--force", "--epochs", "2"]) == 143
    assert sorted(path.parent.name for path in tmp_path.glob("run/search/*/result.json")) == [
        "nasp-0"
    ]
    assert [row["epochs"] for row in read(tmp_path / "run" / "table.json")] == [2]


def test_all_is_what_the_registry_has_when_it_begins(
    here: Callable[..., Here], argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv[argv.index("nasp,pa-2nd")] = "all"
    here(stop_after=1)
    assert main(argv) == 143
    assert read(tmp_path / "run" / "plan.json") == {"methods": list(METHODS), "seeds": [0, 1]}
    monkeypatch.setitem(METHODS, "newer", METHODS["nasp"])
    executor = here(stop_after=1)
    assert main(argv) == 143
    assert executor.ran == [f"{list(METHODS)[1]} seed 0"]


def search_words(config: CompareConfig, name: str, seed: int) -> list[str]:
    return ["search", *words_for(search_values(config, name, seed))]


def test_all_leaves_out_what_cannot_search_the_space() -> None:
    assert claiming("nasbench201") == list(METHODS)
    assert [name for name in METHODS if name not in claiming("rnn")] == ["bayesnas"]


def test_a_run_that_fails_is_named_and_the_others_are_kept(
    here: Callable[..., Here], argv: list[str], tmp_path: Path, capsys: Any
) -> None:
    broken = tmp_path / "run" / "search" / "nasp-1"
    broken.mkdir(parents=True)
    (broken / "checkpoint.pt").write_text("whose?")
    here()
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert "proxnas: error: 1 of 4 runs failed; nasp seed 1: exit code 2\n" in said
    assert [row["seeds"] for row in read(tmp_path / "run" / "table.json")] == [[0], [0, 1]]
    assert "- nasp seed 1: exit code 2" in (tmp_path / "run" / "table.md").read_text()
    assert not (tmp_path / "run" / "result.json").exists()
    (broken / "checkpoint.pt").unlink()
    executor = here()
    assert main(argv) == 0
    assert executor.ran == ["nasp seed 1"]


def test_cells_are_trained_and_tested(
    here: Callable[..., Here], argv: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.json").write_text(json.dumps({"epochs": 1, "cells": 1, "channels": 2}))
    argv[argv.index("0,1")] = "3"
    executor = here()
    assert main([*argv, "--train", "quick", "--train-config", str(tmp_path / "train.json")]) == 0
    assert executor.ran == [
        "nasp seed 3",
        "pa-2nd seed 3",
        "train nasp seed 3",
        "train pa-2nd seed 3",
    ]
    row, _ = read(tmp_path / "run" / "table.json")
    result = read(tmp_path / "run" / "train" / "nasp-3" / "result.json")
    assert (row["figure"], row["mean"]) == ("test_accuracy", result["test_accuracy"])
    assert row["params_mean"] == result["params"]
    assert "Test error (%)" in (tmp_path / "run" / "table.md").read_text()


def test_recurrent_cells_are_compared_by_perplexity(
    here: Callable[..., Here], tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("a b c d e f g h\nb d f h a c e g\n" * 40)
    (tmp_path / "s.json").write_text(
        json.dumps({"units": 4, "final_units": 4, "batch_size": 4, "bptt": 8})
    )
    (tmp_path / "t.json").write_text(
        json.dumps({"units": 4, "epochs": 1, "batch_size": 4, "bptt": 8})
    )
    words = [
        "compare",
        str(tmp_path / "words.txt"),
        "--space",
        "rnn",
        "--methods",
        "nasp",
        "--seeds",
        "0",
    ]
    files = [
        "--search-config",
        str(tmp_path / "s.json"),
        "--train-config",
        str(tmp_path / "t.json"),
    ]
    here()
    assert (
        main(
            [
                *words,
                *files,
                "--epochs",
                "1",
                "--train",
                "quick",
                "--run",
                str(tmp_path / "run"),
                "--quiet",
            ]
        )
        == 0
    )
    (row,) = read(tmp_path / "run" / "table.json")
    found = read(tmp_path / "run" / "train" / "nasp-0" / "result.json")["test_perplexity"]
    assert (row["figure"], row["mean"], row["ops"], row["nodes"]) == (
        "test_perplexity",
        found,
        4,
        8,
    )


# what is asked for


def config(**values: Any) -> CompareConfig:
    return CompareConfig(**{"data": "digits", "space": "nasbench201"} | values)


def test_a_search_is_asked_for_what_its_method_uses(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"eta": 0.5, "channels": 4, "skip_broken": true}')
    asked = config(
        search_config=str(tmp_path / "c.json"),
        preset="paper",
        epochs=3,
        device="cpu",
        table="t.csv",
    )
    common = ["search", "digits", "--space=nasbench201"]
    rest = ["--refine=0", "--epochs=3", "--table=t.csv"]
    end = ["--channels=4", "--skip-broken", "--seed=7", "--device=cpu"]
    assert search_words(asked, "darts-1st", 7) == [*common, "--method=darts-1st", *rest, *end]
    more = ["--order=2", "--preset=paper", "--eta=0.5"]
    assert search_words(asked, "pa-2nd", 7) == [*common, "--method=pa", *rest, *more, *end]
    parse_search(search_words(asked, "pa-2nd", 7)[1:])


def test_a_training_reads_the_words_of_its_search(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"tokens": "char", "units": 8}')
    (tmp_path / "t.json").write_text('{"units": 4}')
    files = {"search_config": str(tmp_path / "s.json"), "train_config": str(tmp_path / "t.json")}
    asked = config(data="pydocs", space="rnn", train="quick", **files)
    words = [
        "train",
        "cell",
        "pydocs",
        "--protocol=quick",
        "--seed=5",
        "--tokens=char",
        "--units=4",
    ]
    assert train_argv(asked, Path("cell"), 5) == words


def test_three_seeds_unless_told() -> None:
    assert config(seed=5).all_seeds() == [5, 6, 7]
    assert config(seed=5, seeds="1,9").all_seeds() == [1, 9]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"space": "nasbench"}, "unknown --space 'nasbench': did you mean nasbench201"),
        ({"methods": "nasp,dart-1st"}, "unknown --methods 'dart-1st': did you mean darts-1st"),
        ({"methods": "gdas-2nd"}, "unknown --methods 'gdas-2nd'"),
        ({"methods": "nasp,nasp"}, "--methods nasp,nasp: name each method once"),
        ({"seeds": "0;1"}, "--seeds '0;1': give whole numbers"),
        ({"seeds": "1,1"}, "--seeds 1,1: name each seed once"),
        ({"epochs": -1}, "--epochs -1: give a number"),
        ({"minutes": -1.0}, "--minutes -1.0: give a number"),
        ({"workers": 0}, "--workers 0: give a number from 1"),
        ({"train": "ptb"}, "--train ptb: choose quick, cifar"),
        ({"train_config": "x.json"}, "--train-config x.json: needs --train"),
        ({"resume": True, "force": True}, "--force True: give either"),
    ],
)
def test_bad_values_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        config(**values)
    assert in_flags(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (
            ["--methods", "bayesnas", "--space", "rnn"],
            "--method bayesnas: cannot search recurrent cells",
        ),
        (["--table", "none.csv"], "none.csv: cannot be read"),
        (["--search-config", "seed.json"], "--search-config seed.json: --seed is not for there"),
        (["--search-config", "bad.json"], "--batch-size 0: give a number"),
        (["--train", "quick", "--train-config", "bad.json"], "--batch-size 0: give a number"),
    ],
)
def test_what_a_run_would_refuse_is_said_before_the_folder_is_made(
    argv: list[str],
    tmp_path: Path,
    extra: list[str],
    said: str,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seed.json").write_text('{"seed": 3}')
    (tmp_path / "bad.json").write_text('{"batch_size": 0}')
    assert main([*argv, *extra]) == 2
    assert capsys.readouterr().err.startswith(f"proxnas: error: {said}")
    assert not (tmp_path / "run").exists()


def test_data_is_needed(capsys: Any) -> None:
    assert main(["compare"]) == 2
    assert capsys.readouterr().err.startswith("proxnas: error: DATA is missing")


# with real workers


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 240
    while not ready():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.01)


@pytest.mark.slow
def test_killed_and_stopped_and_started_again_it_loses_and_repeats_nothing(
    argv: list[str], tmp_path: Path
) -> None:
    """SIGKILL during the first search, SIGTERM during the second; each run ends as one that was
    left alone."""
    run, epochs = tmp_path / "run", 6
    argv[argv.index("--epochs") + 1] = str(epochs)
    argv[argv.index("0,1")] = "0"
    command = [sys.executable, "-m", "proxnas", *argv, "--threads", "1"]

    def lines(name: str) -> int:
        path = run / "search" / name / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def end(name: str, signum: signal.Signals) -> int:
        with subprocess.Popen(command) as process:
            wait_for(lambda: lines(name) > 0, process)
            os.kill(process.pid, signum)
        assert not (run / "search" / name / "result.json").exists()
        return process.returncode

    assert end("nasp-0", signal.SIGKILL) == -signal.SIGKILL
    assert end("pa-2nd-0", signal.SIGTERM) == 143
    first = files(run / "search" / "nasp-0")
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert files(run / "search" / "nasp-0") == first
    asked = CompareConfig(**read_values(run / "config.json", CompareConfig))
    for name in ("nasp-0", "pa-2nd-0"):
        flags = search_words(asked, name.removesuffix("-0"), 0)
        assert main([*flags, "--run", str(tmp_path / name), "--threads", "1", "--quiet"]) == 0
        assert without_clock(run / "search" / name) == without_clock(tmp_path / name)


def without_clock(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = read(folder / "result.json")
    for each in (*rows, result):
        each.pop("seconds")
    return rows, result


@pytest.mark.slow
def test_two_workers_find_what_one_finds(argv: list[str], tmp_path: Path) -> None:
    """Also of `search --seeds`, which hands each seed to a worker."""
    stripes = argv[1]
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    common = [
        "search",
        stripes,
        "--space",
        "nasbench201",
        "--seeds",
        "0,1",
        "--epochs",
        "2",
        "--threads",
        "1",
    ]
    for workers in ("1", "2"):
        assert (
            main(
                [*common, *flags, "--quiet", "--workers", workers, "--run", str(tmp_path / workers)]
            )
            == 0
        )
    for seed in ("seed-0", "seed-1"):
        assert without_clock(tmp_path / "1" / seed) == without_clock(tmp_path / "2" / seed)
    assert (tmp_path / "2" / "logs" / "seed-1.log").exists()


def test_the_reason_is_what_the_run_said(tmp_path: Path) -> None:
    task = RunTask("t", (), tmp_path / "t")
    task.log.parent.mkdir()
    task.log.write_text("epoch 1\nproxnas: error: a: b\nproxnas: error: --x 1: no\n")
    assert reason(task, 2) == "--x 1: no"
