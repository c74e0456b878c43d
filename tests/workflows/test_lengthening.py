"""Runs that are given more with --resume: as if they had it from the start, or refused with the way
out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.config_file import read_values
from proxnas.common.errors import InputError, in_flags
from proxnas.common.options import changed
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.domains.text.options import TextTrainOptions
from proxnas.runs.lengthening import as_long_as

BENCH = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|none~1|skip_connect~2|"
TRAIN = [
    "--cells=1",
    "--channels=4",
    "--batch-size=16",
    "--schedule=exponential",
    "--ema=0.9",
    "--warmup=0",
]
SEARCH = [
    "--space=nasbench201",
    "--cells=1",
    "--channels=2",
    "--batch-size=20",
    "--final-cells=1",
    "--refine=0",
    "--explore=0",
    "--evidence=0",
    "--learning-rate=0.01",
    "--learning-rate-min=0.01",
]
TEXT = ["--units=4", "--batch-size=4", "--bptt=8"]
ALL = ["--threads=1", "--device=cpu", "--quiet"]


def outcome(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
    result = json.loads((folder / "result.json").read_text())
    return rows, {k: v for k, v in result.items() if k != "seconds"}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text(
        "".join(
            f"the {('cat', 'dog')[i % 2]} sat on {('mat', 'bed', 'it')[i % 3]}\n"
            for i in range(100)
        )
    )
    return path


@pytest.mark.parametrize("kind", ["search", "train", "text"])
def test_more_epochs_equal_a_run_that_had_them_from_the_start(
    kind: str, stripes: Path, book: Path, tmp_path: Path
) -> None:
    words = {
        "search": ["search", str(stripes), *SEARCH],
        "train": ["train", BENCH, str(stripes), *TRAIN],
        "text": ["train", "zoo:LSTM", str(book), *TEXT],
    }[kind]
    assert main([*words, *ALL, "--epochs=3", "--run", str(tmp_path / "whole")]) == 0
    assert main([*words, *ALL, "--epochs=1", "--run", str(tmp_path / "longer")]) == 0
    assert main([*words, *ALL, "--epochs=3", "--resume", "--run", str(tmp_path / "longer")]) == 0
    assert outcome(tmp_path / "longer") == outcome(tmp_path / "whole")
    stored = [
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("longer", "whole")
    ]
    assert stored[0] == stored[1] and stored[0]["epochs"] == 3


@pytest.mark.parametrize("kind", ["search", "train"])
def test_a_refusal_leaves_a_finished_run_as_it_was(
    kind: str, stripes: Path, tmp_path: Path
) -> None:
    """The data have changed: that is told before anything of the run is."""
    data, run = tmp_path / "data.npz", tmp_path / "run"
    data.write_bytes(stripes.read_bytes())
    words = {
        "search": ["search", str(data), *SEARCH],
        "train": ["train", BENCH, str(data), *TRAIN],
    }[kind]
    assert main([*words, *ALL, "--epochs=1", "--run", str(run)]) == 0
    before = {path.name: path.read_bytes() for path in run.glob("*.json")}
    with np.load(stripes) as found:
        arrays = dict(found)
    np.savez(data, **arrays | {"y_train": arrays["y_train"][::-1]})
    assert main([*words, *ALL, "--epochs=2", "--resume", "--run", str(run)]) == 2
    assert {path.name: path.read_bytes() for path in run.glob("*.json")} == before


def test_more_patience_equals_a_run_that_had_it_from_the_start(
    stripes: Path, tmp_path: Path
) -> None:
    """A hardly moves: the search has converged after the first epoch."""
    words = [
        "search",
        str(stripes),
        *SEARCH,
        *ALL,
        "--epochs=3",
        "--arch-learning-rate=1e-12",
        "--look-ahead=0",
    ]
    assert main([*words, "--patience=0", "--run", str(tmp_path / "whole")]) == 0
    assert main([*words, "--patience=1", "--run", str(tmp_path / "longer")]) == 0
    first, _ = outcome(tmp_path / "longer")
    assert main([*words, "--patience=0", "--resume", "--run", str(tmp_path / "longer")]) == 0
    assert len(first) < 3 and outcome(tmp_path / "longer") == outcome(tmp_path / "whole")


def test_a_crash_between_the_two_files_loses_nothing(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", BENCH, str(stripes), *TRAIN, *ALL, "--run", str(tmp_path)]
    assert main([*words, "--epochs=1"]) == 0
    before = outcome(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("proxnas.runs.folder.Run.write_json", lambda *args: 1 / 0)
        assert main([*words, "--epochs=2", "--resume"]) == 1
    assert read_values(tmp_path / "config.json", ImageTrainOptions)["epochs"] == 1
    assert main([*words, "--epochs=1", "--resume"]) == 0
    assert outcome(tmp_path) == before


@pytest.mark.parametrize(
    ("flags", "more", "said"),
    [
        (
            [],
            {"epochs": 20},
            "because its --explore falls to 0 over 15 epochs: start another --run with --epochs 20",
        ),
        (
            ["--explore=0"],
            {"epochs": 20},
            "because its --evidence is waited for where 15 epochs are enough steps",
        ),
        (
            ["--explore=0", "--evidence=0"],
            {"epochs": 20},
            "because its learning rate falls to its end over 15 epochs",
        ),
        (["--method=gdas"], {"epochs": 20}, "because gdas is made for 15 epochs from the start"),
        (
            [],
            {"epochs": 10},
            "--epochs 10: the run in somewhere has 15, and a run can only be made longer",
        ),
        (
            ["--patience=9"],
            {"patience": 8},
            "--patience 8: the run in somewhere has 9, and a run can only",
        ),
        (
            ["--patience=0"],
            {"patience": 8},
            "--patience 8: the run in somewhere has 0, and a run can only",
        ),
    ],
)
def test_what_cannot_be_made_longer_says_why(
    flags: list[str], more: dict[str, int], said: str
) -> None:
    stored = parse_search(["digits", *flags])
    given = changed(stored, **more)
    with pytest.raises(InputError) as caught:
        as_long_as(given, stored, Path("somewhere"))
    assert said in in_flags(caught.value)


def test_trainings_on_a_cosine_are_made_for_their_epochs(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="its learning rate falls to its end over 3 epochs: start another run"
    ):
        as_long_as(ImageTrainOptions(epochs=9), ImageTrainOptions(epochs=3), tmp_path)
    with pytest.raises(InputError, match="its drop_path rises over 3 epochs"):
        as_long_as(
            ImageTrainOptions(epochs=9, drop_path=0.2),
            ImageTrainOptions(epochs=3, drop_path=0.2),
            tmp_path,
        )
    with pytest.raises(InputError, match="its warmup is a share of 3 epochs"):
        as_long_as(
            ImageTrainOptions(epochs=9, warmup=1), ImageTrainOptions(epochs=3, warmup=1), tmp_path
        )
    assert as_long_as(TextTrainOptions(epochs=9), TextTrainOptions(epochs=3), tmp_path).epochs == 9


def test_what_was_refined_is_not_searched_on(tmp_path: Path) -> None:
    (tmp_path / "refined").mkdir()
    (tmp_path / "refined" / "config.json").write_text("{}")
    stored, given = (
        parse_search(["digits", "--space=nasbench201", f"--patience={n}"]) for n in (5, 9)
    )
    with pytest.raises(InputError, match="because what it found was refined already"):
        as_long_as(given, stored, tmp_path)
