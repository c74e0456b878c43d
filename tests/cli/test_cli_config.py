"""Configuration of a search: files, flags over them, presets and protocols."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from proxnas.cli.search import parse_search
from proxnas.methods.published import OFFICIAL, PAPER
from proxnas.runs.options import storable
from proxnas.searching.options import SearchOptions
from support.commands import SMALL, call, contents, finished_run, one_line, stripes_file


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stripes_file(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(data, tmp_path_factory.mktemp("done"))


def test_a_config_file_and_flags_over_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(
        json.dumps({"epochs": 7, "eta": 1, "space": "darts8", "data": "x.npz", "quiet": True})
    )
    config = parse_search(["--config", str(path), "--epochs", "3"])
    assert (config.epochs, config.eta, config.space, config.data, config.quiet) == (
        3,
        1,
        "darts8",
        "x.npz",
        True,
    )
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
        ('{"preset": "papers"}', "unknown --preset 'papers': did you mean paper"),
        ('{"value": "two"}', 'give one of "one", "a_k"'),
        ('{"order": 3}', "give one of 1, 2"),
        ('{"epochs": 0}', "--epochs 0: give"),
        ('{"eta": NaN}', "eta is NaN: give a number"),
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
    assert said in message and ("c.json" in message or "--e" in message or "--p" in message)


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
    assert call("search", data, *SMALL, "--run", "x", *first, "--clip", "0.8") == 0
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
    assert (plain.value, plain.ties, plain.arch_noise, plain.unselected) == (
        "one",
        "last",
        1e-3,
        "still",
    )
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
    assert {name: getattr(text, name) for name in PAPER} == PAPER
    assert text.epochs == 2  # what the preset does not set stays
    (tmp_path / "c.json").write_text('{"value": "one"}')
    code = parse_search(["--config", str(tmp_path / "c.json"), "--preset", "paper"])
    assert code.value == "one"  # a file without a preset of its own stands over it


def test_every_preset_sets_known_flags() -> None:
    for values in (PAPER, OFFICIAL):
        assert values.keys() <= SearchOptions.all_hints().keys()


def test_protocols(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    quick, cifar = parse_search(["digits"]), parse_search([str(tmp_path)])
    assert (quick.protocol, quick.cells, quick.final_cells, quick.final_channels) == (
        "quick",
        5,
        8,
        16,
    )
    assert (cifar.protocol, cifar.cells, cifar.final_cells, cifar.final_channels) == (
        "cifar",
        8,
        20,
        36,
    )
    assert (cifar.epochs, cifar.batch_size) == (50, 64)
    assert parse_search([str(tmp_path), "--protocol", "quick"]).epochs == quick.epochs


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"epochs": 7, "batch-size": 16, "method": "gdas", "tau_end": 0.2}'),
        ("c.toml", 'epochs = 7\nbatch_size = 16\nmethod = "gdas"\ntau-end = 0.2\n'),
        ("c.yaml", "epochs: 7\nbatch_size: 16\nmethod: gdas\ntau_end: 0.2\n"),
    ],
)
def test_files_of_options_in_three_forms(tmp_path: Path, name: str, text: str) -> None:
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    (tmp_path / name).write_text(text)
    config = parse_search(["digits", "--config", str(tmp_path / name), "--epochs", "3"])
    assert (config.epochs, config.batch_size, config.method) == (3, 16, "gdas")
    assert config.tau_end == 0.2


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.toml", "epochs = ", "c.toml: not TOML"),
        ("c.toml", 'epochs = "3"', "c.toml: epochs is"),
        ("c.yaml", "epochs: [", "c.yaml: not YAML"),
        ("c.yaml", "!!python/object/apply:os.getcwd []", "c.yaml: not YAML"),
        ("c.yaml", "- 3", "c.yaml: not a JSON object"),
    ],
)
def test_a_bad_file_of_another_form(
    tmp_path: Path, name: str, text: str, said: str, capsys: Any
) -> None:
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    (tmp_path / name).write_text(text)
    assert call("search", "digits", "--config", tmp_path / name) == 2
    assert said in one_line(capsys.readouterr().err)


def test_without_yaml_a_yaml_file_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "c.yaml").write_text("epochs: 3\n")
    assert call("search", "digits", "--config", tmp_path / "c.yaml") == 2
    assert "pip install 'proxnas[yaml]'" in one_line(capsys.readouterr().err)


def test_print_config_writes_what_would_be_used(tmp_path: Path, capsys: Any) -> None:
    words = ["digits", "--method", "gdas", "--tau-end", "0.2", "--space", "nasbench201"]
    assert call("search", *words, "--print-config") == 0
    printed = capsys.readouterr().out
    (tmp_path / "c.json").write_text(printed)
    assert json.loads(printed)["tau_end"] == 0.2 and "explore" not in json.loads(printed)
    used = storable(parse_search(words))
    assert storable(parse_search(["--config", str(tmp_path / "c.json")])) == used
    assert not list(tmp_path.glob("runs"))


def test_a_file_of_a_version_that_wrote_all_options_is_read(tmp_path: Path, capsys: Any) -> None:
    """What asks for nothing in another method is passed over, what asks for something is not."""
    values = {"method": "gdas", "explore": 0.0, "look_ahead": 0, "evaluations": 8, "bptt": 35}
    (tmp_path / "c.json").write_text(json.dumps(values | {"preset": "default"}))
    assert parse_search(["--config", str(tmp_path / "c.json")]).method == "gdas"
    (tmp_path / "c.json").write_text(json.dumps(values | {"explore": 0.1}))
    assert call("search", "--config", tmp_path / "c.json") == 2
    assert "--explore 0.1: is for nasp, pa, lazy-pa, not for gdas" in capsys.readouterr().err
