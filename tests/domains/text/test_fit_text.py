"""`proxnas fit` on a text: the whole way, at the smallest sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxnas.cli.main import main
from proxnas.domains.text.fitting import TextFitConfig
from proxnas.searching.job import Search
from proxnas.workflows.about import fitting_domain
from proxnas.workflows.fit_parts import search_config, train_config
from support.quick_fits import pretend_to_export

SMALL = [
    "--units=4",
    "--batch-size=4",
    "--bptt=8",
    "--search-epochs=1",
    "--epochs=2",
    "--threads=1",
    "--device=cpu",
]


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


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("more") / "search.json"
    path.write_text(json.dumps({"units": 4}))
    return ["--search-config", str(path)]


@pytest.fixture(scope="module")
def fitted(book: Path, more: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit") / "run"
    assert (
        main(["fit", str(book), *SMALL, *more, "--words=8", "--quiet", "--run", str(folder)]) == 0
    )
    return folder


def test_all_files_are_there(fitted: Path) -> None:
    result = json.loads((fitted / "result.json").read_text())
    assert result["space"] == "rnn" and result["test_perplexity"] > 1 and result["sample"].strip()
    assert (
        result["train"]["valid_perplexity"]
        == result["valid_perplexity"]
        != result["search"]["valid_perplexity"]
    )
    assert (fitted / result["exported"]).stat().st_size > 0 and "# Model card" in (
        fitted / "model_card.md"
    ).read_text()
    assert (fitted / "genotype.json").read_text() == (
        fitted / "search" / "genotype.json"
    ).read_text()
    trained = json.loads((fitted / "train" / "result.json").read_text())
    assert (
        trained["genotype"] == result["genotype"]
        and trained["test_perplexity"] == result["test_perplexity"]
    )
    assert trained["method"] == result["method"] == "nasp" and (
        result["search_epochs"],
        result["epochs"],
    ) == (1, 2)
    assert f"on {result['test_tokens']:,} tokens" in (fitted / "model_card.md").read_text()


def test_the_search_is_built_once(
    book: Path, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[object] = []
    real = Search.__init__

    def count(self: Search, *args: Any, **more: Any) -> None:
        built.append(self)
        real(self, *args, **more)

    monkeypatch.setattr(Search, "__init__", count)
    monkeypatch.setattr("proxnas.workflows.fit.run_training", lambda *_, **__: 1 / 0)
    assert main(["fit", str(book), *SMALL, *more, "--quiet", "--run", str(tmp_path / "run")]) == 1
    assert (tmp_path / "run" / "search" / "result.json").exists() and len(built) == 1


def test_a_finished_one_is_shown_again(fitted: Path, capsys: Any) -> None:
    before = {path: path.stat().st_mtime_ns for path in fitted.rglob("*.json")}
    assert main(["fit", "--resume", "--run", str(fitted)]) == 0
    out = capsys.readouterr().out
    assert "test perplexity" in out and "it writes:" in out
    assert before == {path: path.stat().st_mtime_ns for path in fitted.rglob("*.json")}


def test_one_that_was_stopped_after_the_search_goes_on(
    fitted: Path, book: Path, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["fit", str(book), *SMALL, *more, "--words=8", "--quiet", "--run", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr("proxnas.workflows.fit.run_training", lambda *_, **__: 1 / 0)
        assert main(argv) == 1
    assert (tmp_path / "run" / "search" / "result.json").exists() and not (
        tmp_path / "run" / "train"
    ).exists()
    pretend_to_export(monkeypatch)
    searched = (tmp_path / "run" / "search" / "result.json").stat().st_mtime_ns
    assert main([*argv, "--resume"]) == 0
    assert (tmp_path / "run" / "search" / "result.json").stat().st_mtime_ns == searched
    assert (tmp_path / "run" / "model.pt2").exists()
    one, other = (
        json.loads((folder / "result.json").read_text()) for folder in (fitted, tmp_path / "run")
    )
    for name in ("test_perplexity", "sample", "genotype", "valid_perplexity"):
        assert one[name] == other[name]


def test_dry_run_and_budget(
    book: Path, more: list[str], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_export(monkeypatch)
    argv = ["fit", str(book), *SMALL[:3], *SMALL[5:], *more]
    assert main([*argv, "--dry-run", "--json", "--minutes=0.5"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["params_smallest"] == figures["params_largest"] and figures["peak_bytes"] >= 0
    assert (
        1 <= figures["epochs"] <= 10
        and figures["minutes"] < 0.5 + 2 * figures["train_seconds_per_epoch"] / 60
    )
    assert main([*argv, "--dry-run"]) == 0
    assert "all together about" in capsys.readouterr().out
    assert (
        main([*argv, "--budget-minutes=0.0001", "--run", str(tmp_path / "run")]) == 0
    )  # an epoch at the least
    out = capsys.readouterr().out
    assert "search: 1 epochs of about" in out and "training: 1 epochs of about" in out


def test_what_search_and_training_are_told() -> None:
    config = TextFitConfig(
        data="pydocs", protocol="ptb", tokens="char", train_tokens=999, search_epochs=3, seed=7
    )
    searched, trained = search_config(config), train_config(config)
    assert (searched.epochs, searched.final_units, searched.batch_size) == (3, 850, 256)
    assert (trained.epochs, trained.units, trained.batch_size) == (8000, 850, 64)
    for part in (searched, trained):
        assert (part.data, part.tokens, part.train_tokens, part.seed) == ("pydocs", "char", 999, 7)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["pydocs"], True),
        (["digits"], False),
        (["--quiet", "a.txt"], True),
        (["hf:x", "--space", "rnn"], True),
        (["hf:x", "--space=rnn"], True),
        ([], False),
        (["digits", "--space"], False),
    ],
)
def test_about_fitting_text(argv: list[str], text: bool) -> None:
    assert (fitting_domain(argv).name == "text") == text


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--space", "darts7"], "--space darts7: is for images"),
        (["--method", "nas"], "unknown --method 'nas'"),
        (["--bptt", "500"], "--bptt 500"),
        (["--batch-size", "400"], "--batch-size 400"),
        (["--epochs=-1"], "--epochs"),
    ],
)
def test_bad_flags_before_anything_is_made(
    book: Path, tmp_path: Path, flags: list[str], expected: str, capsys: Any
) -> None:
    assert main(["fit", str(book), *SMALL, *flags, "--run", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("proxnas: error: ") and expected in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_windows_that_nobody_asked_for_fit_the_text(
    book: Path, more: list[str], tmp_path: Path, capsys: Any
) -> None:
    """The book is too short for the columns and windows of the protocol."""
    argv = [
        "fit",
        str(book),
        *more,
        "--units=4",
        "--threads=1",
        "--device=cpu",
        "--run",
        str(tmp_path / "run"),
    ]
    assert main([*argv, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps_per_epoch"] >= 1
    assert main([*argv, "--bptt", "500"]) == 2  # that was asked for
    assert "--bptt 500" in capsys.readouterr().err


def test_a_limit_that_is_too_small_names_the_flag_of_this_command(
    book: Path, more: list[str], tmp_path: Path, capsys: Any
) -> None:
    argv = ["fit", str(book), *SMALL, *more, "--max-params", "1", "--run", str(tmp_path / "run")]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert "give at least that, or fewer --units\n" in error and not (tmp_path / "run").exists()
