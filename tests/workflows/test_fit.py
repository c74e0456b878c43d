"""fit: search, training, test and export in one folder; stopped anywhere it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import proxnas.workflows.fit
from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.cli.main import main
from proxnas.common.config_file import read_values
from proxnas.common.errors import AboutOptions
from proxnas.common.words import parse_options
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.images.model import load_model
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.domains.text.fitting import TextFitConfig
from proxnas.runs.deadline import Deadline
from proxnas.runs.progress import Silent
from proxnas.workflows import fit_words
from proxnas.workflows.fit import fit_result
from proxnas.workflows.fit_parts import MOST_TRAINING, prepare_training, search_config, train_config
from proxnas.workflows.fit_time import fit_to_time
from support.quick_fits import pretend_to_export

BENCH = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|none~1|skip_connect~2|"
SEARCH = {"cells": 1, "channels": 2}
SMALL = [
    "--search-epochs=1",
    "--epochs=2",
    "--batch-size=16",
    "--cells=2",
    "--channels=4",
    "--threads=1",
    "--quiet",
]
STEPS = 2, 4  # an epoch of the search: 80 images halved; of the training: a tenth held out


@pytest.fixture(scope="module")
def data(stripes: Path) -> Path:
    (stripes.parent / "search.json").write_text(json.dumps(SEARCH))
    return stripes


def command(data: Path, folder: Path, *more: str) -> list[str]:
    small = [*SMALL, "--search-config", str(data.parent / "search.json")]
    return ["fit", str(data), *small, "--run", str(folder), *more]


def outcome(folder: Path) -> dict[str, Any]:
    """What must be equal whether it was stopped or not."""
    result = json.loads((folder / "result.json").read_text())
    for part in (result, result["search"], result["train"]):
        part.pop("seconds")
    rows = {}
    for part in ("search", "train"):
        lines = (folder / part / "metrics.jsonl").read_text().splitlines()
        rows[part] = [
            {k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines
        ]
    return {"result": result, "rows": rows, "genotype": (folder / "genotype.json").read_bytes()}


@pytest.fixture
def no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_export(monkeypatch)


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted fit, without the extra `onnx`."""
    folder = tmp_path_factory.mktemp("fit") / "alone"
    with pytest.MonkeyPatch.context() as patch:
        pretend_to_export(patch)
        assert main(command(data, folder)) == 0
    return folder


def test_it_leaves_everything(alone: Path, data: Path, capsys: Any) -> None:
    result = json.loads((alone / "result.json").read_text())
    trained = json.loads((alone / "train" / "result.json").read_text())
    found = json.loads((alone / "search" / "result.json").read_text())
    assert {result[k] for k in ("method", "space")} == {"nasp", "darts7"} and result["data"] == str(
        data
    )
    for key in ("genotype", "params", "flops", "test_accuracy", "valid_accuracy"):
        assert result[key] == trained[key]
    assert trained["method"] == "nasp"
    assert (result["params"], result["genotype"]) == (found["params"], found["genotype"])
    assert (result["epochs"], result["search_epochs"], result["train_epochs"]) == (2, 1, 2)
    assert result["seconds"] == found["seconds"] + trained["seconds"]
    assert "on 20 images" in (alone / "model_card.md").read_text()
    assert read_genotype(alone) == read_genotype(alone / "search") == read_genotype(alone / "train")
    made = {"config.json", "environment.json", "model_card.md", "report.html", result["exported"]}
    assert made <= {path.name for path in alone.iterdir()}
    assert f"{100 * result['test_accuracy']:.2f}%" in (alone / "model_card.md").read_text()
    assert main(["test", str(alone), str(data)]) == 0
    assert f"test accuracy {result['test_accuracy']:.4f}" in capsys.readouterr().out
    assert load_model(alone).info["test_accuracy"] == result["test_accuracy"]


