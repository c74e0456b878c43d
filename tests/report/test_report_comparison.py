"""Tables, tests and figures of a comparison, from run folders made by hand."""

from __future__ import annotations

import csv
import io
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from proxnas.common.errors import InputError
from proxnas.common.significance import p_value
from proxnas.report import comparison, tables
from proxnas.report.comparison_figures import (
    convergence,
    draw_comparison,
    edges,
    proximal,
    selected_by_epoch,
    stability,
    weights,
)
from proxnas.report.paired import compare_pairs, holm

ACCURACY = {  # method -> accuracy of each seed
    "nasp": [0.90, 0.92, 0.91, 0.93],
    "pa": [0.80, 0.81, 0.82, 0.81],
    "darts-2nd": [0.89, 0.93, 0.92, 0.92],
    "pa-2nd": [0.70, 0.75, 0.72, 0.74],
}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def metrics(accuracy: float, epoch: int, text: bool) -> dict[str, Any]:
    seconds = {"arch": 2.0, "forward": 1.0, "backward": 0.5, "other": 0.25, "evaluate": 0.25}
    A = {"cell": [[0.1 * epoch, 0.5, 0.2], [0.3, 0.1, 0.2]]}
    chosen = {"cell": [[0, epoch % 3], [1, 0]]}
    figure = (
        {"valid_perplexity": 100.0 + accuracy} if text else {"valid_accuracy": accuracy * epoch / 2}
    )
    return {
        "epoch": epoch,
        **figure,
        "changes": 3 - epoch,
        "A": A,
        "selected": chosen,
        "seconds": seconds,
    }


