"""Searches whose evaluator is a table: what they may see, what they write, how they resume, what
they refuse."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import OPERATIONS
from proxnas.cells.table import look_up, validation
from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.errors import InputError
from support.commands import interrupted_at
from support.methods import SAMPLING

CELL = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"


def names() -> list[str]:
    form = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|"
    return [form.format(*ops) for ops in product(OPERATIONS["nasbench201"], repeat=6)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cells; validation counts convolutions, and the test column says the contrary."""
    path = tmp_path_factory.mktemp("table") / "cells.csv"
    rows = ((arch, 15.0 * arch.count("conv_3x3")) for arch in names())
    path.write_text("arch,a_test,a_valid\n" + "".join(f"{arch},{99 - v},{v}\n" for arch, v in rows))
    return path


def flags(table: Path, run: Path, method: str = "evolution") -> list[str]:
    sizes = "--evaluations 22 --epochs 4 --channels 1 --final-cells 1 --final-channels 2"
    steps = ["--predictor-steps", "2"] if method == "nao" else []
    where = [
        "--space",
        "nasbench201",
        "--evaluate",
        "table",
        "--table",
        str(table),
        "--run",
        str(run),
    ]
    how = [*sizes.split(), *steps, "--threads", "1", "--quiet"]
    return ["search", "digits", "--method", method, *where, *how]


def rows(run: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.parametrize("method", SAMPLING)
def test_the_table_evaluates_by_its_validation_column(
    method: str, table: Path, tmp_path: Path
) -> None:
    assert main(flags(table, tmp_path, method)) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    genotype = Genotype.from_json(json.dumps(result["genotype"]))
    assert result["table"] == look_up(table, genotype)
    assert result["valid_accuracy"] == pytest.approx(result["table"]["a_valid"] / 100)
    assert (
        result["table"]["a_valid"] >= 45
    )  # three convolutions or more: the best of 22, although the worst by test
    lines = rows(tmp_path)
    assert [line["step"] for line in lines] == [5, 11, 16, 22]  # equal parts
    assert [line["valid_accuracy"] for line in lines] == sorted(
        line["valid_accuracy"] for line in lines
    )  # type: ignore[type-var]
    assert all(line["valid_loss"] == pytest.approx(1 - line["valid_accuracy"]) for line in lines)  # type: ignore[operator]


@pytest.mark.parametrize("method", ["evolution", "pnas"])
def test_a_search_by_a_table_resumes_exactly(method: str, table: Path, tmp_path: Path) -> None:
    assert main(flags(table, tmp_path / "whole", method)) == 0
    with interrupted_at(13):
        assert main(flags(table, tmp_path / "cut", method)) == 130
    assert len(rows(tmp_path / "cut")) == 2
    assert main([*flags(table, tmp_path / "cut", method), "--resume"]) == 0
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    assert (tmp_path / "cut" / "genotype.json").read_text() == (
        tmp_path / "whole" / "genotype.json"
    ).read_text()


def test_the_defaults_are_a_thousand_evaluations(table: Path) -> None:
    asked = ["digits", "--space", "nasbench201", "--method", "random", "--table", str(table)]
    config = parse_search([*asked, "--evaluate", "table"])
    assert (config.evaluations, config.epochs) == (1000, 10)
    assert parse_search(asked).evaluations == 8
    assert parse_search([*asked, "--method", "evolution"]).evaluations == 24


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "--method evolution --space nasbench201 --evaluate table",
            "--evaluate table: give --table FILE too",
        ),
        (
            "--method nasp --space nasbench201 --evaluate table --table t",
            "--evaluate table: is for random, evolution",
        ),
        (
            "--method nasp --evaluations 9",
            "--evaluations 9: is for random, evolution, local, reinforce, pnas",
        ),
        ("--method random --population 9", "--population 9: is for evolution"),
        ("--method pnas --tournament 9", "--tournament 9: is for evolution"),
        ("--method random --evaluations 0", "--evaluations 0: give a number from 1"),
        ("--method random --random-cells 9", "--random-cells 9: is for random-ws"),
        ("--method reinforce --max-skip 1", "--max-skip 1: is for nasp"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "digits", *given.split()]) == 2
    assert f"proxnas: error: {said}" in capsys.readouterr().err


def test_an_epoch_has_at_least_one_evaluation(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main([*flags(table, run), "--evaluations", "3"]) == 2
    assert "--evaluations 3: fewer than --epochs 4" in capsys.readouterr().err and not run.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"arch,a_test\n{CELL},1\n", "no column with valid in its name"),
        (f"arch,a_valid\n{CELL},much\n", "a_valid of .* is 'much'"),
        (f"arch,a_valid\n{CELL},101\n", "give percentages"),
        (f"arch,a_valid\n{CELL},nan\n", "give percentages"),
        ("arch,a_valid\n|none~0|,1\n", "has no row for"),
    ],
)
def test_a_table_that_cannot_evaluate_says_so(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        validation(path)(Genotype.from_string(CELL))