def test_with_the_extra_there_is_an_onnx_file(alone: Path, data: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    for part in ("search", "train"):  # finished: only the export is left to do
        (tmp_path / part).mkdir(parents=True)
        for path in (alone / part).iterdir():
            (tmp_path / part / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_bytes((alone / "config.json").read_bytes())
    assert main(command(data, tmp_path, "--resume")) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert (
        result["onnx"] == "model.onnx"
        and result["test_accuracy"] == outcome(alone)["result"]["test_accuracy"]
    )
    with np.load(data) as arrays:
        x = arrays["x_train"][:7]
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    (logits,) = session.run(None, {"images": x[..., None]})
    answers = [row[0].name for row in load_model(tmp_path).predict(x)]
    assert [load_model(tmp_path).classes[k] for k in logits.argmax(1)] == answers


def test_without_the_extra_one_line_says_so(
    alone: Path, data: Path, tmp_path: Path, no_export: None, capsys: Any
) -> None:
    (alone / "result.json").rename(tmp_path / "kept.json")
    argv = [word for word in command(data, alone, "--resume") if word != "--quiet"]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert said.count("pip install 'proxnas[onnx]'") == 1
    result = json.loads((alone / "result.json").read_text())
    assert result["onnx"] is None and result["exported"] == "model.pt2"
    assert result == json.loads((tmp_path / "kept.json").read_text())


@pytest.mark.parametrize("step", [1, STEPS[0] + 1, STEPS[0] + STEPS[1] + 1])
def test_stopped_and_resumed_ends_the_same(
    alone: Path,
    data: Path,
    tmp_path: Path,
    step: int,
    no_export: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    steps = iter(range(1, 1000))
    with monkeypatch.context() as patch:
        patch.setattr(
            Silent,
            "step",
            lambda self, changes: (
                signal.raise_signal(signal.SIGTERM) if next(steps) == step else None
            ),
        )
        assert main(command(data, tmp_path)) == 143
    assert "with --resume goes on" in capsys.readouterr().err
    assert (tmp_path / "train").exists() == (step > STEPS[0])
    assert (
        main(["fit", "--run", str(tmp_path), "--resume", "--quiet"]) == 0
    )  # the folder knows the rest
    assert outcome(tmp_path) == outcome(alone)


@pytest.mark.slow
def test_killed_and_resumed_ends_the_same(
    alone: Path, data: Path, tmp_path: Path, no_export: None
) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-m", "proxnas", *command(data, tmp_path)], env=env)
    while not (tmp_path / "train" / "checkpoint.pt").exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not (tmp_path / "result.json").exists(), "too late"
    assert main(command(data, tmp_path, "--resume")) == 0
    assert outcome(tmp_path) == outcome(alone)


def test_a_finished_fit_is_shown_not_run_again(alone: Path, data: Path, capsys: Any) -> None:
    before = {
        path: path.stat().st_mtime_ns
        for path in alone.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    assert main(command(data, alone)) == 2
    assert "holds a finished run" in capsys.readouterr().err
    assert main(command(data, alone, "--resume")) == 0
    assert "test accuracy" in capsys.readouterr().out
    assert main(command(data, alone, "--resume", "--epochs", "9")) == 2
    assert "--epochs 9: the run in" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_force_clears_the_parts_too(
    alone: Path, data: Path, tmp_path: Path, no_export: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("search", "train", "."):
        (tmp_path / part).mkdir(parents=True, exist_ok=True)
        for path in (alone / part).iterdir():
            if path.is_file():
                (tmp_path / part / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(proxnas.workflows.fit, "_search", lambda *args: 1 / 0)
    assert main(command(data, tmp_path, "--force")) == 1
    left = {
        str(p.relative_to(tmp_path))
        for p in tmp_path.rglob("*")
        if p.is_file() and p.name != ".lock"
    }
    assert left == {"config.json", "environment.json"}


# what it is told


@pytest.mark.parametrize(
    ("minutes", "epochs"),
    [
        # 331 s: 40% for the search of 10 s an epoch, too short to be refined; then 201 s
        (6.0, (13, 22)),
        pytest.param(10.0, (15, 44), marks=pytest.mark.slow),
        (1.0, (1, 3)),  # 20 s are kept for start and export
        (0.1, (1, 1)),
        (
            1000.0,
            (15, MOST_TRAINING * 75),
        ),  # no more than the protocol's; 75 epochs of 4 steps are the least
    ],
)
def test_a_budget_chooses_the_epochs(
    minutes: float,
    epochs: tuple[int, int],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxnas.runs.deadline.time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr("proxnas.workflows.plan.measure", lambda *args: (10.0, 0))
    monkeypatch.setattr("proxnas.workflows.plan.measure_training", lambda *args: (9.0, 0))
    asked: dict[str, Any] = {}

    def searched(config: Any, folder: Path, built: Any, deadline: Deadline) -> dict[str, Any]:
        asked["search"] = config.epochs
        budget = 60 * minutes - max(4.8 * minutes, 20)
        assert deadline.seconds == pytest.approx(
            0.4 * budget
        )  # the rest is the training's, whatever the search does
        folder.mkdir(parents=True)
        (folder / "genotype.json").write_text(Genotype.from_string(BENCH).to_json())
        return {"seconds": 10.0 * config.epochs}

    def trained(config: ImageTrainOptions, *args: Any) -> None:
        asked["train"] = config.epochs
        raise KeyboardInterrupt

    monkeypatch.setattr(proxnas.workflows.fit, "run_search", searched)
    monkeypatch.setattr(proxnas.workflows.fit, "run_training", trained)
    flags = f"--space nasbench201 --minutes {minutes} --quiet --threads 1"
    small = ["--search-config", str(data.parent / "search.json")]
    argv = ["fit", str(data), *flags.split(), *small, "--run", str(tmp_path / "run")]
    assert main(argv) == 130
    assert (asked["search"], asked["train"]) == epochs


def test_flags_reach_both_parts(data: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"ema": 0.5, "epochs": 3}')
    config = FitConfig(
        data=str(data),
        space="darts7",
        seed=4,
        method="pa",
        eta=0.1,
        cells=3,
        batch_size=8,
        train_config=str(tmp_path / "t.json"),
    )
    search, train = search_config(config), train_config(config, Genotype.from_string(BENCH))
    assert (search.seed, search.method, search.eta, search.batch_size, search.final_cells) == (
        4,
        "pa",
        0.1,
        8,
        3,
    )
    assert (train.seed, train.batch_size, train.cells, train.ema, train.epochs) == (4, 8, 3, 0.5, 3)
    bench = search_config(FitConfig(data="digits", space="nasbench201"))
    assert (bench.final_cells, bench.final_channels) == (5, 16)


def test_a_dry_run(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(command(data, tmp_path / "run", "--dry-run", "--json")) == 0
    figures = json.loads(capsys.readouterr().out)
    keys = {
        "params_smallest",
        "params_largest",
        "seconds_per_epoch",
        "peak_bytes",
        "train_epochs",
        "minutes",
    }
    assert keys <= figures.keys() and figures["params_smallest"] <= figures["params_largest"]
    assert (figures["epochs"], figures["train_epochs"]) == (1, 2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "DATA is missing"),
        ("nothing.npz", "nothing.npz"),
        ("{data} --space nothing", "unknown --space 'nothing'"),
        ("{data} --budget-minutes -1", "--minutes -1.0: give a number from 0"),
        ("{data} --train-config {bad}", "unknown key 'epoch'"),
        (
            "{data} --train-config {worse}",
            "drop_path (in --train-config) 7: give a number from 0 to 0.99",
        ),
        ("{data} --train-config {larger}", "--batch-size 73: this part has 72 images"),
        ("{data} --max-params 1", "give at least that, or fewer --channels"),
        ("{data} --search-config {bad}", "unknown key 'epoch'"),
    ],
)
def test_bad_input_is_one_line_and_makes_no_run(
    words: str, said: str, data: Path, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "bad.json").write_text('{"epoch": 3}')
    (tmp_path / "worse.json").write_text('{"drop_path": 7}')
    (tmp_path / "larger.json").write_text('{"batch_size": 73}')
    places = {"data": data} | {
        name: tmp_path / f"{name}.json" for name in ("bad", "worse", "larger")
    }
    argv = [word.format(**places) for word in words.split()]
    assert main(["fit", *argv, "--run", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("proxnas: error: ") and said in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_stored_values_repeat_it(alone: Path) -> None:
    assert FitConfig(**read_values(alone / "config.json", FitConfig)).search_epochs == 1


# few images, little time, and what is said


def few(folder: Path, n: int, side: int = 8) -> Path:
    """n images in two classes, of which a fifth is for testing."""
    random = np.random.RandomState(0)
    path = folder / f"few-{n}.npz"
    np.savez(
        path,
        x_train=random.randint(0, 256, (n, side, side)).astype(np.uint8),
        y_train=np.arange(n) % 2,
    )
    return path


def test_batches_that_nobody_asked_for_fit_the_data(
    data: Path, tmp_path: Path, capsys: Any
) -> None:
    """84 images leave 60 to train on: fewer than a batch of the protocol."""
    argv = [
        "fit",
        str(few(tmp_path, 84)),
        "--cells=2",
        "--channels=4",
        "--threads=1",
        "--dry-run",
        "--json",
    ]
    more = ["--search-config", str(data.parent / "search.json")]
    assert main([*argv, *more]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (
        figures["steps_per_epoch"] == 2 and figures["train_epochs"] == 96
    )  # 4 times the protocol's, of 3 steps each
    assert main([*argv, *more, "--batch-size=64"]) == 2  # that was asked for
    assert "--batch-size 64: this part has" in capsys.readouterr().err


def test_in_little_time_the_network_is_smaller_rather_than_the_steps_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of 16 images takes a second for 100,000 multiply-adds."""

    def measure(training: Any) -> tuple[float, int]:
        return len(training) * training.flops / 1e5 * training.config.batch_size / 16, 0

    monkeypatch.setattr("proxnas.workflows.plan.measure_training", measure)
    monkeypatch.setattr("proxnas.runs.deadline.time", SimpleNamespace(monotonic=lambda: 0.0))
    genotype = Genotype.from_string(BENCH)
    config = FitConfig(data=str(few(tmp_path, 800)), space="nasbench201", minutes=1.0, threads=1)

    def in_time(asked: FitConfig, seconds: float) -> tuple[Any, float]:
        usual = prepare_training(asked, genotype)
        found, of_epoch = fit_to_time(asked, usual, genotype, Deadline(seconds))
        return found.config, of_epoch

    full = prepare_training(config, genotype).flops / 1e5  # seconds of a step
    enough = in_time(config, 300 * full)[0]
    assert (enough.cells, enough.channels, enough.batch_size) == (5, 16, 16)
    plenty = in_time(config, 9000 * full)[0]
    assert (plenty.cells, plenty.channels, plenty.batch_size) == (5, 16, 64)
    scarce, seconds = in_time(config, 100 * full)
    assert (scarce.cells, scarce.channels) < (5, 16) and scarce.epochs * seconds <= 100 * full
    asked = FitConfig(**{**vars(config), "cells": 5, "channels": 16})
    kept = in_time(asked, 100 * full)[0]
    assert (kept.cells, kept.channels) == (5, 16)


def test_a_network_that_learnt_nothing_is_said_to(tmp_path: Path, capsys: Any) -> None:
    """Labels of noise: of 20 test images 10 are of either class."""
    argv = [
        "train",
        BENCH,
        str(few(tmp_path, 100)),
        "--epochs=1",
        "--cells=1",
        "--channels=2",
        "--batch-size=16",
    ]
    assert main([*argv, "--threads=1", "--quiet", "--run", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["majority_accuracy"] == 0.5
    assert result["warning"].startswith(
        f"test accuracy {result['test_accuracy']:.4f} is not clearly better than always"
    )
    assert f"proxnas: warning: {result['warning']}" in capsys.readouterr().err


def test_what_search_and_training_warn_of_is_said_once() -> None:
    found = dict.fromkeys(("method", "space", "data", "seed", "converged", "budget"))
    found |= {
        "epochs": 3,
        "seconds": 1.0,
        "warning": "few images; collapsed: try max_skip 2 or more epochs",
    }
    trained = {"epochs": 24, "seconds": 2.0, "warning": "few images; learnt nothing"}
    for cls in (FitConfig, TextFitConfig):
        result = fit_result(cls(), found, trained)
        assert (
            result["warning"]
            == "few images; learnt nothing; search: collapsed: try max_skip 2 or more epochs"
        )
        assert (result["epochs"], result["search_epochs"], result["seconds"]) == (24, 3, 3.0)
    assert "warning" not in fit_result(
        FitConfig(), found | {"warning": ""}, {"epochs": 1, "seconds": 1.0}
    )


@pytest.mark.parametrize("cls", [FitConfig, TextFitConfig])
def test_errors_of_the_parts_name_the_options_of_fit(cls: type[FitConfig | TextFitConfig]) -> None:
    template = "{epochs} 0: give {max_skip}, {final_%s} or {{{seed}}}"
    size = "cells" if cls is FitConfig else "units"
    with pytest.raises(AboutOptions) as caught, fit_words.searching(cls):
        raise AboutOptions(template % size)
    asked = f"search_epochs 0: give max_skip (in search_config), {size} or {{seed}}"
    assert str(caught.value) == asked
    assert caught.value.as_flag() == (
        f"--search-epochs 0: give max_skip (in --search-config), --{size} or {{--seed}}"
    )
    with pytest.raises(AboutOptions) as caught, fit_words.training(cls):
        raise AboutOptions("{epochs} 0: give {drop_path}")
    assert caught.value.as_flag() == "--epochs 0: give drop_path (in --train-config)"


def test_the_time_has_its_earlier_name_too(tmp_path: Path) -> None:
    assert parse_options(FitConfig, "proxnas fit", ["digits", "--budget-minutes", "3"]).minutes == 3
    (tmp_path / "config.json").write_text('{"budget_minutes": 3}')
    assert read_values(tmp_path / "config.json", FitConfig) == {"minutes": 3}
