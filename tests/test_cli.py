"""The command line: what it prints and writes, its exit codes, and one line for every kind of bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxnas import __version__
from proxnas.cli import COMMANDS, main
from proxnas.config import SearchConfig
from proxnas.run import open_run
from proxnas.run_config import flag
from proxnas.searching import Search
from proxnas.settings import official, paper, parse_search, read_values

SIZES = {"epochs": 2, "cells": 1, "channels": 4, "final-cells": 1, "final-channels": 4, "batch-size": 16, "threads": 1}
SMALL = ["--space", "nasbench201", *(word for name, n in SIZES.items() for word in (f"--{name}", str(n)))]


def call(*argv: str | Path) -> int:
    """The exit code, whether it is returned or, by tyro, raised."""
    try:
        return main([str(word) for word in argv])
    except SystemExit as stop:
        return int(stop.code or 0)


def stripes(n: int = 200, **changes: Any) -> dict[str, Any]:
    """Arrays of n images in four classes."""
    y = np.arange(n) % 4
    x = np.random.RandomState(0).randint(0, 100, (n, 8, 8)).astype(np.uint8)
    for label in range(4):
        x[y == label, 2 * label : 2 * label + 2] += 120
    return {"x_train": x, "y_train": y} | changes


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    np.savez(path, **stripes())
    return path


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, to be read only."""
    folder = tmp_path_factory.mktemp("done") / "run"
    assert call("search", data, *SMALL, "--run", folder) == 0
    return folder


@pytest.fixture
def earlier(done: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    folder = tmp_path / "earlier"
    folder.mkdir()
    for name, content in contents(done).items():
        (folder / name).write_bytes(content)
    return folder


def one_line(error: str) -> str:
    """The message, if it is exactly one line as promised."""
    assert error.startswith("proxnas: error: ") and error.endswith("\n") and error.count("\n") == 1, error
    return error.removeprefix("proxnas: error: ")


# bad data

BAD_DATA: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda path: None, "no such file"),
    "zero bytes": (lambda path: path.write_bytes(b""), "it is empty"),
    "no arrays": (lambda path: np.savez(path), "no x_train"),
    "empty zip": (lambda path: zipfile.ZipFile(path, "w").close(), "no x_train"),
    "empty arrays": (lambda path: np.savez(path, **stripes(0)), "is empty"),
    "junk": (lambda path: path.write_bytes(b"junk" * 99), "not a readable npz"),
    "half a file": (
        lambda path: (np.savez(path, **stripes()), path.write_bytes(path.read_bytes()[:5000])),
        "not a readable npz",
    ),
    "objects": (
        lambda path: np.savez(path, **stripes(x_train=np.array([[1], [1, 2]] * 100, dtype=object))),
        "object array",
    ),
    "other length": (lambda path: np.savez(path, **stripes(y_train=np.zeros(199, dtype=int))), "199 labels"),
    "NaN": (lambda path: np.savez(path, **stripes(x_train=np.full((200, 8, 8), np.nan))), "NaN"),
    "one class": (lambda path: np.savez(path, **stripes(y_train=np.zeros(200, dtype=int))), "one class only"),
    "a folder": (lambda path: path.mkdir(), "neither CIFAR nor images in class folders"),
}


@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data(kind: str, tmp_path: Path, earlier: Path, capsys: Any) -> None:
    make, said = BAD_DATA[kind]
    path = tmp_path / "bad.npz"
    make(path)
    before = contents(earlier)
    for place in (["--run", earlier, "--force"], ["--run", tmp_path / "new"], ["--run", tmp_path / "n", "--seeds=0,1"]):
        assert call("search", path, *SMALL, *place) == 2
        message = one_line(capsys.readouterr().err)
        assert "bad.npz" in message and said in message and message.count(": ") >= 2  # what is wrong: what to do
    assert contents(earlier) == before
    assert not (tmp_path / "new").exists() and not (tmp_path / "n").exists()


def test_the_corrected_command_needs_no_force(data: Path, tmp_path: Path, capsys: Any) -> None:
    argv = ["search", *SMALL, "--quiet", "--run", tmp_path / "run"]
    assert call(*argv, tmp_path / "missing.npz") == 2
    assert call(*argv, data, "--batch-size", "500") == 2
    assert call(*argv, data, "--device", "cuda:77") == 2
    assert call(*argv, data) == 0


