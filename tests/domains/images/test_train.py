"""From-scratch training: what it learns, keeps, writes, and how it goes on after a stop."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.common.types import Batch
from proxnas.domains.images import training as training_module
from proxnas.domains.images.data.images import from_arrays
from proxnas.domains.images.model import load_model
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.domains.images.parts import held_out, train_parts
from proxnas.domains.images.protocols import PROTOCOLS
from proxnas.domains.images.training import ImageTraining
from proxnas.runs.progress import Silent
from proxnas.training.optimizer import Average, factor, rising
from proxnas.workflows.train import parse_train

EDGES = [["sep_conv_3x3", 0], ["skip_connect", 1]]
CELL = {"nodes": [EDGES, EDGES], "concat": [2, 3]}
GENOTYPE = Genotype.from_json(
    json.dumps({"schema": 1, "kind": "cnn", "cells": {"normal": CELL, "reduce": CELL}})
)
BENCH = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|none~1|skip_connect~2|"
EPOCHS, STEPS = 3, 4  # 80 images of which an eighth is held out, in batches of 16
SMALL = [
    "--cells=2",
    "--channels=4",
    "--batch-size=16",
    "--valid-share=0.125",
    f"--epochs={EPOCHS}",
]
SMALL += ["--learning-rate=0.1", "--threads=1", "--device=cpu", "--quiet"]
WAYS = {
    "sgd": [],
    "everything": [
        "--optimizer",
        "adamw",
        "--learning-rate",
        "0.01",
        "--ema",
        "0.9",
        "--accumulate",
        "2",
        "--auxiliary",
        "0.4",
        "--drop-path",
        "0.3",
        "--label-smoothing",
        "0.1",
        "--cutout",
        "3",
        "--rotation",
        "10",
        "--warmup",
        "1",
        "--schedule",
        "exponential",
        "--gamma",
        "0.5",
    ],
    "no validation": ["--valid-share", "0"],
}


@pytest.fixture(scope="module")
def data(stripes: Path) -> Path:
    return stripes


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cell") / "cell.json"
    path.write_text(GENOTYPE.to_json())
    return path


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must be equal to the bit: metrics and result but for the clock, and the
    model."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    for row in (*rows, result):
        row.pop("seconds")
    with safe_open(folder / "model.safetensors", framework="np") as file:
        weights = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
        return {"metrics": rows, "result": result, "model": (file.metadata(), weights)}


@pytest.fixture(scope="module", params=WAYS)
def alone(
    request: Any, cell: Path, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The command line of a training, with the folder of its uninterrupted run as last word."""
    argv = ["train", str(cell), str(data), *SMALL, *WAYS[request.param], "--run"]
    folder = str(tmp_path_factory.mktemp("alone") / "run")
    assert main([*argv, folder]) == 0
    return [*argv, folder]


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """interrupt_after(n): SIGTERM arrives during the n-th step from now on."""

    def arrange(number: int) -> None:
        steps = iter(range(1, 1000))
        monkeypatch.setattr(
            Silent,
            "step",
            lambda self, changes: (
                signal.raise_signal(signal.SIGTERM) if next(steps) == number else None
            ),
        )

    yield arrange


# what it leaves


def test_it_learns(cell: Path, data: Path, tmp_path: Path) -> None:
    assert (
        main(["train", str(cell), str(data), *SMALL, "--epochs", "15", "--run", str(tmp_path)]) == 0
    )
    rows, result = (outcome(tmp_path)[key] for key in ("metrics", "result"))
    assert result["test_accuracy"] > 0.9 and result["valid_accuracy"] > 0.9
    assert rows[-1]["train_loss"] < 0.5 * rows[0]["train_loss"]


