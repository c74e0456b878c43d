"""`search --minutes`: the epochs are chosen by a measurement, once, and stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxnas.cli import main
from proxnas.errors import InputError
from proxnas.many_flags import whole_numbers
from proxnas.settings import flags_of, parse_search, read_values

SMALL = ["--space", "nasbench201", "--channels", "2", "--batch-size", "20", "--final-cells", "1", "--threads", "1"]


@pytest.fixture
def argv(stripes: Path, tmp_path: Path) -> list[str]:
    return ["search", str(stripes), *SMALL, "--quiet", "--minutes", "1", "--run", str(tmp_path / "run")]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """An epoch takes 25 s, whoever asks; the list grows by one with each measurement."""
    calls: list[Any] = []

    def measure(job: Any, validation: Any) -> tuple[float, int]:
        calls.append(job)
        return 25.0, 0

    monkeypatch.setattr("proxnas.plan.measure", measure)
    return calls


def test_as_many_epochs_as_fit_chosen_once(argv: list[str], measured: list[Any], tmp_path: Path) -> None:
    assert main(argv) == 0
    stored = read_values(tmp_path / "run" / "config.json")
    assert (stored["epochs"], stored["minutes"], len(measured)) == (2, 1.0, 1)
    (tmp_path / "run" / "result.json").unlink()
    assert main([*argv, "--resume"]) == 0
    again = ["search", "--config", str(tmp_path / "run" / "config.json"), "--run", str(tmp_path / "again"), "--quiet"]
    assert main(again) == 0
    assert len(measured) == 1
    files = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("run", "again")]
    rows = [[line.split('"seconds"')[0] for line in lines] for lines in files]
    assert len(rows[0]) == 2 and rows[0] == rows[1]


def test_at_least_one_epoch_and_at_most_those_of_the_protocol(stripes: Path, measured: list[Any]) -> None:
    from proxnas.jobs import fitted_to_minutes

    words = [str(stripes), *SMALL]
    assert fitted_to_minutes(parse_search([*words, "--minutes", "0.1"])).epochs == 1
    assert fitted_to_minutes(parse_search([*words, "--minutes", "9999"])).epochs == parse_search(words).epochs


def test_epochs_are_not_given_besides(argv: list[str], capsys: Any, tmp_path: Path) -> None:
    assert main([*argv, "--epochs", "3"]) == 2
    assert capsys.readouterr().err == "proxnas: error: --minutes 1.0: chooses the epochs: leave --epochs out\n"
    assert not (tmp_path / "run").exists()


def test_a_configuration_as_words_gives_the_same_again() -> None:
    of_gdas = ["digits", "--method", "gdas", "--fixed-reduction", "--tau-end", "0.2"]
    for words in (of_gdas, ["pydocs", "--space", "rnn"]):
        config = parse_search(words)
        assert parse_search(flags_of(config)) == config


def test_lists_of_seeds() -> None:
    assert whole_numbers("--seeds", "3,1") == [3, 1]
    with pytest.raises(InputError, match="--seeds '1,,2': give whole numbers"):
        whole_numbers("--seeds", "1,,2")