def test_the_data_is_misspelt(capsys: Any) -> None:
    assert call("search", "digit") == 2
    assert "did you mean digits?" in one_line(capsys.readouterr().err)


# bad flags


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--batch-size 81", "--batch-size 81: this part has 80 images: give at most 80"),
        ("--batch-size 1", "--batch-size 1: give"),
        ("--eta -1", "--eta -1.0: give a number of at least 0"),
        ("--eta nan", "--eta nan: give"),
        ("--epochs 0", "--epochs 0: give a number of at least 1"),
        ("--method darts-1st --eta 1", "--eta 1.0: is for nasp, pa, lazy-pa"),
        ("--method random --preset paper", "--preset paper: is for nasp, pa, lazy-pa"),
        ("--method random --warmup 1", "--warmup 1: is for nasp, pa, lazy-pa, darts-1st, darts-2nd"),
        ("--channels 99999999999", "--channels 99999999999: give a number of at most 4096"),
        ("--space nasbench", "unknown --space 'nasbench': did you mean nasbench201"),
        ("--space dart7", "did you mean darts7"),
        ("--method nasppp", "unknown --method 'nasppp': did you mean nasp"),
        ("--method darts", "did you mean darts-"),
        ("--method xyz", "choose one of asap"),
        ("--seed -1", "--seed -1: give"),
        ("--seeds 0,0", "--seeds 0,0: name each seed once"),
        ("--seeds 0;1", "--seeds '0;1': give whole numbers"),
        ("--pick", "--pick True: give --seeds"),
        ("--resume --force", "give either --resume or --force"),
        ("--device gpu", "--device 'gpu': give"),
        ("--device cuda:77", "--device cuda:77"),
        ("--threads -1", "--threads -1: give"),
        ("--image-size 3", "--image-size 3: give a side of 4 to 4096"),
        ("--image-size 16", "--image-size 16: stripes is stored as 8 x 8 pixels"),
        ("--cutout 9", "--cutout 9: give a side of 0 to 8"),
        ("--momentum 1", "--momentum 1.0: give"),
        ("--learning-rate 0.0001", "--learning-rate-min 0.001: give at most --learning-rate"),
        ("--clip inf", "--clip inf: give"),
    ],
)
def test_bad_flags(data: Path, earlier: Path, flags: str, said: str, capsys: Any) -> None:
    before = contents(earlier)
    words = flags.split() if "--resume" in flags else [*flags.split(), "--force"]
    assert call("search", data, *SMALL, "--run", earlier, *words) == 2
    assert said in one_line(capsys.readouterr().err)
    assert contents(earlier) == before


@pytest.mark.parametrize("flags", ["--epochs x", "--preset papers", "--bogus 1", "--order 3", "--epochs"])
def test_flags_that_tyro_rejects(data: Path, earlier: Path, flags: str, capsys: Any) -> None:
    before = contents(earlier)
    assert call("search", data, "--run", earlier, "--force", *flags.split()) == 2
    error = capsys.readouterr().err
    assert flags.split()[0] in error and "Traceback" not in error
    assert contents(earlier) == before


def test_an_unknown_command(capsys: Any) -> None:
    assert call("serach", "digits") == 2
    assert one_line(capsys.readouterr().err).startswith("unknown command 'serach': did you mean search")


# folders


def test_a_finished_run_is_not_overwritten(data: Path, earlier: Path, capsys: Any) -> None:
    before = contents(earlier)
    assert call("search", data, *SMALL, "--run", earlier) == 2
    assert "holds a finished run: use --resume" in one_line(capsys.readouterr().err)
    assert contents(earlier) == before
    assert call("search", data, *SMALL, "--seed", "1", "--run", earlier, "--force", "--quiet") == 0
    assert json.loads((earlier / "result.json").read_text())["seed"] == 1
    assert read_values(earlier / "config.json")["seed"] == 1


@pytest.mark.parametrize("mode", ["", "--force", "--resume"])
def test_a_folder_in_use(data: Path, earlier: Path, mode: str, capsys: Any) -> None:
    (earlier / "result.json").unlink()
    before = contents(earlier)
    with open_run(earlier, resume=True):
        assert call("search", data, *SMALL, "--run", earlier, *mode.split()) == 2
    assert f"in use by process {os.getpid()}: wait for it or choose another --run" in one_line(capsys.readouterr().err)
    assert contents(earlier) == before