def test_it_writes_what_the_contract_says(alone: list[str]) -> None:
    folder, held = Path(alone[-1]), "--valid-share" not in alone
    written = {path.name for path in folder.iterdir()} - {".lock"}
    assert written == {
        *(
            "config.json",
            "environment.json",
            "metrics.jsonl",
            "checkpoint.pt",
            "checkpoint.previous.pt",
        ),
        *("genotype.json", "result.json", "model.safetensors"),
    }
    rows = outcome(folder)["metrics"]
    steps = STEPS if held else 5
    assert [(row["epoch"], row["step"]) for row in rows] == [(e, e * steps) for e in (1, 2, 3)]
    assert all(("valid_accuracy" in row) == ("valid_loss" in row) == held for row in rows)
    result = outcome(folder)["result"]
    assert result["method"] is None  # the cell is no run's
    assert 0 <= result["test_accuracy"] <= 1 and result["test_images"] == 20
    assert (
        result["genotype"] == json.loads(GENOTYPE.to_json()) and read_genotype(folder) == GENOTYPE
    )
    assert result["params"] > 0 and result["flops"] > 0 and "test_top5" not in result  # two classes
    if held:
        best = max(rows, key=lambda row: (row["valid_accuracy"], -row["valid_loss"]))
        assert (result["best_epoch"], result["valid_accuracy"]) == (
            best["epoch"],
            best["valid_accuracy"],
        )
    else:
        assert (result["best_epoch"], result["valid_accuracy"]) == (EPOCHS, None)