def a_comparison(folder: Path, seeds: int = 4, space: str = "nasbench201", **asked: str) -> Path:
    """Two epochs of 4 s a search; 2e6 parameters and 1e5 more a seed."""
    config = {
        "data": "digits",
        "space": space,
        "methods": "all",
        "seeds": "",
        "train": "",
        "table": "",
    } | asked
    write(folder / "config.json", config)
    write(folder / "plan.json", {"methods": list(ACCURACY), "seeds": list(range(seeds))})
    for name, found in ACCURACY.items():
        for seed in range(seeds):
            place, text = folder / "search" / f"{name}-{seed}", space == "rnn"
            rows = [metrics(found[seed], epoch, text) for epoch in (1, 2)]
            figure = (
                {"valid_perplexity": 100 * found[seed]} if text else {"valid_accuracy": found[seed]}
            )
            result = {
                "seed": seed,
                "params": 2_000_000 + 100_000 * seed,
                "flops": 10,
                "seconds": 8.0,
                "epochs": 2,
            }
            cells = {"cell": {"nodes": [[], [], []]}}
            table = {"table": {"params": 5.0, "c10_test": 94.0 - seed}} if config["table"] else {}
            extra = {"converged": False, "genotype": {"cells": cells}, **table}
            write(
                place / "config.json",
                {"method": name.removesuffix("-2nd"), "order": 2 if name == "pa-2nd" else 1},
            )
            write(place / "result.json", result | figure | extra)
            (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def train(folder: Path, name: str, seed: int, **figures: float) -> None:
    write(
        folder / "train" / f"{name}-{seed}" / "result.json",
        {"params": 7, "flops": 3, "seconds": 60.0, **figures},
    )


def by_name(folder: Path) -> dict[str, comparison.Row]:
    return {
        row["method"]: row
        for row in comparison.rows(comparison.read_comparison(folder), operations=5)
    }


def test_a_row_has_mean_and_spread_of_everything(tmp_path: Path) -> None:
    rows = by_name(a_comparison(tmp_path))
    row = rows["nasp"]
    assert (row["space"], row["data"], row["seeds"], row["figure"]) == (
        "nasbench201",
        "digits",
        [0, 1, 2, 3],
        "valid_accuracy",
    )
    assert row["values"] == ACCURACY["nasp"] and row["mean"] == row[
        "valid_accuracy_mean"
    ] == pytest.approx(0.915)
    assert row["std"] == pytest.approx(np.std(ACCURACY["nasp"], ddof=1))
    assert (
        row["params_mean"] == 2_150_000 and row["seconds_mean"] == 8.0 and row["seconds_std"] == 0
    )
    assert (row["ops"], row["nodes"], row["epochs"], row["converged"]) == (5, 3, 2, 0)
    assert row["epoch_seconds"] == {
        "arch": 2,
        "forward": 1,
        "backward": 0.5,
        "other": 0.25,
        "evaluate": 0.25,
        "total": 4,
    }
    assert {name: row["order"] for name, row in rows.items()} == {
        "nasp": 1,
        "pa": 1,
        "darts-2nd": 2,
        "pa-2nd": 2,
    }


def test_runs_that_are_not_finished_are_not_counted(tmp_path: Path) -> None:
    a_comparison(tmp_path)
    for seed in range(4):
        (tmp_path / "search" / f"pa-{seed}" / "result.json").unlink()
    (tmp_path / "search" / "nasp-2" / "result.json").unlink()
    rows = by_name(tmp_path)
    assert "pa" not in rows and rows["nasp"]["seeds"] == [0, 1, 3]


def test_the_table_of_trained_cells_is_what_counts(tmp_path: Path) -> None:
    row = by_name(a_comparison(tmp_path, table="t.csv"))["nasp"]
    assert (row["figure"], row["mean"]) == ("table_accuracy", pytest.approx(0.925))
    assert row["valid_accuracy_mean"] == pytest.approx(0.915)


def test_after_training_test_figures_count(tmp_path: Path) -> None:
    a_comparison(tmp_path, train="quick", table="t.csv")
    assert by_name(tmp_path) == {}
    for seed in (0, 1):
        train(tmp_path, "nasp", seed, test_accuracy=0.5 + seed / 10)
    row = by_name(tmp_path)["nasp"]
    assert (row["figure"], row["seeds"], row["mean"]) == (
        "test_accuracy",
        [0, 1],
        pytest.approx(0.55),
    )
    assert (row["params_mean"], row["train_seconds"]) == (7, 60.0)


def test_perplexities_for_text(tmp_path: Path) -> None:
    a_comparison(tmp_path, space="rnn")
    found = comparison.read_comparison(tmp_path)
    rows = comparison.rows(found, 4)
    assert (rows[0]["figure"], rows[0]["mean"]) == ("valid_perplexity", pytest.approx(91.5))
    text = tables.files(found, rows, {})["table.md"]
    assert "| nasp | 91.50 ± 1.29 |" in text and "Error (%)" not in text
    assert "| pa-2nd | nasp |" in text  # the lower is the better
    assert convergence(found) and proximal(found) and stability(found)


def test_the_forms_of_the_paper(tmp_path: Path) -> None:
    found = comparison.read_comparison(a_comparison(tmp_path))
    rows = comparison.rows(found, 5)
    text = tables.files(found, rows, {"pa seed 9": "--epochs 0: give more"})["table.md"]
    assert "| nasp | 8.50 ± 1.29 | 2.15 ± 0.13 | 0.133 | 9.3e-05 | 4 |" in text
    assert "| nasp | 8.50 ± 1.29 | 2.15 ± 0.13 | 5 | 3 | 0.133 | 9.3e-05 | 4 |" in text
    assert "| 5 | nasp | 2 | - | 1 | 0.5 | 0.25 | 0.25 | 4 | 8.50 ± 1.29 | 2.15 |" in text
    assert "| 5 | darts-2nd | - | 2 | 1 |" in text
    assert "- pa seed 9: --epochs 0: give more" in text


def test_csv_and_json_hold_everything(tmp_path: Path) -> None:
    found = comparison.read_comparison(a_comparison(tmp_path))
    rows = comparison.rows(found, 5)
    files = tables.files(found, rows, {})
    assert json.loads(files["table.json"]) == rows
    lines = list(csv.DictReader(io.StringIO(files["table.csv"])))
    assert [line["method"] for line in lines] == list(ACCURACY)
    assert float(lines[0]["mean"]) == rows[0]["mean"] and lines[0]["seeds"] == "0 1 2 3"
    assert float(lines[0]["epoch_seconds_arch"]) == 2


def test_only_tested_differences_are_called_so(tmp_path: Path) -> None:
    found = comparison.read_comparison(a_comparison(tmp_path))
    files = tables.files(found, comparison.rows(found, 5), {})
    tested = {(pair["first"], pair["second"]): pair for pair in json.loads(files["tests.json"])}
    assert (
        tested["nasp", "pa"]["verdict"] == "different"
        and tested["nasp", "darts-2nd"]["verdict"] == "not told apart"
    )
    assert "| nasp | pa |" in files["table.md"] and "| nasp | darts-2nd |" not in files["table.md"]


def test_with_two_seeds_nothing_is_told(tmp_path: Path) -> None:
    found = comparison.read_comparison(a_comparison(tmp_path, seeds=2))
    files = tables.files(found, comparison.rows(found, 5), {})
    assert "With 2 seeds in common it cannot be told which methods differ" in files["table.md"]
    assert {pair["verdict"] for pair in json.loads(files["tests.json"])} == {"cannot be told"}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (a_comparison(tmp_path) / "search" / "nasp-0" / "result.json").write_text("{")
    with pytest.raises(InputError, match=r"nasp-0.result.json: cannot be read"):
        comparison.read_comparison(tmp_path)


# the tests themselves


def test_the_paired_test_is_that_of_scipy() -> None:
    a, b = [3.0, 4.0, 5.5, 7.0], [2.5, 3.0, 5.0, 5.0]
    (pair,) = compare_pairs(
        {"a": dict(enumerate(a)), "b": dict(enumerate(b)) | {9: 100.0}}
    )  # 9 is not in common
    assert (pair.seeds, pair.difference) == (4, pytest.approx(1.0))
    assert pair.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
    t = statistics.mean([0.5, 1.0, 0.5, 2.0]) / (statistics.stdev([0.5, 1.0, 0.5, 2.0]) / 2)
    assert pair.corrected == pair.p == pytest.approx(2 * stats.t.sf(t, df=3))


def test_holms_correction() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx(
        [0.03, 0.06, 0.06]
    )  # 3 * 0.01; 2 * 0.03, which 1 * 0.04 cannot undercut
    assert holm([0.9, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def test_what_cannot_be_told() -> None:
    assert p_value([1.0, 2.0]) is None
    assert p_value([0.0, 0.0, 0.0]) == 1.0
    assert p_value([1.0, 1.0, 1.0]) is None
    assert compare_pairs({"a": {0: 1.0}, "b": {1: 1.0}}) == []


# figures


def test_figures_are_drawn_as_vectors_and_pictures(tmp_path: Path) -> None:
    found = comparison.read_comparison(a_comparison(tmp_path))
    names = ["convergence", "proximal", "stability", "stability-nasp", "stability-darts-2nd"]
    assert draw_comparison(found, tmp_path) == [
        tmp_path / f"{name}{end}" for name in names for end in (".svg", ".png")
    ]
    text = (tmp_path / "proximal.svg").read_text()
    assert (
        "gradient of order 1" in text and "gradient of order 2" in text and "darts-2nd" not in text
    )
    assert all(name in (tmp_path / "convergence.svg").read_text() for name in ACCURACY)


def test_the_time_axis_adds_up_all_parts(tmp_path: Path) -> None:
    figure = convergence(comparison.read_comparison(a_comparison(tmp_path)))
    assert figure is not None
    line = figure.axes[0].get_lines()[0]
    assert np.allclose(line.get_xdata(), [4 / 60, 8 / 60]) and np.allclose(
        line.get_ydata(), [0.4575, 0.915]
    )


def test_A_of_darts_and_A_bar_of_nasp(tmp_path: Path) -> None:
    found = comparison.read_comparison(a_comparison(tmp_path))
    nasp, darts = found.of("nasp")[0], found.of("darts-2nd")[0]
    assert np.allclose(weights(darts, "cell").sum(-1), 1)
    assert weights(nasp, "cell")[1, 0].tolist() == [0.2, 0.5, 0.2]
    assert weights(nasp).shape == (2, 1, 6)
    assert selected_by_epoch(nasp, "cell").tolist() == [
        [[0, 1, 0], [1, 0, 0]],
        [[0, 0, 1], [1, 0, 0]],
    ]
    assert len(edges(nasp).axes) == 2


def test_without_the_selected_entries_the_largest_count(tmp_path: Path) -> None:
    nasp = comparison.read_comparison(a_comparison(tmp_path)).of("nasp")[0]
    for row in nasp.metrics:
        row.pop("selected")
    assert selected_by_epoch(nasp, "cell")[0].tolist() == [[0, 1, 0], [1, 0, 0]]


def test_nothing_to_draw(tmp_path: Path) -> None:
    a_comparison(tmp_path)
    for path in tmp_path.glob("search/*/result.json"):
        path.unlink()
    assert draw_comparison(comparison.read_comparison(tmp_path), tmp_path) == []