def test_the_folder_of_several_seeds_in_use(data: Path, tmp_path: Path, capsys: Any) -> None:
    with open_run(tmp_path / "run"):
        assert call("search", data, *SMALL, "--run", tmp_path / "run", "--seeds", "0,1") == 2
    assert f"in use by process {os.getpid()}" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("mode", ["", "--force", "--resume"])
def test_a_foreign_config_json(data: Path, tmp_path: Path, mode: str, capsys: Any) -> None:
    (tmp_path / "config.json").write_text('{"theirs": 1}')
    assert call("search", data, *SMALL, "--run", tmp_path, *mode.split()) == 2
    assert str(tmp_path / "config.json") in one_line(capsys.readouterr().err)
    assert contents(tmp_path) == {"config.json": b'{"theirs": 1}'}


def test_a_folder_that_is_a_file(data: Path, capsys: Any) -> None:
    before = data.read_bytes()
    for mode in ([], ["--force"], ["--resume"]):
        assert call("search", data, *SMALL, "--run", data, *mode) == 2
        assert f"--run {data}: cannot be made" in one_line(capsys.readouterr().err)
    assert data.read_bytes() == before


def test_the_default_folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("search", data, *SMALL, "--seed", "3", "--quiet") == 0
    assert (tmp_path / "runs" / "search-stripes-nasbench201-nasp-3" / "result.json").exists()


# what a search prints and writes


def test_search_prints_the_cell_and_its_accuracy(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert call("search", data, *SMALL, "--run", tmp_path) == 0
    out, err = capsys.readouterr()
    result = json.loads((tmp_path / "result.json").read_text())
    assert err == ""
    assert "node 3 = " in out and "output = node 3" in out
    table = {label: value for label, value in re.findall(r"^([a-z -]+?)  +(.+?) *$", out, re.MULTILINE)}
    assert table["validation accuracy"] == f"{result['valid_accuracy']:.4f}"
    assert (table["parameters"], table["multiply-adds"]) == (f"{result['params']:,}", f"{result['flops']:,}")
    assert (table["run folder"], table["to see it"]) == (str(tmp_path), f"proxnas report {tmp_path}")
    assert re.findall(r"epoch (\d)/2 train 0\.\d+ valid [01]\.\d+ changes \d+ params", out) == ["1", "2"]
    assert re.findall(r"(\d)/2 .* seconds [\d.]+ left [\d.]+ s\n", out) == ["1"]


def test_quiet_prints_only_the_result(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert call("search", data, *SMALL, "--run", tmp_path, "--quiet") == 0
    out = capsys.readouterr().out
    assert "epoch 1" not in out and "validation accuracy" in out


def test_the_files_of_a_run(done: Path, data: Path) -> None:
    names = {"config.json", "environment.json", "metrics.jsonl", "checkpoint.pt", "checkpoint.previous.pt"}
    assert contents(done).keys() == names | {"genotype.json", "space.json", "result.json"}
    result = json.loads((done / "result.json").read_text())
    wanted = "method space data seed genotype params flops valid_accuracy epochs seconds converged budget"
    assert set(wanted.split()) <= result.keys()
    assert (result["method"], result["space"], result["data"]) == ("nasp", "nasbench201", str(data))
    assert (result["seed"], result["epochs"], result["converged"], result["budget"]) == (0, 2, False, None)
    assert result["genotype"] == json.loads((done / "genotype.json").read_text())
    environment = json.loads((done / "environment.json").read_text())
    assert {"proxnas", "python", "torch", "device", "threads", "command"} <= environment.keys()


def test_the_metrics_of_a_run(done: Path) -> None:
    rows = [json.loads(line) for line in (done / "metrics.jsonl").read_text().splitlines()]
    figures = {f"{part}_{figure}" for part in ("train", "valid") for figure in ("loss", "accuracy")}
    wanted = {"epoch", "step", *figures, "changes", "params", "A", "selected", "genotype", "rollbacks", "seconds"}
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 5), (2, 10)]
    for row in rows:
        assert wanted <= row.keys() <= {*wanted, "memory"}
        assert row["seconds"].keys() == {"arch", "forward", "backward", "other", "evaluate"}
        assert all(value >= 0 for value in row["seconds"].values())
        assert all(len(matrix) == 6 and len(matrix[0]) == 5 for matrix in row["A"].values())
        chosen = {(op, i) for node in row["genotype"]["cells"]["cell"]["nodes"] for op, i, *_ in node if op != "none"}
        group = json.loads((done / "space.json").read_text())["groups"]["cell"]
        source = {e: i for rows in group["nodes"] for i, e in enumerate(rows)}
        marked = {(group["candidates"][k], source[e]) for e, k in row["selected"]["cell"]}
        assert chosen == {(op, i) for op, i in marked if op != "none"}
    result = json.loads((done / "result.json").read_text())
    assert result["valid_accuracy"] == rows[-1]["valid_accuracy"] and result["params"] == rows[-1]["params"]