@pytest.mark.parametrize("alone", ["everything"], indirect=True)
def test_a_fresh_process_tests_the_same(alone: list[str], data: Path, tmp_path: Path) -> None:
    folder, report = Path(alone[-1]), tmp_path / "test.json"
    call = [
        sys.executable,
        "-m",
        "proxnas",
        "test",
        str(folder),
        str(data),
        "--threads",
        "1",
        "--json",
        str(report),
    ]
    done = subprocess.run(
        call,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    trained, tested = outcome(folder)["result"], json.loads(report.read_text())
    assert tested["accuracy"] == trained["test_accuracy"]
    assert tested["loss"] == pytest.approx(trained["test_loss"], rel=1e-6)
    assert sum(map(sum, tested["confusion"])) == tested["images"] == 20
    right = [tested["confusion"][k][k] for k in range(2)]
    assert sum(right) / 20 == tested["accuracy"]
    assert list(tested["per_class"].values()) == [
        right[k] / sum(tested["confusion"][k]) for k in range(2)
    ]
    assert f"test accuracy {tested['accuracy']:.4f}" in done.stdout


def test_the_model_is_the_best_one(cell: Path, data: Path, tmp_path: Path, capsys: Any) -> None:
    arrays = dict(np.load(data))
    parts = {"x_valid": arrays["x_train"][:20], "y_valid": arrays["y_train"][:20]}
    np.savez(tmp_path / "own.npz", **arrays, **parts)
    argv = ["train", str(cell), str(tmp_path / "own.npz"), *SMALL, "--run", str(tmp_path / "run")]
    assert main(argv) == 0
    assert main(["test", str(tmp_path / "run"), str(tmp_path / "own.npz"), "--part", "valid"]) == 0
    result = outcome(tmp_path / "run")["result"]
    assert f"valid accuracy {result['valid_accuracy']:.4f}" in capsys.readouterr().out
    assert load_model(tmp_path / "run").info["test_accuracy"] == result["test_accuracy"]


# stopping and going on


@pytest.mark.parametrize("step", [1, STEPS, STEPS + 2])
def test_stopped_and_resumed_ends_the_same(
    alone: list[str], tmp_path: Path, step: int, interrupt_after: Callable[[int], None], capsys: Any
) -> None:
    *argv, folder = alone
    interrupt_after(step)
    assert main([*argv, str(tmp_path)]) == 143
    assert "the same command with --resume goes on" in capsys.readouterr().err
    assert not (tmp_path / "result.json").exists()
    assert main([*argv, str(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == outcome(Path(folder))


@pytest.mark.slow  # a training is killed in the tests of faults, too
def test_killed_and_resumed_ends_the_same(cell: Path, data: Path, tmp_path: Path) -> None:
    argv = [
        "train",
        str(cell),
        str(data),
        *SMALL,
        *WAYS["everything"],
        "--checkpoint-minutes",
        "0",
        "--run",
    ]
    assert main([*argv, str(tmp_path / "alone")]) == 0
    call = [sys.executable, "-m", "proxnas", *argv, str(tmp_path / "killed")]
    process = subprocess.Popen(call, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    while not (tmp_path / "killed" / "checkpoint.previous.pt").exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not (tmp_path / "killed" / "result.json").exists(), "too late"
    assert (
        main(["train", "--run", str(tmp_path / "killed"), "--resume", "--quiet"]) == 0
    )  # the folder knows the rest
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "alone")


def test_the_cell_may_be_gone_when_it_is_resumed(
    cell: Path, data: Path, tmp_path: Path, interrupt_after: Callable[[int], None]
) -> None:
    copy = tmp_path / "cell.json"
    copy.write_bytes(cell.read_bytes())
    argv = ["train", str(copy), str(data), *SMALL, "--run", str(tmp_path / "run")]
    interrupt_after(2)
    assert main(argv) == 143
    copy.unlink()
    assert main([*argv, "--resume"]) == 0


@pytest.mark.parametrize("extra", ["--epochs 9", "--ema 0.5", "--drop-path 0.1", "--seed 3"])
def test_a_flag_that_contradicts_is_named(alone: list[str], extra: str, capsys: Any) -> None:
    before = (Path(alone[-1]) / "config.json").read_bytes()
    assert main([*alone, "--resume", *extra.split()]) == 2
    assert f"proxnas: error: {extra}: the run in" in capsys.readouterr().err
    assert (Path(alone[-1]) / "config.json").read_bytes() == before


def test_a_finished_run_is_not_overwritten(alone: list[str], capsys: Any) -> None:
    before = outcome(Path(alone[-1]))
    assert main(alone) == 2
    assert (
        "holds a finished run: use --resume to go on, --force to overwrite"
        in capsys.readouterr().err
    )
    assert main([*alone, "--resume"]) == 0
    assert outcome(Path(alone[-1])) == before


@pytest.mark.parametrize("minutes", ["10", "0"])
def test_divergence_stops_with_the_checkpoint_kept(
    cell: Path,
    data: Path,
    tmp_path: Path,
    minutes: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    loss = nn.functional.cross_entropy
    calls = iter(range(100))

    def fails_later(*args: Any, **kwargs: Any) -> torch.Tensor:
        return loss(*args, **kwargs) * (math.nan if next(calls) >= 6 else 1.0)

    monkeypatch.setattr(nn.functional, "cross_entropy", fails_later)
    argv = [
        "train",
        str(cell),
        str(data),
        *SMALL,
        "--checkpoint-minutes",
        minutes,
        "--run",
        str(tmp_path),
    ]
    assert main([*argv, "--valid-share", "0"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4  # three returns, then the end of it
    assert said[0].startswith(
        "proxnas: the loss or its gradient is not finite in epoch 2: back to the last checkpoint"
    )
    assert said[2].endswith("learning rate times 0.125 from now on (3 of 3)")
    assert (
        "is not finite in epoch 2: lower --learning-rate (now 0.1): also at 0.0125, after 3 returns"
        in said[3]
    )
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["state"]
    assert state["epochs_done"] == 1
    assert all(w.isfinite().all() for w in state["weights"].values())


# the parts


@pytest.fixture
def make(data: Path) -> Callable[..., ImageTraining]:
    images = from_arrays(dict(np.load(data)), "stripes", "stripes")

    def build(*flags: str) -> ImageTraining:
        config = dataclasses.replace(parse_train([*SMALL, *flags]), cell="x", data="x")
        return ImageTraining(config, images, GENOTYPE)

    return build


def test_pieces_of_a_batch_add_up(
    make: Callable[..., ImageTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two equal halves, whose batch statistics are those of the whole: the update must be the
    same."""
    after = []
    for pieces in ("1", "2"):
        training = make("--accumulate", pieces, "--auxiliary", "0.4", "--learning-rate", "0.01")
        x, y = training.train.next()
        monkeypatch.setattr(
            training.train, "next", lambda x=x, y=y: Batch(torch.cat([x, x]), torch.cat([y, y]))
        )
        metrics = training.step()
        after.append(
            (metrics.loss, metrics.figure, *(w.detach() for w in training.network.parameters()))
        )
        assert metrics.examples == 2 * len(y)
    for one, two in zip(*after, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_the_auxiliary_tower_and_smoothing_enter_the_loss(
    make: Callable[..., ImageTraining],
) -> None:
    stem = {}
    for flags in ("", "--auxiliary 0.4", "--label-smoothing 0.2"):
        training = make(*flags.split())
        training.step()
        stem[flags] = next(training.network.parameters()).detach().clone()
    assert not torch.equal(stem[""], stem["--auxiliary 0.4"])
    assert not torch.equal(stem[""], stem["--label-smoothing 0.2"])


def test_path_dropout_rises(
    make: Callable[..., ImageTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    training, seen = make("--drop-path", "0.3"), []
    monkeypatch.setattr(training_module, "set_drop_path", lambda _, chance: seen.append(chance))
    for epoch in (0, 1, 2, 2.5):
        training.optimizer.t = round(epoch * len(training))
        training.step()
    assert seen == pytest.approx(
        [0.0, 0.1, 0.2, 0.3 * round(2.5 * len(training)) / (3 * len(training))]
    )


def test_the_schedule() -> None:
    cosine = ImageTrainOptions(epochs=10, learning_rate=1.0, learning_rate_min=0.1)
    assert [factor(cosine, t, 2) for t in (0, 10, 20)] == pytest.approx([1.0, 0.55, 0.1])
    assert factor(cosine, 1, 2) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 20)) / 2)
    falling = ImageTrainOptions(epochs=10, schedule="exponential", gamma=0.5, warmup=2)
    assert [factor(falling, t, 2) for t in (0, 2, 4, 6)] == pytest.approx(
        [0.25, 0.375, 0.25, 0.125]
    )
    assert factor(falling, 5, 2) == pytest.approx(0.5**2.5)


def test_a_training_of_one_epoch_is_annealed_and_its_warm_up_is_a_fifth() -> None:
    short = ImageTrainOptions(epochs=1, learning_rate=1.0, learning_rate_min=0.0, warmup=1)
    rates = [factor(short, t, 50) for t in range(50)]
    assert max(rates) == pytest.approx(rates[9], rel=0.01)
    assert rates[0] < 0.11 and rates[-1] < 0.01 and rates[10:] == sorted(rates[10:], reverse=True)


def test_the_average() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average, expected = Average(network, rising(0.9)), network[0].weight.detach().clone()
    for t in range(1, 200):
        with torch.no_grad():
            network[0].weight += 1
        average.update(network)
        d = min(0.9, (1 + t) / (10 + t))
        expected = d * expected + (1 - d) * network[0].weight.detach()
    torch.testing.assert_close(average.network[0].weight, expected)


def test_who_is_held_out() -> None:
    y = np.repeat([0, 1, 2, 3], [100, 37, 1, 10])
    kept, held = held_out(y, 0.25)
    assert sorted([*kept, *held]) == list(range(len(y)))
    counts = np.bincount(y[held], minlength=4)
    assert (abs(counts - np.array([25, 9.25, 0, 2.5])) <= 1).all() and counts[2] == 0
    assert (held_out(y, 0.25)[1] == held).all() and not len(held_out(y, 0.0)[1])
    own = {"x_valid": np.zeros((2, 8, 8), np.uint8), "y_valid": np.array([0, 1])}
    parts = {"x_train": np.zeros((9, 8, 8), np.uint8), "y_train": np.arange(9) % 2}
    (x, _), valid = train_parts(from_arrays(parts | own, "n", "n"), 0.5)
    assert (
        valid is not None
        and len(valid[1]) == 2
        and len(x) == len(from_arrays(parts | own, "n", "n").x_train)
    )


# what it is told


def test_protocols_are_the_published_ones() -> None:
    for name, values in PROTOCOLS.items():
        assert parse_train(["", "", "--protocol", name]) == ImageTrainOptions(
            **values, protocol=name
        )  # type: ignore[arg-type]
    c = parse_train(["--protocol", "cifar"])
    assert (c.epochs, c.batch_size, c.cells, c.channels, c.learning_rate, c.weight_decay) == (
        600,
        96,
        20,
        36,
        0.025,
        3e-4,
    )
    assert (c.auxiliary, c.drop_path, c.cutout, c.clip, c.momentum, c.valid_share) == (
        0.4,
        0.2,
        16,
        5,
        0.9,
        0,
    )
    i = parse_train(["--protocol", "imagenet"])
    assert (i.epochs, i.batch_size, i.cells, i.channels, i.learning_rate, i.weight_decay) == (
        250,
        128,
        14,
        48,
        0.1,
        3e-5,
    )
    assert (i.schedule, i.gamma, i.label_smoothing, i.drop_path, i.auxiliary) == (
        "exponential",
        0.97,
        0.1,
        0,
        0.4,
    )
    t = parse_train(["--protocol", "tinyimagenet"])
    assert (t.batch_size, t.rotation, t.stem, t.resized_crop) == (96, 20, "tinyimagenet", False)


def test_flags_stand_over_the_file_and_the_file_over_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"epochs": 7, "batch_size": 8, "protocol": "cifar"}')
    config = parse_train(["--config", str(tmp_path / "c.json"), "--epochs", "5"])
    assert (config.epochs, config.batch_size, config.cells, config.protocol) == (5, 8, 20, "cifar")


def test_a_benchmark_cell_gets_the_benchmarks_network() -> None:
    config = parse_train([BENCH, "digits", "--protocol", "cifar"])
    assert (config.cells, config.channels, config.auxiliary, config.epochs) == (5, 16, 0.0, 600)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar", "data_batch_1.bin"),
        ("tinyimagenet", "val/val_annotations.txt"),
        ("quick", "cat/1.png"),
    ],
)
def test_the_protocol_is_chosen_by_the_data(name: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    assert parse_train([BENCH, str(tmp_path)]).protocol == name


@pytest.mark.parametrize("argv", ["--dry-run --json", "--dry-run"])
def test_a_dry_run_writes_nothing(
    argv: str, cell: Path, data: Path, tmp_path: Path, capsys: Any
) -> None:
    assert (
        main(["train", str(cell), str(data), *SMALL, "--run", str(tmp_path / "run"), *argv.split()])
        == 0
    )
    assert not (tmp_path / "run").exists()
    said = capsys.readouterr().out
    if "--json" in argv:
        figures = json.loads(said)
        assert figures["params"] == figures["params_smallest"] == figures["params_largest"] > 0
        assert (
            figures["seconds_per_epoch"] > 0 and figures["peak_bytes"] >= 0 and figures["flops"] > 0
        )
        assert (figures["train_images"], figures["valid_images"]) == (70, 10)
    else:
        assert "70 to train on, 10 to choose the best weights by" in said


RNN = (
    '{"schema": 1, "kind": "rnn", "cells": {"recurrent": {"nodes": [[["tanh", 0]]], "concat":'
    " [1]}}}"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "CELL is missing"),
        ("{cell}", "DATA is missing"),
        ("nothing.json {data}", "nothing.json: no such file"),
        ("zoo:nothing {data}", "unknown cell of the zoo 'nothing'"),
        ("{cell} nothing.npz", "nothing.npz"),
        ("{cell} {data} --batch-size 500", "--batch-size 500: this part has"),
        ("{cell} {data} --valid-share 0.9", "--valid-share 0.9: give a number from 0 to 0.5"),
        ("{cell} {data} --learning-rate nan", "--learning-rate nan: give a number"),
        ("{cell} {data} --accumulate 16", "--accumulate 16: parts of a batch need two images each"),
        ("{cell} {data} --cutout 9", "--cutout 9: give a side of 0 to 8"),
        ("{cell} {data} --resume --force", "--force True: give either --resume or --force"),
        ("{cell} {data} --config {rnn}", "unknown key 'schema'"),
    ],
)
def test_bad_input_is_one_line_and_makes_no_run(
    words: str, said: str, cell: Path, data: Path, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "rnn.json").write_text(RNN)
    places = {"cell": cell, "data": data, "rnn": tmp_path / "rnn.json"}
    argv = [word.format(**places) for word in words.split()]
    assert main(["train", *SMALL, "--run", str(tmp_path / "run"), *argv]) == 2
    error = capsys.readouterr().err
    assert error.startswith("proxnas: error: ") and said in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_command_is_not_resumed(
    alone: list[str], data: Path, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "config.json").write_text('{"proxnas": "0", "command": "search"}')
    assert main([*alone[:-1], str(tmp_path), "--resume"]) == 2
    assert (
        "holds a run of `proxnas search`, not of train: choose another --run"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("stem", ["cifar", "imagenet", "tinyimagenet"])
def test_small_images_suit_every_stem(make: Callable[..., ImageTraining], stem: str) -> None:
    training = make("--stem", stem, "--auxiliary", "0.4")
    assert training.step().loss.isfinite() and training.valid
    assert 0 <= training.validate().accuracy <= 1


def test_config_birth() -> None:
    with pytest.raises(InputError, match=r"^learning_rate_min 1.0: give at most learning_rate$"):
        ImageTrainOptions(learning_rate=0.1, learning_rate_min=1.0)
