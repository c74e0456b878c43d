"""`--minutes`: epochs are chosen by a measurement, once, and stored; and the clock ends what takes
longer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxnas.cells.genotype import Genotype
from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.config_file import read_values
from proxnas.common.errors import InputError
from proxnas.common.launch import ProcessPlace, taking
from proxnas.common.quantities import whole_numbers
from proxnas.common.words import words_for
from proxnas.runs.deadline import Deadline, deadline_of
from proxnas.runs.executors.tasks import Outcome, RunTask, share_time
from proxnas.runs.loop import run_epochs
from proxnas.runs.options import storable
from proxnas.runs.progress import Silent
from proxnas.searching import refine as refining
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.workflows import study
from proxnas.workflows.compare import CompareConfig
from proxnas.workflows.jobs import fitted_to_minutes

SMALL = [
    "--space",
    "nasbench201",
    "--channels",
    "2",
    "--batch-size",
    "20",
    "--final-cells",
    "1",
    "--threads",
    "1",
]
BENCH = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|none~1|skip_connect~2|"
TRAIN = ["--cells=1", "--channels=4", "--batch-size=16", "--threads=1", "--device=cpu", "--quiet"]


class Clock:
    """Seconds that pass only when they are told to: one with each step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(
            "proxnas.runs.deadline.time", SimpleNamespace(monotonic=lambda: self.now)
        )
        monkeypatch.setattr(Silent, "step", lambda progress, changes: self.tick())

    def tick(self) -> None:
        self.now += 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(Deadline, "note", lambda deadline, row: None)  # evaluations take no time
    return Clock(monkeypatch)


@pytest.fixture
def argv(stripes: Path, tmp_path: Path) -> list[str]:
    return [
        "search",
        str(stripes),
        *SMALL,
        "--quiet",
        "--minutes",
        "1",
        "--run",
        str(tmp_path / "run"),
    ]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """An epoch takes 25 s, whoever asks; the list grows by one with each measurement."""
    calls: list[Any] = []

    def measure(job: Any, validation: Any) -> tuple[float, int]:
        calls.append(job)
        return 25.0, 0

    monkeypatch.setattr("proxnas.workflows.plan.measure", measure)
    return calls


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


# epochs are chosen


def test_as_many_epochs_as_fit_chosen_once(
    argv: list[str], measured: list[Any], clock: Clock, tmp_path: Path
) -> None:
    assert main(argv) == 0
    stored = read_values(tmp_path / "run" / "config.json", SearchOptions)
    assert (stored["epochs"], stored["minutes"], len(measured)) == (2, 1.0, 1)
    (tmp_path / "run" / "result.json").unlink()
    assert main([*argv, "--resume"]) == 0
    again = [
        "search",
        "--config",
        str(tmp_path / "run" / "config.json"),
        "--run",
        str(tmp_path / "again"),
        "--quiet",
    ]
    assert main(again) == 0
    assert len(measured) == 1
    assert len(rows(tmp_path / "run")) == 2 and rows(tmp_path / "run") == rows(tmp_path / "again")


def test_at_least_one_epoch_and_at_most_those_of_the_protocol(
    stripes: Path, measured: list[Any]
) -> None:
    words = [str(stripes), *SMALL]
    config = parse_search(words)
    assert fitted_to_minutes(config, Deadline(6.0)).epochs == 1
    assert fitted_to_minutes(config, Deadline(1e6)).epochs == config.epochs


def test_seeds_share_the_time(stripes: Path, measured: list[Any], clock: Clock) -> None:
    config = parse_search([str(stripes), *SMALL, "--seeds", "0,1,2"])
    assert fitted_to_minutes(config, Deadline(3 * 50.0)).epochs == 2


def test_a_training_chooses_its_epochs_too(
    stripes: Path, measured: list[Any], clock: Clock, tmp_path: Path, capsys: Any
) -> None:
    argv = ["train", BENCH, str(stripes), *TRAIN, "--minutes", "1", "--run"]
    assert main([*argv, str(tmp_path / "a")]) == 0
    assert result(tmp_path / "a")["epochs"] == 2
    assert (
        main([*argv, str(tmp_path / "b"), "--epochs", "1"]) == 0
    )  # as asked, and the clock besides
    assert result(tmp_path / "b")["epochs"] == 1 and len(measured) == 1
    assert main([*argv[:-3], "--minutes=-1", "--run", str(tmp_path / "c")]) == 2
    assert "--minutes -1.0: give a number" in capsys.readouterr().err


# the clock ends it


def test_a_search_that_took_longer_stops_after_a_step_and_goes_on_with_more_time(
    stripes: Path, clock: Clock, tmp_path: Path
) -> None:
    """80 images halved, 20 at a time: 2 steps an epoch of one second each."""
    argv = ["search", str(stripes), *SMALL, "--quiet", "--refine", "0", "--epochs", "3", "--run"]
    assert main([*argv, str(tmp_path / "whole")]) == 0
    assert main([*argv, str(tmp_path / "cut"), "--minutes", str(3 / 60)]) == 0
    cut = result(tmp_path / "cut")
    assert (cut["stopped"], cut["epochs"]) == ("minutes", 2) and cut["valid_accuracy"] >= 0
    assert [row["step"] for row in rows(tmp_path / "cut")] == [2, 3]
    assert (
        Genotype.from_object(cut["genotype"]).to_json()
        == (tmp_path / "cut" / "genotype.json").read_text()
    )
    assert main([*argv, str(tmp_path / "cut"), "--resume"]) == 0  # no more time: as it was
    assert result(tmp_path / "cut") == cut
    clock.now = 0.0
    assert main([*argv, str(tmp_path / "cut"), "--resume", "--minutes", "5"]) == 0
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    assert "stopped" not in result(tmp_path / "cut")
    assert read_values(tmp_path / "cut" / "config.json", SearchOptions)["minutes"] == 5


