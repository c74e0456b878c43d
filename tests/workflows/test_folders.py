"""The default run folder: one name for one command line, and never that of a run with other
flags."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxnas.cli import compare, fit, search, sweep, train
from proxnas.cli.search import parse_search
from proxnas.common.words import parse_options, words_for
from proxnas.domains.images.fitting import FitConfig
from proxnas.runs.options import RunConfig, storable
from proxnas.searching.defaults import resolve
from proxnas.workflows.compare import CompareConfig
from proxnas.workflows.folders import run_folder
from proxnas.workflows.sweep import SweepConfig
from proxnas.workflows.train import parse_train
from support.commands import SMALL, call, one_line, stripes_file

PLAIN = "runs/search-digits-darts7-nasp-0"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def where(*flags: str) -> str:
    """The folder of a search, and a run of it there."""
    config = parse_search(["digits", *flags])
    plain = search.default_folder(config)
    return str(run_folder(config, plain, resolve, "data", "space", "method", "seed", "seeds"))


def begin(config: RunConfig, folder: str) -> None:
    Path(folder).mkdir(parents=True)
    (Path(folder) / "config.json").write_text(
        json.dumps({"proxnas": "0", "command": "search"} | storable(config))
    )


def begin_search(*flags: str) -> str:
    folder = where(*flags)
    begin(parse_search(["digits", *flags]), folder)
    return folder


def test_a_run_with_other_flags_goes_beside(capsys: pytest.CaptureFixture[str]) -> None:
    assert begin_search() == PLAIN
    assert begin_search("--max-params", "50k") == f"{PLAIN}-max-params-50k"
    assert (
        f"{PLAIN} holds a run with other flags: this one goes to {PLAIN}-max-params-50k"
        in capsys.readouterr().err
    )
    assert begin_search("--seed", "1") == PLAIN.removesuffix("0") + "1"
    many = [
        "--eta",
        "0.1",
        "--explore",
        "0.1",
        "--warmup",
        "1",
        "--arch-every",
        "2",
        "--max-skip",
        "2",
    ]
    folders = [begin_search(*many), begin_search(*many[2:], "--eta", "0.2")]
    assert all(len(folder) < len(PLAIN) + 12 for folder in folders) and len(set(folders)) == 2


@pytest.mark.parametrize("mode", ["", "--resume", "--force"])
def test_the_same_flags_mean_the_same_folder(mode: str) -> None:
    asked: list[list[str]] = [[], ["--max-params", "50k"], ["--epochs", "2", "--eta", "1"]]
    begun = [begin_search(*flags) for flags in asked]
    assert [where(*flags[::-1][::-1], *([mode] if mode else [])) for flags in asked] == begun
    assert (
        where("--eta", "1", "--epochs=2", "--threads", "1", "--quiet", *([mode] if mode else []))
        == begun[2]
    )


def test_the_first_run_has_the_plain_name_whatever_its_flags() -> None:
    assert begin_search("--epochs", "2") == PLAIN
    assert where("--epochs", "2") == where("--resume") == where("--epochs", "3", "--force") == PLAIN
    assert where() not in (PLAIN, where("--epochs", "3"))


def test_other_data_of_the_same_name_are_others() -> None:
    folders = []
    for place in ("a", "b", "c"):
        config = parse_search([f"{place}/photos.npz"])
        folder = str(
            run_folder(
                config, search.default_folder(config), resolve, "data", "space", "method", "seed"
            )
        )
        begin(config, folder)
        folders.append(folder)
    assert folders[0] == "runs/search-photos-darts7-nasp-0" and len(set(folders)) == 3


@pytest.mark.parametrize(
    ("command", "parsed", "named", "words", "flag"),
    [
        (
            train,
            parse_train,
            ["cell", "data", "seed"],
            ["zoo:DARTS_V2", "digits"],
            ["--epochs", "3"],
        ),
        (
            fit,
            partial(parse_options, FitConfig, ""),
            ["data", "space", "method", "seed"],
            ["digits"],
            ["--eta", "1"],
        ),
        (
            compare,
            partial(parse_options, CompareConfig, ""),
            ["data", "space", "methods", "seed"],
            ["digits"],
            ["--epochs", "2"],
        ),
        (
            sweep,
            partial(parse_options, SweepConfig, ""),
            ["data", "space", "method"],
            ["digits", "--eta", "0,1"],
            ["--epochs", "2"],
        ),
    ],
)
def test_every_command_has_folders_of_its_own(
    command: Any, parsed: Any, named: list[str], words: list[str], flag: list[str]
) -> None:
    folders = []
    for flags in ([], flag):
        config = parsed([*words, *flags])
        plain = command.default_folder(config)
        folder = str(run_folder(config, plain, lambda values: parsed(words_for(values)), *named))
        begin(config, folder)
        folders.append(folder)
        again = run_folder(config, plain, lambda values: parsed(words_for(values)), *named)
        assert str(again) == folder
    assert folders[1].startswith(f"{folders[0]}-")


def test_bad_flags_are_told_before_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = stripes_file(tmp_path), ["--run", tmp_path / "run", "--quiet"]
    assert call("search", data, *SMALL, *run) == 0
    capsys.readouterr()
    assert call("search", data, *SMALL, *run, "--max-params", "3") == 2
    assert one_line(capsys.readouterr().err).startswith("--max-params 3: ")
    assert call("search", data, *SMALL, *run) == 2
    assert "holds a finished run" in one_line(capsys.readouterr().err)


def test_a_run_beside_another_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = stripes_file(tmp_path)
    for flags in ([], ["--eta", "1"]):
        assert call("search", data, *SMALL, "--quiet", *flags) == 0
    folders = sorted(path.name for path in Path("runs").iterdir())
    assert len(folders) == 2 and folders[0] == "search-stripes-nasbench201-nasp-0"
    found = {name: (Path("runs") / name / "config.json").read_text() for name in folders}
    assert [json.loads(found[name])["eta"] for name in folders] == [0.0, 1.0]
    assert call("search", data, *SMALL, "--quiet", "--eta", "1", "--resume") == 0
    assert folders[1] in capsys.readouterr().out and len(list(Path("runs").iterdir())) == 2
