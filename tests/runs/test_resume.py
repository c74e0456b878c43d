"""A run that is stopped or killed at any moment and resumed ends exactly as one that was left
alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proxnas.cli.main import main
from proxnas.common.config_file import read_values
from proxnas.runs.progress import Silent
from proxnas.searching.options import SearchOptions

EPOCHS, STEPS = 3, 5  # 200 images: a fifth for testing, half of the rest in batches of 16
SIZES = {"cells": 1, "channels": 8, "final-cells": 1, "final-channels": 4, "batch-size": 16}
SMALL = [f"--{name}={n}" for name, n in SIZES.items()]
SMALL += ["--space", "nasbench201", "--learning-rate", "0.2"]
SMALL += ["--threads", "1", "--device", "cpu", "--quiet"]
METHODS = ["nasp", pytest.param("darts-1st", marks=pytest.mark.slow)]
"""Every method is resumed in the tests of methods, from what it says its state is."""
EVERY_STEP = ["--checkpoint-minutes", "0"]

FORKED = multiprocessing.get_context("forkserver")  # real processes that need not import torch anew
PRELOAD = [
    "pytest",
    "proxnas.searching.job",
    "proxnas.runs.progress",
    "proxnas.cli.search",
    "torch._dynamo",
]
FORKED.set_forkserver_preload(PRELOAD)


def work(argv: list[str]) -> None:
    sys.exit(main(argv))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.RandomState(0)
    y = np.arange(200) % 4
    x = random.randint(0, 100, (200, 8, 8)).astype(np.uint8)
    for label in range(4):
        x[y == label, 2 * label : 2 * label + 2] += 120
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    np.savez(path, x_train=x, y_train=y)
    return path


@pytest.fixture(scope="module", params=METHODS)
def alone(
    request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The command line of a method's search, with the folder of its uninterrupted run as last
    word."""
    argv = [
        "search",
        str(data),
        *SMALL,
        "--epochs",
        str(EPOCHS),
        "--method",
        request.param,
        "--run",
    ]
    folder = str(tmp_path_factory.mktemp(request.param) / "alone")
    assert main([*argv, folder]) == 0
    rows = outcome(Path(folder))["metrics"]
    learns = rows[-1]["valid_accuracy"] > 0.4 and sum(row["changes"] for row in rows) > 0
    assert learns and all(a["A"] != b["A"] for a, b in pairwise(rows)), (
        "nothing to compare: choose another seed"
    )
    return [*argv, folder]


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], None]]:
    """interrupt_after(n, signum): a signal arrives during the n-th step from now on."""

    def arrange(number: int, signum: int) -> None:
        steps = iter(range(1, 1000))
        monkeypatch.setattr(
            Silent,
            "step",
            lambda self, changes: signal.raise_signal(signum) if next(steps) == number else None,
        )

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield arrange
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must be equal to the bit: genotype.json, metrics.jsonl and result.json but
    for the clock."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds")
        row.pop("memory", None)
    result = json.loads((folder / "result.json").read_text())
    result.pop("seconds")
    return {"genotype": (folder / "genotype.json").read_bytes(), "metrics": rows, "result": result}


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in files
    }


