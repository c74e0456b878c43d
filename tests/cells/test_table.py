"""Look-up of NAS-Bench-201 cells in a csv table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.cells.table import look_up
from proxnas.cli.main import main
from proxnas.common.errors import InputError
from support.places import SHARED

EMPTY = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
CELL = (
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|"
    "+|skip_connect~0|nor_conv_3x3~1|skip_connect~2|"
)
TEXT = f"index,arch,cifar10_test,note\n0,{EMPTY},10.0,\n1,{CELL},93.66,good\n"


@pytest.fixture(params=["table.csv", "table.csv.gz"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = tmp_path / request.param
    path.write_bytes(gzip.compress(TEXT.encode()) if path.suffix == ".gz" else TEXT.encode())
    return path


def test_a_cell_is_found_with_its_figures(table: Path) -> None:
    assert look_up(table, Genotype.from_string(CELL)) == {
        "index": 1.0,
        "cifar10_test": 93.66,
        "note": "good",
    }


def test_a_chain_is_named_by_its_blocks(tmp_path: Path) -> None:
    kinds = ("conv_3x3", "res_3x3", "conv_5x5", "skip_connect", "sep_conv_3x3", "bottleneck_4")
    nodes = tuple((Edge(kind, i),) for i, kind in enumerate(kinds))
    chain = Genotype("chain", {"chain": Cell(nodes, (6,))}, "resnet")
    path = tmp_path / "table.csv"
    path.write_text(f"arch,test\n{'+'.join(kinds)},91.5\n")
    assert look_up(path, chain) == {"test": 91.5}


def test_factors_of_a_cell_do_not_matter(table: Path) -> None:
    text = (
        Genotype.from_string(CELL)
        .to_json()
        .replace('["nor_conv_3x3", 0]', '["nor_conv_3x3", 0, 0.7]')
    )
    genotype = Genotype.from_json(text)
    assert genotype != Genotype.from_string(CELL) == genotype.without_values()
    assert look_up(table, genotype)["cifar10_test"] == 93.66


def test_query_prints_them(table: Path, capsys) -> None:
    assert main(["query", CELL, "--table", str(table)]) == 0
    assert "93.66" in capsys.readouterr().out
    assert main(["query", CELL, "--table", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cifar10_test"] == 93.66


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"a,b\n1,2\n", "no column arch"),
        ("t.csv", b"", "no column arch"),
        ("t.csv", b"\xff\xfe\x00", "not text"),
        ("t.csv.gz", b"junk", "cannot be read"),
        ("t.csv.gz", gzip.compress(TEXT.encode(), mtime=0)[:40], "cannot be read"),
        ("t.csv", b"arch,x\n", "has no row"),
    ],
)
def test_a_bad_table_is_named(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as error:
        look_up(path, Genotype.from_string(CELL))
    assert str(path) in str(error.value)


def test_query_of_another_kind_of_cell(table: Path, tmp_path: Path, capsys) -> None:
    cell = {"nodes": [[["skip_connect", 0]]], "concat": [2]}
    path = tmp_path / "genotype.json"
    path.write_text(
        json.dumps({"schema": 1, "kind": "cnn", "cells": {"normal": cell, "reduce": cell}})
    )
    assert main(["query", str(path), "--table", str(table)]) == 2
    assert "NAS-Bench-201" in capsys.readouterr().err


def test_a_search_reports_the_row_of_its_cell(tmp_path: Path) -> None:
    every = SHARED / "data"
    path = every / "nasbench201_cifar10.csv.gz"
    if not path.exists():
        pytest.skip("no table of all NAS-Bench-201 cells: set PROXNAS_SHARED")
    run = tmp_path / "run"
    flags = [
        "--space",
        "nasbench201",
        "--channels",
        "2",
        "--epochs",
        "1",
        "--threads",
        "1",
        "--quiet",
    ]
    assert main(["search", "digits", *flags, "--table", str(path), "--run", str(run)]) == 0
    result = json.loads((run / "result.json").read_text())
    assert result["table"] == look_up(path, Genotype.from_json(json.dumps(result["genotype"])))
    assert 0 < result["table"]["cifar10_test"] < 100


def test_a_bad_table_stops_a_search_at_its_start(tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    assert (
        main(["search", "digits", "--space", "nasbench201", "--table", "no.csv", "--run", str(run)])
        == 2
    )
    assert "no.csv" in capsys.readouterr().err
    assert not run.exists()
    assert main(["search", "digits", "--table", "no.csv"]) == 2
    assert "needs --space nasbench201" in capsys.readouterr().err
