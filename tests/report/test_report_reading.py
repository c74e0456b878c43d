"""report/reading.py, facts.py, listing.py: folders of all kinds are read, none makes the report
fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.report import reading
from proxnas.report.facts import duration, facts
from proxnas.report.listing import list_runs, table
from proxnas.report.page_data import page_data
from proxnas.report.reading import find_runs, last_row, read_rows, read_run
from support.run_folders import make_rows, make_run, make_training, write_json, write_rows


def test_a_run_is_read(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path / "a"))
    assert (record.name, record.command, record.status, len(record.rows)) == (
        "a",
        "search",
        "finished",
        4,
    )
    assert record.genotype is not None and record.genotype.kind == "cnn"
    known = facts(record)
    assert known["validation accuracy"] == f"{record.rows[-1]['valid_accuracy']:.4f}"
    assert (known["parameters"], known["time"]) == (f"{record.rows[-1]['params']:,}", "29.0 s")


def test_the_time_of_an_unfinished_run_is_that_of_all_its_epochs(tmp_path: Path) -> None:
    record = read_run(make_run(tmp_path / "a", epochs=3, finished=False))
    assert facts(record)["time"] == "21.8 s"


def test_a_torn_or_foreign_line_is_left_out(tmp_path: Path) -> None:
    rows = make_rows(3)
    lines = [
        json.dumps(rows[0]),
        "[1, 2]",
        "not JSON",
        '{"epoch": "x"}',
        json.dumps(rows[1]),
        json.dumps(rows[2])[:-9],
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(lines))
    assert [row["epoch"] for row in read_rows(path)] == [1, 2]
    assert last_row(path)["epoch"] == 2
    assert (read_rows(tmp_path / "none"), last_row(tmp_path / "none")) == ([], {})


def test_the_last_row_is_found_without_reading_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path, make_rows(20))
    path = tmp_path / "metrics.jsonl"
    for tail in (10, 1000, 10_000_000):  # shorter than a row, than the file, longer
        monkeypatch.setattr(reading, "TAIL", tail)
        assert last_row(path)["epoch"] == 20
    path.write_text("x" * 1000)
    assert last_row(path) == {}


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "null", '{"A": 1}', "\xff", '{"a": ' * 5000, '{"epochs": NaN}']
)
@pytest.mark.parametrize(
    "name", ["config.json", "environment.json", "space.json", "genotype.json", "result.json"]
)
def test_damaged_files_do_no_harm(name: str, damage: str, tmp_path: Path) -> None:
    from proxnas.report.page import report_html

    run = make_run(tmp_path / "a", epochs=2)
    (run / name).write_bytes(damage.encode("latin-1"))
    assert b"</html>" in report_html([read_run(run)])


@pytest.mark.parametrize(
    "row",
    [
        {"epoch": 2},
        {"epoch": 2, "A": 3, "selected": 3, "genotype": 3, "seconds": 3, "changes": "many"},
        {
            "epoch": 2,
            "A": {"normal": [[1], "x"]},
            "seconds": {"arch": None},
            "valid_accuracy": float("nan"),
        },
        {"epoch": 2, "A": {"normal": [[0.1, 0.2]]}, "selected": {"normal": [[99, 99], "x", [1]]}},
    ],
)
def test_rows_that_we_did_not_write_do_no_harm(row: dict[str, Any], tmp_path: Path) -> None:
    from proxnas.report.figures import FIGURES
    from proxnas.report.page import report_html

    run = make_run(tmp_path / "a", epochs=1)
    first = make_rows(1)[0]
    for rows in ([first, row], [row, first | {"epoch": 3}]):
        write_rows(
            run, [first | row if row.get("A") == {"normal": [[0.1, 0.2]]} else rows[0], rows[1]]
        )
        assert b"</html>" in report_html([read_run(run)])
        assert all(make(read_run(run)) is not None for make in FIGURES.values())


def test_status(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", finished=False)
    assert read_run(run).status == "stopped"
    with FileLock(run / ".lock"):
        assert read_run(run).status == "running"
        (shown,) = page_data([read_run(run)])["runs"]
        assert (shown["status"], shown["progress"]) == (
            "running",
            "epoch 4 of 50, about 5 min 34 s left",
        )
        assert [entry["status"] for entry in list_runs(tmp_path)] == ["running"]
    assert read_run(run).status == "stopped"
    assert (
        reading.in_use(tmp_path) is False and not (tmp_path / ".lock").exists()
    )  # looking leaves nothing behind


def test_runs_are_found_in_their_order(tmp_path: Path) -> None:
    fit = tmp_path / "fit"
    make_run(fit / "search")
    make_training(fit / "train")
    write_json(fit / "config.json", {"command": "fit"})
    for seed in (10, 2):
        make_run(tmp_path / "many" / f"seed-{seed}")
    make_run(tmp_path / "compared" / "search" / "nasp-0")
    write_json(tmp_path / "compared" / "config.json", {"command": "compare"})
    assert [record.name for record in find_runs(fit)] == ["fit", "fit/search", "fit/train"]
    assert [record.name for record in find_runs(tmp_path / "many")] == [
        "many/seed-2",
        "many/seed-10",
    ]
    names = [
        "compared",
        "compared/search/nasp-0",
        "fit",
        "fit/search",
        "fit/train",
        "many/seed-2",
        "many/seed-10",
    ]
    assert [entry["run"] for entry in list_runs(tmp_path)] == names
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(InputError, match="give the folder of a run"):
            find_runs(folder)


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        ("accuracy", "0.8750"),
        ("r2", "0.8750 R2"),
        ("map", "0.8750 mAP"),
        ("perplexity", "0.88 ppl"),
    ],
)
def test_a_list_shows_the_main_figure_whatever_is_learnt(
    figure: str, shown: str, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    found = {f"{part}_{figure}": 0.875 for part in ("valid", "test")}
    write_json(tmp_path / "a" / "config.json", {"command": "fit"})
    write_json(tmp_path / "a" / "result.json", found | {"epochs": 3, "params": 10, "seconds": 1.0})
    assert table(list_runs(tmp_path)).splitlines()[1].count(f" {shown} ") == 2


def test_duration() -> None:
    assert [duration(s) for s in (0, 59.94, 60, 3599.6, 7384)] == [
        "0.0 s",
        "59.9 s",
        "1 min 00 s",
        "1 h 00 min",
        "2 h 03 min",
    ]


def test_the_command_runs(tmp_path: Path, capsys: Any) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b[bold]", epochs=2, finished=False)
    make_training(tmp_path / "c", test_perplexity=61.25, test_accuracy=None)
    assert main(["runs", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:3] == ["a", "finished", "4"]
    assert lines[2][:3] == ["b[bold]", "stopped", "2/50"] and lines[2][-2:] == ["~14.5", "s"]
    assert lines[3][:2] == ["c", "finished"] and lines[3][2:4] == ["61.25", "ppl"]
    assert main(["runs", str(tmp_path), "--json"]) == 0
    entries = {entry["run"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["a"]["status"] == "finished" and entries["a"]["params"] > 3_000_000
    assert entries["b[bold]"]["seconds"] == 14.5 and entries["b[bold]"]["seconds_estimated"]
    (tmp_path / "empty").mkdir()
    assert main(["runs", str(tmp_path / "empty")]) == 0
    assert main(["runs", str(tmp_path / "none")]) == 2
    out, err = capsys.readouterr()
    assert "no runs in" in out and err.startswith("proxnas: error: ") and "no such folder" in err


def test_a_list_reads_small_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        make_run(tmp_path / str(number), finished=number > 0)
    monkeypatch.setattr(reading, "read_rows", lambda path: pytest.fail("all epochs were read"))
    assert len(list_runs(tmp_path)) == 3