def stored_state(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(folder / "checkpoint.pt", weights_only=True)["state"]
    return state


# stopped by a signal


@pytest.mark.parametrize("step", [1, STEPS, STEPS + 2, EPOCHS * STEPS - 1])
def test_stopped_and_resumed_ends_the_same(
    alone: list[str],
    tmp_path: Path,
    step: int,
    interrupt_after: Callable[[int, int], None],
    capsys: Any,
) -> None:
    *argv, folder = alone
    interrupt_after(step, signal.SIGTERM)
    assert main([*argv, str(tmp_path)]) == 143
    assert "checkpoint is written: the same command with --resume" in capsys.readouterr().err
    state = stored_state(tmp_path)
    assert (
        STEPS * state["epochs_done"] + state["totals"]["steps"] == step
    )  # in the middle of an epoch
    assert not (tmp_path / "result.json").exists()
    assert main([*argv, str(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == outcome(Path(folder))


def test_stopped_after_every_step_ends_the_same(
    alone: list[str], tmp_path: Path, interrupt_after: Callable[[int, int], None]
) -> None:
    """In two epochs; the last is as the second."""
    *argv, folder = alone
    for _ in range(2 * STEPS):
        interrupt_after(1, signal.SIGINT)
        assert main([*argv, str(tmp_path), "--resume"]) == 130
    assert main([*argv, str(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == outcome(Path(folder))


def test_a_second_signal_is_handled_as_without_us(
    alone: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    *argv, folder = alone

    def twice(self: Silent, changes: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background starts with none
    with monkeypatch.context() as patch:
        patch.setattr(Silent, "step", twice)
        assert main([*argv, str(tmp_path)]) == 130
    signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "proxnas: stopped\n"
    assert stored_state(tmp_path)["totals"]["steps"] == 0  # the one of the start
    assert main([*argv, str(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == outcome(Path(folder))


def test_an_error_in_the_middle_can_be_resumed(
    alone: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    *argv, folder = alone
    with monkeypatch.context() as patch:
        patch.setattr("proxnas.searching.job.write_atomically", lambda *_: 1 / 0)
        assert main([*argv, str(tmp_path)]) == 1
    assert "Traceback" in capsys.readouterr().err
    assert (
        len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    )  # ahead of the checkpoint, so cut back
    assert main([*argv, str(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == outcome(Path(folder))


# killed


def wait_for(ready: Callable[[], bool], alive: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while alive() and not ready():
        assert time.monotonic() < limit
        time.sleep(0.001)


def kill_when(argv: list[str], ready: Callable[[], bool]) -> bool:
    """Runs the command in a process of its own and kills it; whether it was still running then."""
    process = FORKED.Process(target=work, args=(argv,))
    process.start()
    wait_for(ready, process.is_alive)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def lines(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "before the first checkpoint": lambda folder: (folder / "config.json").exists(),
    "while a checkpoint is written": lambda folder: (folder / "checkpoint.pt.part").exists(),
    "after the first line": lambda folder: lines(folder) > 0,
    "after the second line": lambda folder: lines(folder) > 1,
}


LATE = "after the second line"
"""As after the first, but for the checkpoint before the last."""


@pytest.mark.parametrize(
    "moment", [pytest.param(m, marks=[pytest.mark.slow] if m == LATE else []) for m in MOMENTS]
)
def test_killed_and_resumed_ends_the_same(alone: list[str], tmp_path: Path, moment: str) -> None:
    *argv, folder = alone
    assert kill_when([*argv, str(tmp_path), *EVERY_STEP], lambda: MOMENTS[moment](tmp_path))
    assert not (tmp_path / "result.json").exists()
    assert main([*argv, str(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == outcome(Path(folder))


def test_killed_again_and_again_ends_the_same(alone: list[str], tmp_path: Path) -> None:
    *argv, folder = alone
    random, killed = np.random.RandomState(0), 0
    for _ in range(6):
        until = [float("inf")]  # a random delay after the search itself has begun

        def ready(until: list[float] = until, delay: float = random.uniform(0, 0.3)) -> bool:
            if (tmp_path / "environment.json").exists():
                until[0] = min(until[0], time.monotonic() + delay)
            return time.monotonic() >= until[0]

        killed += kill_when([*argv, str(tmp_path), *EVERY_STEP, "--resume"], ready)
    assert killed > 2
    assert main([*argv, str(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == outcome(Path(folder))


@pytest.mark.parametrize("alone", ["nasp"], indirect=True)
@pytest.mark.parametrize(
    ("signum", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.slow),  # as killed above
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),  # as after every step above
    ],
)
def test_the_command_itself_stopped_and_resumed(
    alone: list[str], tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    *argv, folder = alone
    command = [sys.executable, "-m", "proxnas", *argv, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: lines(tmp_path) > 0, lambda: process.poll() is None)
        os.kill(process.pid, signum)
        _, error = process.communicate()
    assert process.returncode == code
    assert "Traceback" not in error
    assert (code < 0) == (error == "")
    if code > 0:
        assert 0 < stored_state(tmp_path)["totals"]["steps"] <= STEPS
    if signum == signal.SIGKILL:
        done = subprocess.run([*command, "--resume"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    else:  # the same, without the two seconds that importing torch takes
        assert main([*argv, str(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == outcome(Path(folder))


# what --resume accepts


def of_two_epochs(data: Path, folder: Path) -> list[str]:
    return ["search", str(data), *SMALL, "--epochs", "2", "--run", str(folder)]


@pytest.fixture(scope="module")
def finished_once(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(of_two_epochs(data, folder)) == 0
    return folder


@pytest.fixture
def finished(data: Path, finished_once: Path, tmp_path: Path) -> list[str]:
    """The command line of a finished run, of which this is a copy."""
    shutil.copytree(finished_once, tmp_path / "run")
    return of_two_epochs(data, tmp_path / "run")


def test_resuming_a_finished_run_prints_its_result_and_changes_nothing(
    finished: list[str], data: Path, tmp_path: Path, capsys: Any
) -> None:
    assert main([*finished, "--force"]) == 0
    said = capsys.readouterr().out
    assert "validation accuracy" in said
    before = snapshot(tmp_path / "run")
    assert main([*finished, "--resume"]) == 0
    assert capsys.readouterr().out == said
    assert (
        main(["search", "--run", str(tmp_path / "run"), "--resume"]) == 0
    )  # the folder knows the rest
    assert capsys.readouterr().out == said
    assert snapshot(tmp_path / "run") == before


def test_the_previous_checkpoint_ends_the_same(finished: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = outcome(folder)
    (folder / "checkpoint.pt").unlink()
    (folder / "result.json").unlink()
    assert main([*finished, "--resume"]) == 0
    assert outcome(folder) == before


def test_a_run_that_only_lacks_its_result_gets_it(finished: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = outcome(folder)
    (folder / "result.json").unlink()
    assert main(["search", "--run", str(folder), "--resume", "--quiet"]) == 0
    assert outcome(folder) == before


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("--batch-size 3", "--batch-size 3"),
        ("--seed 1", "--seed 1"),
        ("--method darts-1st", "--method darts-1st"),
        ("--preset paper", "--preset paper"),
        ("--eta 0.5", "--eta 0.5"),
        ("--seeds 0,1", "--seeds 0,1"),
        ("--space darts8", "--space darts8"),
    ],
)
def test_a_flag_that_contradicts_is_named(
    finished: list[str], tmp_path: Path, extra: str, said: str, capsys: Any
) -> None:
    capsys.readouterr()
    before = snapshot(tmp_path / "run")
    assert main([*finished, "--resume", *extra.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"proxnas: error: {said}: the run in {tmp_path / 'run'} was started with"
    )
    assert error.count("\n") == 1
    assert snapshot(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("epochs", "said"), [(3, "cannot be made longer, because"), (1, "can only be made longer")]
)
def test_a_run_on_a_schedule_is_neither_made_longer_nor_shorter(
    finished: list[str], tmp_path: Path, epochs: int, said: str, capsys: Any
) -> None:
    before = snapshot(tmp_path / "run")
    assert main([*finished, "--resume", "--epochs", str(epochs)]) == 2
    assert said in capsys.readouterr().err
    assert snapshot(tmp_path / "run") == before


def test_other_data_contradict(finished: list[str], tmp_path: Path, capsys: Any) -> None:
    assert main(["search", "digits", "--run", str(tmp_path / "run"), "--resume"]) == 2
    assert "proxnas: error: DATA digits: the run in" in capsys.readouterr().err


def test_a_config_file_that_contradicts_is_noticed(
    finished: list[str], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "c.json").write_text('{"clip": 0.5}')
    assert main([*finished, "--resume", "--config", str(tmp_path / "c.json")]) == 2
    assert "--clip 0.5: the run in" in capsys.readouterr().err


def test_resume_takes_the_stored_threads_and_may_change_them(
    finished: list[str], tmp_path: Path
) -> None:
    """Other threads may add up in another order: a resumed run would no longer be identical."""
    folder = tmp_path / "run"
    before = torch.get_num_threads()
    for extra, threads in (([], 1), (["--threads", "2"], 2)):
        (folder / "result.json").unlink()
        torch.set_num_threads(2)
        assert main(["search", "--run", str(folder), "--resume", "--quiet", *extra]) == 0
        assert json.loads((folder / "environment.json").read_text())["threads"] == threads
    torch.set_num_threads(before)


def test_resume_in_an_empty_or_missing_folder_starts(
    finished: list[str], data: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        assert main([*finished[:-1], str(tmp_path / name), "--resume"]) == 0
        assert outcome(tmp_path / name) == outcome(tmp_path / "run")
        assert "resume" not in read_values(tmp_path / name / "config.json", SearchOptions)


def test_a_moved_folder_can_be_resumed(finished: list[str], tmp_path: Path) -> None:
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    assert main([*finished[:-1], str(tmp_path / "moved"), "--resume"]) == 0


@pytest.mark.parametrize("size", [0, 1000, -1])
def test_a_damaged_checkpoint_is_told_and_the_previous_ends_the_same(
    finished: list[str], tmp_path: Path, size: int, capsys: Any
) -> None:
    folder = tmp_path / "run"
    before = outcome(folder)
    (folder / "result.json").unlink()
    (folder / "checkpoint.pt").write_bytes((folder / "checkpoint.pt").read_bytes()[:size])
    capsys.readouterr()
    assert main([*finished, "--resume"]) == 0
    said = capsys.readouterr().err
    assert said.startswith(
        f"proxnas: {folder / 'checkpoint.pt'}: damaged or truncated, kept as checkpoint.damaged.pt"
    )
    assert said.count("\n") == 1
    assert outcome(folder) == before


def test_without_a_sound_checkpoint_nothing_is_harmed(
    finished: list[str], tmp_path: Path, capsys: Any
) -> None:
    folder = tmp_path / "run"
    (folder / "result.json").unlink()
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (folder / name).write_bytes((folder / name).read_bytes()[:1000])
    before = snapshot(folder)
    capsys.readouterr()
    assert main([*finished, "--resume"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"proxnas: error: {folder / 'checkpoint.pt'}: the checkpoint is damaged or truncated, and "
    )
    assert error.count("\n") == 1
    assert snapshot(folder) == before


# several seeds


def many(data: Path, folder: Path, *more: str) -> list[str]:
    argv = [
        "search",
        str(data),
        *SMALL,
        "--epochs",
        "2",
        "--seeds",
        "0,1",
        "--pick",
        "--run",
        str(folder),
    ]
    return [*argv, *more]


def test_several_seeds_stopped_in_the_second_go_on_there(
    data: Path, tmp_path: Path, interrupt_after: Callable[[int, int], None]
) -> None:
    assert main(many(data, tmp_path / "alone")) == 0
    interrupt_after(3 * STEPS, signal.SIGTERM)
    assert main(many(data, tmp_path / "run")) == 143
    first = snapshot(tmp_path / "run" / "seed-0")
    assert main(many(data, tmp_path / "run", "--resume")) == 0
    assert snapshot(tmp_path / "run" / "seed-0") == first
    for seed in ("seed-0", "seed-1"):
        assert outcome(tmp_path / "run" / seed) == outcome(tmp_path / "alone" / seed)
    results = [
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("run", "alone")
    ]
    assert [result.pop("seconds") > 0 for result in results] == [True, True]
    assert results[0] == results[1]


def test_seeds_of_an_overwritten_run_are_not_taken_for_new_ones(
    data: Path, tmp_path: Path, interrupt_after: Callable[[int, int], None]
) -> None:
    assert main(many(data, tmp_path)) == 0
    interrupt_after(2, signal.SIGTERM)
    assert main(many(data, tmp_path, "--force", "--clip", "0.5")) == 143
    assert main(many(data, tmp_path, "--resume", "--clip", "0.5")) == 0
    stored = [
        read_values(tmp_path / name / "config.json", SearchOptions)["clip"]
        for name in (".", "seed-0", "seed-1")
    ]
    assert stored == [0.5, 0.5, 0.5]


def test_a_seed_of_another_run_is_refused(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(many(data, tmp_path)) == 0
    for path in tmp_path.glob("*.json"):
        path.unlink()
    assert main(many(data, tmp_path, "--resume", "--clip", "0.5")) == 2
    assert (
        f"--clip 0.5: the run in {tmp_path / 'seed-0'} was started with 5.0"
        in capsys.readouterr().err
    )