def test_a_search_converges(data: Path, tmp_path: Path) -> None:
    flags = ["--arch-learning-rate", "0", "--patience", "2", "--epochs", "9", "--warmup", "1", "--quiet"]
    assert call("search", data, *SMALL, *flags, "--run", tmp_path) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["converged"], result["epochs"]) == (True, 3)


# several seeds


def test_seeds_and_pick(data: Path, tmp_path: Path, capsys: Any) -> None:
    argv = ["search", data, *SMALL, "--seeds", "0,1", "--quiet", "--run"]
    assert call(*argv, tmp_path / "pick", "--pick") == 0
    out = capsys.readouterr().out
    result = json.loads((tmp_path / "pick" / "result.json").read_text())
    singles = [json.loads((tmp_path / "pick" / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    best = max(singles, key=lambda single: float(single["valid_accuracy"]))
    for key in ("seed", "genotype", "valid_accuracy", "params", "flops", "method", "space", "data", "budget"):
        assert result[key] == best[key]
    for key in ("seconds", "epochs"):  # the cost of all of them
        assert result[key] == sum(single[key] for single in singles)
    assert json.loads((tmp_path / "pick" / "genotype.json").read_text()) == best["genotype"]
    assert f"validation accuracy {best['valid_accuracy']:.4f}" in " ".join(out.split())
    assert call("show", tmp_path / "pick") == 0


def test_seeds_without_pick_give_mean_and_spread(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert call("search", data, *SMALL, "--seeds", "0,1", "--quiet", "--run", tmp_path) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    singles = [json.loads((tmp_path / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    accuracies = [single["valid_accuracy"] for single in singles]
    assert result["seeds"] == [0, 1]
    assert result["mean"] == pytest.approx(np.mean(accuracies))
    assert result["std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert "genotype" not in result and not (tmp_path / "genotype.json").exists()
    assert f"over seeds 0, 1 {result['mean']:.4f} +-" in " ".join(capsys.readouterr().out.split())


def test_a_seed_of_several_is_the_same_as_alone(data: Path, done: Path, tmp_path: Path) -> None:
    assert call("search", data, *SMALL, "--seeds", "1,0", "--quiet", "--run", tmp_path) == 0
    rows = [[json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            for folder in (tmp_path / "seed-0", done)]  # fmt: skip
    for row in [*rows[0], *rows[1]]:
        row.pop("seconds")
    assert rows[0] == rows[1]


# configuration


def test_a_config_file_and_flags_over_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"epochs": 7, "eta": 1, "space": "darts8", "data": "x.npz", "quiet": True}))
    config = parse_search(["--config", str(path), "--epochs", "3"])
    assert (config.epochs, config.eta, config.space, config.data, config.quiet) == (3, 1, "darts8", "x.npz", True)
    assert parse_search([f"--config={path}", "y.npz", "--no-quiet"]).quiet is False
    assert parse_search([f"--config={path}", "y.npz", "--quiet"]).data == "y.npz"


def test_flags_that_are_right_only_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"seeds": "0,1", "learning_rate_min": 0.0}))
    config = parse_search(["--config", str(path), "--pick", "--learning-rate", "0.0005"])
    assert (config.pick, config.learning_rate) == (True, 0.0005)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"epoch": 3}', "unknown key 'epoch': did you mean epochs"),
        ('{"epochs": "3"}', 'epochs is "3": give a whole number'),
        ('{"epochs": 2.5}', "epochs is 2.5: give a whole number"),
        ('{"epochs": true}', "epochs is true: give a whole number"),
        ('{"eta": "a"}', "give a number"),
        ('{"quiet": 1}', "give true or false"),
        ('{"space": 3}', "give a string"),
        ('{"data": null}', "give a string"),
        ('{"preset": "papers"}', 'give one of "default", "paper", "official"'),
        ('{"order": 3}', "give one of 1, 2"),
        ('{"epochs": 0}', "--epochs 0: give"),
        ('{"eta": NaN}', "--eta nan: give"),
        ("[]", "not a JSON object"),
        ("epochs = 3", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_config_file(tmp_path: Path, text: str, said: str, capsys: Any) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    assert call("search", "digits", "--config", path) == 2
    message = one_line(capsys.readouterr().err)
    assert said in message and ("c.json" in message or "--e" in message)


def test_a_missing_or_binary_config_file(tmp_path: Path, capsys: Any) -> None:
    assert call("search", "digits", "--config", tmp_path / "none.json") == 2
    assert "none.json: cannot be read" in one_line(capsys.readouterr().err)
    (tmp_path / "b.json").write_bytes(b"\xff\x00")
    assert call("search", "digits", "--config", tmp_path / "b.json") == 2
    assert "b.json: not JSON" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("first", [[], ["--resume"], ["--run", "x", "--quiet"]])
def test_the_config_of_a_run_repeats_it(
    data: Path, done: Path, tmp_path: Path, first: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("search", data, *SMALL, "--run", "x", *first, "--momentum", "0.8") == 0
    before = contents(tmp_path / "x")
    assert call("search", "--config", "x/config.json", "--run", "y", "--quiet") == 0
    assert contents(tmp_path / "x") == before  # neither resumed nor overwritten
    assert (tmp_path / "y" / "config.json").read_bytes() == before["config.json"]
    assert (tmp_path / "y" / "genotype.json").read_bytes() == before["genotype.json"]


def test_a_stored_config_does_not_force(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert call("search", data, *SMALL, "--run", tmp_path, "--force", "--quiet") == 0
    assert call("search", "--config", tmp_path / "config.json", "--run", tmp_path) == 2
    assert "holds a finished run" in capsys.readouterr().err


def test_presets() -> None:
    plain = parse_search(["digits"])
    assert (plain.value, plain.ties, plain.arch_noise, plain.unselected) == ("one", "last", 1e-3, "still")
    text = parse_search(["digits", "--preset", "paper"])
    assert (text.value, text.ties, text.arch_noise, text.arch_decay) == ("a_k", "first", 0.0, 0.0)
    assert (text.eta_cells, text.unselected) == ("all", "still")
    code = parse_search(["digits", "--preset", "official"])
    assert (code.value, code.ties, code.arch_noise, code.arch_decay) == ("one", "first", 0.0, 1e-3)
    assert (code.eta_cells, code.unselected) == ("normal", "drift")
    assert parse_search(["digits", "--preset", "paper", "--value", "one"]).value == "one"


def test_a_preset_flag_stands_over_a_stored_config(tmp_path: Path, done: Path) -> None:
    stored = str(done / "config.json")
    text = parse_search(["--config", stored, "--preset", "paper"])
    assert {name: getattr(text, name) for name in paper()} == paper()
    assert text.epochs == 2  # what the preset does not set stays
    (tmp_path / "c.json").write_text('{"value": "one"}')
    code = parse_search(["--config", str(tmp_path / "c.json"), "--preset", "paper"])
    assert code.value == "one"  # a file without a preset of its own stands over it


def test_every_preset_sets_known_flags() -> None:
    for values in (paper(), official()):
        assert values.keys() <= SearchConfig.__dataclass_fields__.keys()


def test_protocols(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    quick, cifar = parse_search(["digits"]), parse_search([str(tmp_path)])
    assert (quick.protocol, quick.cells, quick.final_cells, quick.final_channels) == ("quick", 5, 8, 16)
    assert (cifar.protocol, cifar.cells, cifar.final_cells, cifar.final_channels) == ("cifar", 8, 20, 36)
    assert (cifar.epochs, cifar.batch_size) == (50, 64)
    assert parse_search([str(tmp_path), "--protocol", "quick"]).epochs == quick.epochs


# show


def test_show_a_run_and_draw_it(done: Path, tmp_path: Path, capsys: Any) -> None:
    assert call("show", done) == 0
    text = capsys.readouterr().out
    assert "node 3 = " in text
    assert call("show", done / "genotype.json", "--svg", tmp_path / "cell.svg") == 0
    assert capsys.readouterr().out.startswith(text.rstrip())
    assert "<svg" in (tmp_path / "cell.svg").read_text()


def test_show_a_nasbench201_string(capsys: Any) -> None:
    assert call("show", "|none~0|+|nor_conv_3x3~0|none~1|+|skip_connect~0|none~1|avg_pool_3x3~2|") == 0
    assert "nor_conv_3x3(input)" in capsys.readouterr().out


def test_show_bad_input(done: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "junk.json").write_text("junk")
    (tmp_path / "empty").mkdir()
    for cell in (tmp_path / "none.json", tmp_path / "junk.json", tmp_path / "empty", done / "checkpoint.pt", "|x~0|"):
        assert call("show", cell) == 2
        one_line(capsys.readouterr().err)
    assert call("show", done, "--svg", tmp_path / "no" / "x.svg") == 2
    assert str(tmp_path / "no" / "x.svg") in one_line(capsys.readouterr().err)


# help and the ends of a command


def test_version_and_usage(capsys: Any) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"proxnas {__version__}\n"
    for argv in ([], ["--help"], ["-h"], ["help"]):
        assert call(*argv) == 0
        out = capsys.readouterr().out
        assert all(name in out and text in out for name, (_, text) in COMMANDS.items())


def test_help_names_every_flag(capsys: Any) -> None:
    assert call("search", "--help") == 0
    out = capsys.readouterr().out
    for name in SearchConfig.__dataclass_fields__:
        assert ("DATA" if name == "data" else flag(name)) in out
    assert "--no-" not in out


@pytest.mark.parametrize("argv", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_help_does_without_torch(argv: list[str]) -> None:
    code = """
import sys
from proxnas.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
assert not code, code
print("loaded", [name for name in ("torch", "sklearn", "matplotlib") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("loaded []\n") and len(ran.stdout) > 20


def test_bad_flags_are_found_without_torch() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "proxnas", "search", "digits", "--epochs", "0"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert ran.stderr.endswith("proxnas: error: --epochs 0: give a number of at least 1\n")
    assert "proxnas.config" in ran.stderr and not re.search(r"\| +torch$", ran.stderr, re.MULTILINE)


def raiser(error: BaseException) -> Callable[[list[str]], None]:
    def command(argv: list[str]) -> None:
        raise error

    return command


def test_an_internal_error_asks_to_be_reported(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("proxnas.commands.show.main", raiser(RuntimeError("boom")))
    assert call("show", "x") == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback (most recent call last)") and "RuntimeError: boom" in error
    last = error.splitlines()[-1]
    assert last.startswith("proxnas: error: internal error") and "please report" in last and __version__ in last


def test_a_keyboard_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("proxnas.commands.show.main", raiser(KeyboardInterrupt()))
    assert call("show", "x") == 130
    assert capsys.readouterr().err == "proxnas: stopped\n"


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("proxnas.commands.show.main", raiser(OSError(28, "No space left on device", "a/b.json")))
    assert call("show", "x") == 2
    assert one_line(capsys.readouterr().err).startswith("a/b.json: No space left on device: check")


@pytest.mark.parametrize("flags", ["--method gdas --max-skip 2", "--space rnn --max-skip 2"])
def test_a_limit_on_skip_connections_is_refused_where_it_would_do_nothing(flags: str, capsys: Any) -> None:
    assert main(["search", "pydocs" if "rnn" in flags else "digits", *flags.split()]) == 2
    assert "--max-skip 2: is " in capsys.readouterr().err


def test_a_cell_without_weights_is_warned_of(make_search: Callable[..., Search], tmp_path: Path, capsys: Any) -> None:
    """A keeps what it starts with: a seed that starts with a convolution, and one that starts without."""
    flags = ["--space", "nasbench201", "--arch-learning-rate", "0", "--explore", "0", "--look-ahead", "0"]
    starts = ((seed, make_search(*flags, "--seed", str(seed)).genotype().to_json()) for seed in range(500))
    poor = next(seed for seed, cell in starts if "conv" not in cell)
    for seed, warned in ((0, False), (poor, True)):
        run = tmp_path / str(seed)
        sizes = ["--cells", "1", "--channels", "2", "--epochs", "1", "--batch-size", "128", "--threads", "1", "--quiet"]
        assert main(["search", "digits", *flags, *sizes, "--seed", str(seed), "--run", str(run)]) == 0
        assert ("warning" in json.loads((run / "result.json").read_text())) == warned
        assert ("proxnas: warning: no operation with weights in cell" in capsys.readouterr().err) == warned


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    command = (
        f"{sys.executable} -m proxnas zoo --json | true; exit ${{PIPESTATUS[0]}}"  # true ends before anything is said
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")
