"""The command line: what it prints and writes, its exit codes, and one line for every kind of bad
input."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxnas.common.config_file import read_values
from proxnas.common.cores import cores
from proxnas.runs.folder import open_run
from proxnas.searching.options import SearchOptions
from support.commands import SMALL, call, contents, finished_run, one_line, stripes, stripes_file


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stripes_file(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(data, tmp_path_factory.mktemp("done"))


@pytest.fixture
def earlier(done: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    folder = tmp_path / "earlier"
    folder.mkdir()
    for name, content in contents(done).items():
        (folder / name).write_bytes(content)
    return folder


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
    "other length": (
        lambda path: np.savez(path, **stripes(y_train=np.zeros(199, dtype=int))),
        "199 labels",
    ),
    "NaN": (lambda path: np.savez(path, **stripes(x_train=np.full((200, 8, 8), np.nan))), "NaN"),
    "one class": (
        lambda path: np.savez(path, **stripes(y_train=np.zeros(200, dtype=int))),
        "one class only",
    ),
    "a folder": (lambda path: path.mkdir(), "neither CIFAR nor images in class folders"),
}


@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data(kind: str, tmp_path: Path, earlier: Path, capsys: Any) -> None:
    make, said = BAD_DATA[kind]
    path = tmp_path / "bad.npz"
    make(path)
    before = contents(earlier)
    for place in (
        ["--run", earlier, "--force"],
        ["--run", tmp_path / "new"],
        ["--run", tmp_path / "n", "--seeds=0,1"],
    ):
        assert call("search", path, *SMALL, *place) == 2
        message = one_line(capsys.readouterr().err)
        assert (
            "bad.npz" in message and said in message and message.count(": ") >= 2
        )  # what is wrong: what to do
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
        ("--epochs 0", "--epochs 0: give a number from 1 to 1000000"),
        ("--method darts-1st --eta 1", "--eta 1: is for nasp, pa, lazy-pa"),
        ("--method random --preset paper", "--preset paper: is for nasp, pa, lazy-pa"),
        (
            "--method random --warmup 1",
            "--warmup 1: is for nasp, pa, lazy-pa, darts-1st, darts-2nd",
        ),
        ("--channels 99999999999", "--channels 99999999999: give a number from 1 to 4096"),
        ("--space nasbench", "unknown --space 'nasbench': did you mean nasbench201"),
        ("--space dart7", "did you mean darts7"),
        ("--method nasppp", "unknown --method 'nasppp': did you mean nasp"),
        ("--method darts", "did you mean pc-darts or darts-"),
        ("--method xyz", "choose one of asap"),
        ("--seed -1", "--seed -1: give"),
        ("--seeds 0,0", "--seeds 0,0: name each seed once"),
        ("--seeds 0;1", "--seeds '0;1': give whole numbers"),
        ("--pick", "--pick True: give --seeds"),
        ("--resume --force", "give either --resume or --force"),
        ("--device gpu", "--device 'gpu': give"),
        ("--device cuda:77", "--device cuda:77"),
        ("--threads -1", "--threads -1: give auto or a number from 1 on"),
        ("--threads 0", "--threads 0: give auto or a number from 1 on"),
        ("--threads 999", f"--threads 999: there are {cores()} cores: give"),
        ("--image-size 3", "--image-size 3: give a side of 4 to 4096"),
        ("--image-size 16", "--image-size 16: stripes is stored as 8 x 8 pixels"),
        ("--cutout 9", "--cutout 9: give a side of 0 to 8"),
        ("--momentum 1", "--momentum 1.0: give"),
        ("--learning-rate 0.0001", "--learning-rate-min 0.005: give at most --learning-rate"),
        ("--clip inf", "--clip inf: give"),
    ],
)
def test_bad_flags(data: Path, earlier: Path, flags: str, said: str, capsys: Any) -> None:
    before = contents(earlier)
    words = flags.split() if "--resume" in flags else [*flags.split(), "--force"]
    assert call("search", data, *SMALL, "--run", earlier, *words) == 2
    assert said in one_line(capsys.readouterr().err)
    assert contents(earlier) == before


@pytest.mark.parametrize(
    "flags", ["--epochs x", "--preset papers", "--bogus 1", "--order 3", "--epochs"]
)
def test_flags_that_tyro_rejects(data: Path, earlier: Path, flags: str, capsys: Any) -> None:
    before = contents(earlier)
    assert call("search", data, "--run", earlier, "--force", *flags.split()) == 2
    error = capsys.readouterr().err
    assert flags.split()[0] in error and "Traceback" not in error
    assert contents(earlier) == before


def test_an_unknown_command(capsys: Any) -> None:
    assert call("serach", "digits") == 2
    assert one_line(capsys.readouterr().err).startswith(
        "unknown command 'serach': did you mean search"
    )


# folders


def test_a_finished_run_is_not_overwritten(data: Path, earlier: Path, capsys: Any) -> None:
    before = contents(earlier)
    assert call("search", data, *SMALL, "--run", earlier) == 2
    assert "holds a finished run: use --resume" in one_line(capsys.readouterr().err)
    assert contents(earlier) == before
    assert call("search", data, *SMALL, "--seed", "1", "--run", earlier, "--force", "--quiet") == 0
    assert json.loads((earlier / "result.json").read_text())["seed"] == 1
    assert read_values(earlier / "config.json", SearchOptions)["seed"] == 1


@pytest.mark.parametrize("mode", ["", "--force", "--resume"])
def test_a_folder_in_use(data: Path, earlier: Path, mode: str, capsys: Any) -> None:
    (earlier / "result.json").unlink()
    before = contents(earlier)
    with open_run(earlier, resume=True):
        assert call("search", data, *SMALL, "--run", earlier, *mode.split()) == 2
    assert f"in use by process {os.getpid()}: wait for it or choose another --run" in one_line(
        capsys.readouterr().err
    )
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
    table = {
        label: value for label, value in re.findall(r"^([a-z -]+?)  +(.+?) *$", out, re.MULTILINE)
    }
    assert table["validation accuracy"] == f"{result['valid_accuracy']:.4f}"
    assert (table["parameters"], table["multiply-adds"]) == (
        f"{result['params']:,}",
        f"{result['flops']:,}",
    )
    assert (table["run folder"], table["to see it"]) == (
        str(tmp_path),
        f"proxnas report {tmp_path}",
    )
    assert re.findall(r"epoch (\d)/2 train 0\.\d+ valid [01]\.\d+ changes \d+ params", out) == [
        "1",
        "2",
    ]
    assert re.findall(r"(\d)/2 .* seconds [\d.]+ left [\d.]+ s\n", out) == ["1"]


def test_quiet_prints_only_the_result(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert call("search", data, *SMALL, "--run", tmp_path, "--quiet") == 0
    out = capsys.readouterr().out
    assert "epoch 1" not in out and "validation accuracy" in out


def test_the_files_of_a_run(done: Path, data: Path) -> None:
    names = {
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "checkpoint.pt",
        "checkpoint.previous.pt",
    }
    assert contents(done).keys() == names | {"genotype.json", "space.json", "result.json"}
    result = json.loads((done / "result.json").read_text())
    wanted = (
        "method space data seed genotype params flops valid_accuracy epochs seconds converged"
        " budget"
    )
    assert set(wanted.split()) <= result.keys()
    assert (result["method"], result["space"], result["data"]) == ("nasp", "nasbench201", str(data))
    assert (result["seed"], result["epochs"], result["converged"], result["budget"]) == (
        0,
        2,
        False,
        None,
    )
    assert result["genotype"] == json.loads((done / "genotype.json").read_text())
    environment = json.loads((done / "environment.json").read_text())
    assert {"proxnas", "python", "torch", "device", "threads", "command"} <= environment.keys()


def test_the_metrics_of_a_run(done: Path) -> None:
    rows = [json.loads(line) for line in (done / "metrics.jsonl").read_text().splitlines()]
    figures = {f"{part}_{figure}" for part in ("train", "valid") for figure in ("loss", "accuracy")}
    wanted = {
        "epoch",
        "step",
        *figures,
        "changes",
        "params",
        "A",
        "selected",
        "genotype",
        "rollbacks",
        "schema",
        "seconds",
    }
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 5), (2, 10)]
    for row in rows:
        assert wanted <= row.keys() <= {*wanted, "memory"}
        assert row["seconds"].keys() == {"arch", "forward", "backward", "other", "evaluate"}
        assert all(value >= 0 for value in row["seconds"].values())
        assert all(len(matrix) == 6 and len(matrix[0]) == 5 for matrix in row["A"].values())
        chosen = {
            (op, i)
            for node in row["genotype"]["cells"]["cell"]["nodes"]
            for op, i, *_ in node
            if op != "none"
        }
        group = json.loads((done / "space.json").read_text())["groups"]["cell"]
        source = {e: i for rows in group["nodes"] for i, e in enumerate(rows)}
        marked = {(group["candidates"][k], source[e]) for e, k in row["selected"]["cell"]}
        assert chosen == {(op, i) for op, i in marked if op != "none"}
    result = json.loads((done / "result.json").read_text())
    assert (
        result["valid_accuracy"] == rows[-1]["valid_accuracy"]
        and result["params"] == rows[-1]["params"]
    )


def test_a_search_converges(data: Path, tmp_path: Path) -> None:
    flags = [
        "--arch-learning-rate",
        "1e-12",
        "--patience",
        "2",
        "--epochs",
        "9",
        "--warmup",
        "1",
        "--quiet",
    ]
    assert call("search", data, *SMALL, *flags, "--run", tmp_path) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["converged"], result["epochs"]) == (True, 3)


# several seeds


def test_seeds_and_pick(data: Path, tmp_path: Path, capsys: Any) -> None:
    argv = ["search", data, *SMALL, "--seeds", "0,1", "--quiet", "--run"]
    assert call(*argv, tmp_path / "pick", "--pick") == 0
    out = capsys.readouterr().out
    result = json.loads((tmp_path / "pick" / "result.json").read_text())
    singles = [
        json.loads((tmp_path / "pick" / f"seed-{seed}" / "result.json").read_text())
        for seed in (0, 1)
    ]
    best = max(singles, key=lambda single: float(single["valid_accuracy"]))
    for key in (
        "seed",
        "genotype",
        "valid_accuracy",
        "params",
        "flops",
        "method",
        "space",
        "data",
        "budget",
    ):
        assert result[key] == best[key]
    for key in ("seconds", "epochs"):  # the cost of all of them
        assert result[key] == sum(single[key] for single in singles)
    assert json.loads((tmp_path / "pick" / "genotype.json").read_text()) == best["genotype"]
    assert f"validation accuracy {best['valid_accuracy']:.4f}" in " ".join(out.split())
    assert call("show", tmp_path / "pick") == 0


def test_seeds_without_pick_give_mean_and_spread(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert call("search", data, *SMALL, "--seeds", "0,1", "--quiet", "--run", tmp_path) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    singles = [
        json.loads((tmp_path / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)
    ]
    accuracies = [single["valid_accuracy"] for single in singles]
    assert result["seeds"] == [0, 1]
    assert result["mean"] == pytest.approx(np.mean(accuracies))
    assert result["std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert "genotype" not in result and not (tmp_path / "genotype.json").exists()
    assert f"over seeds 0, 1 {result['mean']:.4f} +-" in " ".join(capsys.readouterr().out.split())


def test_a_seed_of_several_is_the_same_as_alone(data: Path, done: Path, tmp_path: Path) -> None:
    assert call("search", data, *SMALL, "--seeds", "1,0", "--quiet", "--run", tmp_path) == 0
    rows = [
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "seed-0", done)
    ]
    for row in [*rows[0], *rows[1]]:
        row.pop("seconds")
    assert rows[0] == rows[1]


# show


def test_show_a_run_and_draw_it(done: Path, tmp_path: Path, capsys: Any) -> None:
    assert call("show", done) == 0
    text = capsys.readouterr().out
    assert "node 3 = " in text
    assert call("show", done / "genotype.json", "--svg", tmp_path / "cell.svg") == 0
    assert capsys.readouterr().out.startswith(text.rstrip())
    assert "<svg" in (tmp_path / "cell.svg").read_text()


def test_show_a_nasbench201_string(capsys: Any) -> None:
    assert (
        call("show", "|none~0|+|nor_conv_3x3~0|none~1|+|skip_connect~0|none~1|avg_pool_3x3~2|") == 0
    )
    assert "nor_conv_3x3(input)" in capsys.readouterr().out


def test_show_bad_input(done: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "junk.json").write_text("junk")
    (tmp_path / "empty").mkdir()
    for cell in (
        tmp_path / "none.json",
        tmp_path / "junk.json",
        tmp_path / "empty",
        done / "checkpoint.pt",
        "|x~0|",
    ):
        assert call("show", cell) == 2
        one_line(capsys.readouterr().err)
    assert call("show", done, "--svg", tmp_path / "no" / "x.svg") == 2
    assert str(tmp_path / "no" / "x.svg") in one_line(capsys.readouterr().err)