def test_a_training_that_took_longer_is_tested_and_goes_on_with_more_time(
    stripes: Path, clock: Clock, tmp_path: Path
) -> None:
    """72 images, 16 at a time: 4 steps an epoch of one second each."""
    argv = ["train", BENCH, str(stripes), *TRAIN, "--epochs", "3", "--run"]
    assert main([*argv, str(tmp_path / "whole")]) == 0
    assert main([*argv, str(tmp_path / "cut"), "--minutes", str(6 / 60)]) == 0
    cut = result(tmp_path / "cut")
    assert (cut["stopped"], cut["epochs"], cut["test_images"]) == ("minutes", 2, 20)
    assert [row["step"] for row in rows(tmp_path / "cut")] == [4, 6]
    assert main([*argv, str(tmp_path / "cut"), "--resume", "--minutes", "0"]) == 0
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    for name in ("test_loss", "best_epoch", "valid_accuracy"):
        assert result(tmp_path / "cut")[name] == result(tmp_path / "whole")[name]


def test_an_evaluation_has_its_time_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    deadline = Deadline(10.0)
    deadline.take_up(
        [{"seconds": {"forward": 1.0, "evaluate": 2.0}}]
    )  # an earlier call: 3 s are gone
    clock.now = 4.9
    assert not deadline.over()
    clock.now = 5.0
    assert deadline.over()
    deadline.note({"seconds": {"evaluate": 0.0}})
    assert deadline.over()  # once over it stays over


def test_what_would_choose_in_its_last_step_chooses_when_time_is_over(
    make_search: Callable[..., Search], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = make_search("--method", "random-ws", "--epochs", "3")
    method: Any = search.method
    chosen = method._draw()
    monkeypatch.setattr(method, "choose", lambda: chosen)
    run_epochs(search, None, Silent(), Deadline(1.0))
    assert (search.steps_done, search.epochs_done) == (1, 1) and method.best is chosen


def test_nothing_is_refined_when_time_is_over(
    stripes: Path, clock: Clock, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(refining, "_rounds", lambda *args: 1 / 0)
    argv = [
        "search",
        str(stripes),
        *SMALL,
        "--quiet",
        "--refine",
        "3",
        "--epochs",
        "2",
        "--run",
        str(tmp_path),
    ]
    assert main([*argv, "--minutes", str(3 / 60)]) == 0
    assert "refined" not in result(tmp_path)


def test_a_refinement_stops_when_time_is_over(stripes: Path, clock: Clock, tmp_path: Path) -> None:
    """2 seconds for the search; the short trainings have 60 steps each at least, and 8 seconds."""
    argv = [
        "search",
        str(stripes),
        *SMALL,
        "--quiet",
        "--refine",
        "3",
        "--epochs",
        "1",
        "--run",
        str(tmp_path),
    ]
    assert main([*argv, "--minutes", str(10 / 60)]) == 0
    assert clock.now == 10 and result(tmp_path)["refined"]["changed"] is False
    assert rows(tmp_path / "refined")[-1]["step"] == 8


def test_several_processes_have_no_common_clock() -> None:
    with taking(ProcessPlace(1, 2)):
        assert deadline_of(1.0).left() == math.inf


# shared by many runs


def test_each_run_gets_an_equal_share_of_what_is_left(clock: Clock) -> None:
    tasks = [RunTask(f"run {i}", ("search", "digits"), Path(f"run-{i}")) for i in range(4)]
    minutes = []
    for task in share_time(
        tasks, Deadline(600.0), workers=2, later=4
    ):  # two pairs here, two pairs later
        minutes.append(float(task.argv[-1].removeprefix("--minutes=")))
        clock.now += 60.0
    assert minutes == pytest.approx([10 / 4, 9 / 4, 8 / 3, 7 / 3], abs=1e-3)
    assert [task.argv for task in share_time(tasks, Deadline(), 1)] == [task.argv for task in tasks]
    assert list(share_time(tasks, Deadline(0.0), 1)) == []


def test_a_run_that_there_was_no_time_for_is_said_to_be_missing(
    clock: Clock, tmp_path: Path
) -> None:
    outcomes: list[Outcome] = []
    config = CompareConfig(data="digits", minutes=0.5, quiet=True)
    task = RunTask("nasp seed 0", ("search", "digits"), tmp_path / "run")
    study._run(config, [task], outcomes.append, Deadline(0.0))
    assert [(outcome.task, outcome.code) for outcome in outcomes] == [(task, 2)]
    assert outcomes[0].message.startswith("the 0.5 minutes were over before it began")


def test_a_configuration_as_words_gives_the_same_again() -> None:
    of_gdas = ["digits", "--method", "gdas", "--fixed-reduction", "--tau-end", "0.2"]
    for words in (of_gdas, ["pydocs", "--space", "rnn"]):
        config = parse_search(words)
        assert parse_search(words_for(storable(config))) == config


def test_lists_of_seeds() -> None:
    assert whole_numbers("--seeds", "3,1") == [3, 1]
    with pytest.raises(InputError, match="--seeds '1,,2': give whole numbers"):
        whole_numbers("--seeds", "1,,2")
