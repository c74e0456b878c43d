"""Cells of sampling methods evaluated by several workers: as many as asked for, none twice, whoever
is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.methods.cells import Cell
from proxnas.methods.sampling import Sampling
from proxnas.report.listing import list_runs
from proxnas.runs.executors.processes import LocalExecutor
from proxnas.runs.executors.tasks import Board, Outcome, RunTask
from proxnas.runs.folder import open_run
from proxnas.runs.loop import InMemory, run_epochs
from proxnas.runs.metrics import Validation
from proxnas.runs.progress import Silent
from proxnas.searching import evaluations
from proxnas.searching.evaluation import EvaluationJob
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.outcome import search
from proxnas.searching.running import by_workers
from support.stand_ins import wait_for

MakeSearch = Callable[..., Search]
FLAGS = ("--space", "nasbench201", "--evaluations", "8", "--epochs", "4")
FLAGS += ("--final-cells", "1", "--final-channels", "2")


# one evaluation


def in_turn(make_search: MakeSearch, *flags: str) -> list[tuple[Cell, Validation]]:
    """Every cell of a search without workers, and how good it was."""
    this = make_search(*flags)
    assert isinstance(this.method, Sampling)
    told: list[tuple[Cell, Validation]] = []
    judged = this.method._judged

    def note(measured: Validation) -> None:
        assert isinstance(this.method, Sampling)
        told.append((this.method.cell, measured))
        judged(measured)

    this.method._judged = note  # type: ignore[method-assign]
    run_epochs(this, None, Silent())
    return told


def test_a_cell_is_evaluated_as_the_search_itself_would(make_search: MakeSearch) -> None:
    flags = ("--method", "random", "--evaluations", "3", "--epochs", "4", "--space", "darts7")
    told = in_turn(make_search, *flags)
    assert len(told) == 3
    for number in (2, 1):
        job = EvaluationJob(make_search(*flags), number, told[number][0])
        rows = run_epochs(job, None, Silent())
        assert job.measured == told[number][1]
        result = job.result(rows)
        assert (result["train"]["steps"], result["train"]["images"]) == (6, 24) and len(rows) == 2
        assert rows[-1]["valid_loss"] == result["valid"]["loss"] and "valid_loss" not in rows[0]


@pytest.mark.parametrize("space", ["nasbench201", "rnn"])
def test_an_evaluation_goes_on_where_it_was_stopped(make_search: MakeSearch, space: str) -> None:
    flags = ("--method", "random", "--evaluations", "3", "--epochs", "4", "--space", space)

    def job() -> EvaluationJob:
        this = make_search(*flags)
        assert isinstance(this.method, Sampling)
        return EvaluationJob(this, 2, this.method.first())

    whole, first, second = job(), job(), job()
    run_epochs(whole, None, Silent())
    for _ in range(3):
        first.totals.add(first.step())
    kept = InMemory()
    kept.save_checkpoint(first.state_dict())
    state = kept.load_checkpoint()
    assert state is not None
    torch.manual_seed(77)
    second.load_state_dict(state)
    run_epochs(second, None, Silent())
    assert (second.measured, second.all.count) == (whole.measured, whole.all.count)


# many, by workers that only pretend


def score(cell: object) -> float:
    """Any number that depends on the cell alone."""
    return int.from_bytes(sha256(repr(cell).encode()).digest()[:4], "big") / 2**32


def evaluated(folder: Path) -> None:
    """What a worker leaves behind; in the folder it is written how often that was done."""
    with (folder / "starts").open("a") as file:
        file.write("x")
    accuracy = score(json.loads((folder / "cell.json").read_text())["cell"])
    train = {"loss": 1.0, "accuracy": 0.5, "images": 8, "steps": 2}
    result = {"valid": {"loss": 1 - accuracy, "accuracy": accuracy}, "train": train, "seconds": 0.0}
    (folder / "result.json").write_text(json.dumps(result))


class Killed(BaseException):
    """The driver is no more."""


class Pretender:
    """So many at a time, which end in any order; after `life` ends the driver dies, before it hears
    of the next."""

    def __init__(self, workers: int, life: int = 1000) -> None:
        self.workers, self.life, self.random = workers, life, random.Random(0)
        self.most = 0

    def run(
        self, tasks: Iterable[RunTask | None], board: Board, done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        source, running, outcomes, exhausted = iter(tasks), list[RunTask](), list[Outcome](), False
        while running or not exhausted:
            while len(running) < self.workers and not exhausted:
                task = next(source, source)
                if task is None:
                    assert running, "nothing that could be waited for"
                    break
                exhausted = task is source
                if isinstance(task, RunTask):
                    running.append(task)
            self.most = max(self.most, len(running))
            if running:
                task = running.pop(self.random.randrange(len(running)))
                if not task.finished:
                    evaluated(task.folder)
                self.life -= 1
                if self.life < 0:
                    raise Killed
                outcomes.append(Outcome(task, 0))
                done(outcomes[-1])
        return outcomes


@pytest.fixture
def run_search(
    make_search: MakeSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """run_search(executor, method, folder name) -> the result of a search whose cells the executor
    evaluates."""

    def run(executor: object, method: str, name: str) -> dict[str, Any]:
        monkeypatch.setattr(evaluations, "make_executor", lambda *_: executor)
        this = make_search("--method", method, *FLAGS, "--quiet")
        with open_run(tmp_path / name, resume=True) as folder:
            (folder / "config.json").write_text('{"proxnas": ""}')
            return search(this, folder, Silent(), evaluations.run_evaluations)

    return run


def starts(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("evaluations/*/starts"))]


@pytest.mark.parametrize(
    "method",
    [
        *("random", "reinforce", "pnas", "local", "evolution", "genet"),
        pytest.param("nao", marks=pytest.mark.slow),
    ],
)
def test_as_many_as_asked_for_and_none_twice(
    run_search: Callable[..., dict[str, Any]], method: str, tmp_path: Path
) -> None:
    """What is found does not depend on how many workers there are, but for evolution, which does
    not wait."""
    one, four = Pretender(1), Pretender(4)
    results = [
        run_search(executor, method, name) for executor, name in ((one, "one"), (four, "four"))
    ]
    assert [starts(tmp_path / name) for name in ("one", "four")] == [["x"] * 8] * 2
    assert (one.most, four.most) == (
        1,
        {"reinforce": 1, "pnas": 3, "genet": 2}.get(method, 4),
    )  # an update, a level, a generation has no more
    for folder, result in zip((tmp_path / "one", tmp_path / "four"), results, strict=True):
        cells = [
            json.loads(path.read_text())["cell"] for path in folder.glob("evaluations/*/cell.json")
        ]
        assert result["valid_accuracy"] == pytest.approx(max(map(score, cells)))
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [(row["epoch"], row["step"]) for row in rows] == [(1, 4), (2, 8), (3, 12), (4, 16)]
    if method != "evolution":
        assert results[0]["genotype"] == results[1]["genotype"]


@pytest.mark.parametrize("method", ["evolution", "pnas"])
def test_a_driver_that_is_killed_again_and_again_repeats_nothing(
    run_search: Callable[..., dict[str, Any]], method: str, tmp_path: Path
) -> None:
    for life in (0, 1, 2, 4):  # it hears of so many, then dies
        with pytest.raises(Killed):
            run_search(Pretender(3, life), method, "run")
    result = run_search(Pretender(3), method, "run")
    assert starts(tmp_path / "run") == ["x"] * 8
    assert result["epochs"] == 4 and (tmp_path / "run" / "result.json").exists()
    if method != "evolution":
        assert result["genotype"] == run_search(Pretender(1), method, "undisturbed")["genotype"]


def test_one_that_fails_is_named_and_tried_again(
    run_search: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    class Failing(Pretender):
        def run(
            self, tasks: Iterable[RunTask | None], board: Board, done: Callable[[Outcome], None]
        ) -> list[Outcome]:
            def failing() -> Iterator[RunTask | None]:
                for task in tasks:
                    if task is not None and task.name == "evaluation 3":
                        outcomes.append(Outcome(task, 2, "--learning-rate 9: lower it"))
                        done(outcomes[0])
                    else:
                        yield task

            outcomes: list[Outcome] = []
            return super().run(failing(), board, done) + outcomes

    with pytest.raises(
        InputError, match="1 of 4 evaluations failed; evaluation 3: --learning-rate 9: lower it"
    ):
        run_search(Failing(1), "evolution", "run")
    assert starts(tmp_path / "run") == ["x"] * 3
    run_search(Pretender(1), "evolution", "run")
    assert starts(tmp_path / "run") == ["x"] * 8


def test_evaluations_are_no_runs_of_their_own_and_go_with_their_search(
    run_search: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run_search(Pretender(2), "random", "run")
    for place in (tmp_path / "run" / "evaluations").iterdir():
        (place / "config.json").write_text('{"proxnas": ""}')
    assert [entry["run"] for entry in list_runs(tmp_path)] == ["run"]
    with open_run(tmp_path / "run", force=True):
        pass
    left = {path.name for path in (tmp_path / "run" / "evaluations").glob("*/*")}
    assert left == {"starts"}  # which the test has put there


# on the command line


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--method", "nasp", "--workers", "2"], "--workers 2: one search by nasp is one task"),
        (
            [
                "--method",
                "random",
                "--space",
                "nasbench201",
                "--evaluate",
                "table",
                "--table",
                "t",
                "--workers",
                "2",
            ],
            "--workers 2: --evaluate table only looks cells up",
        ),
        (
            ["--method", "random", "--workers", "2", "--ray"],
            "--workers 2: with --ray the cluster says how many",
        ),
    ],
)
def test_workers_without_work_are_refused(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "digits", *flags, "--run", str(tmp_path / "run")]) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_an_evaluation_needs_a_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ([], "--run: give RUN/evaluations/NUMBER"),
        (["--run", str(tmp_path)], "not a cell to evaluate"),
    ):
        assert main(["evaluate", *words]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "cell.json").write_text('{"number": 1, "cell": 3}')
    assert main(["evaluate", "--run", str(tmp_path)]) == 2


SMALL = [
    "--cells",
    "2",
    "--channels",
    "2",
    "--batch-size",
    "8",
    "--final-cells",
    "2",
    "--device",
    "cpu",
    "--quiet",
]


def command(stripes: Path, folder: Path, *flags: str) -> list[str]:
    return ["search", str(stripes), *SMALL, "--run", str(folder), *flags]


STAND_IN = """
import os, signal, sys, time
from pathlib import Path
folder = Path(next(word for word in sys.argv if word.startswith("--run="))[6:])
began = folder / "began"
began.write_text(began.read_text() + "x" if began.exists() else "x")
if folder.name == "00001" and began.read_text() == "x":
    os.kill(os.getpid(), signal.SIGKILL)
import json
from hashlib import sha256
accuracy = sha256((folder / "cell.json").read_bytes()).digest()[0] / 256
train = dict(loss=1.0, accuracy=0.5, images=8, steps=2)
result = dict(valid=dict(loss=1, accuracy=accuracy), train=train, seconds=0.0)
(folder / "result.json").write_text(json.dumps(result))
"""
"""A worker without torch; the first that evaluates cell 1 is killed."""


def test_two_processes_evaluate_and_one_that_is_killed_is_replaced(
    stripes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stand_in(self: LocalExecutor, task: RunTask, slot: int) -> list[str]:
        return [sys.executable, "-c", STAND_IN, f"--run={task.folder}"]

    monkeypatch.setattr(LocalExecutor, "command", stand_in)
    flags = (
        "--method",
        "evolution",
        "--evaluations",
        "5",
        "--epochs",
        "2",
        "--space",
        "nasbench201",
    )
    assert main(command(stripes, tmp_path / "run", *flags, "--workers", "2")) == 0
    began = [path.read_text() for path in sorted((tmp_path / "run").glob("evaluations/*/began"))]
    assert began == ["x", "xx", "x", "x", "x"]
    capsys.readouterr()
    # without the flag it goes on with one worker; begun without workers, it cannot go on with them
    (tmp_path / "run" / "result.json").unlink()
    assert main(command(stripes, tmp_path / "run", *flags, "--resume")) == 0
    assert [
        path.read_text() for path in sorted((tmp_path / "run").glob("evaluations/*/began"))
    ] == began
    config = SearchOptions.from_values({"method": "evolution"})
    assert by_workers(config, tmp_path / "run") and not by_workers(config, tmp_path)
    (tmp_path / "run" / "result.json").unlink()
    assert main(command(stripes, tmp_path / "run", *flags, "--force")) == 0
    (tmp_path / "run" / "result.json").unlink()
    capsys.readouterr()
    assert main(command(stripes, tmp_path / "run", *flags, "--resume", "--workers", "2")) == 2
    assert "was begun without: leave it out" in capsys.readouterr().err


def children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the workers in /proc")
def test_real_workers_and_their_driver_are_killed(stripes: Path, tmp_path: Path) -> None:
    """First a worker, then the driver after the first result: in the end every cell was evaluated
    to its end once."""
    folder = tmp_path / "run"
    flags = (
        "--method",
        "evolution",
        "--evaluations",
        "5",
        "--epochs",
        "5",
        "--workers",
        "2",
        "--resume",
    )
    words = [sys.executable, "-m", "proxnas", *command(stripes, folder, *flags)]
    with subprocess.Popen(words) as process:
        wait_for(lambda: len(children(process.pid)) == 2, 120)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        wait_for(lambda: any(folder.glob("evaluations/*/result.json")), 120)
        process.kill()
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("evaluations/*/result.json")}
    time.sleep(0.5)
    assert subprocess.run(words, timeout=240).returncode == 0
    assert len(list(folder.glob("evaluations/*/result.json"))) == 5
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert json.loads((folder / "result.json").read_text())["epochs"] == 5
    assert not any(folder.glob("evaluations/*/checkpoint*.pt"))  # there may be thousands


@pytest.mark.slow
def test_random_search_finds_the_same_with_workers_and_without(
    stripes: Path, tmp_path: Path
) -> None:
    flags = ("--method", "random", "--evaluations", "3", "--epochs", "2")
    for name, workers in (("one", "1"), ("two", "2")):
        assert main(command(stripes, tmp_path / name, *flags, "--workers", workers)) == 0
    one, two = (
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")
    )
    same = ("genotype", "valid_accuracy", "params", "epochs")
    assert {key: one[key] for key in same} == {key: two[key] for key in same}
