"""Many runs: workers are real processes, killed for real; nothing finished is run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from proxnas.common.interrupt import Interrupted
from proxnas.runs.executors import pool
from proxnas.runs.executors.processes import LocalExecutor
from proxnas.runs.executors.progress import SilentBoard, progress_of, show_board
from proxnas.runs.executors.tasks import Outcome, RunTask
from support.stand_ins import FINISH, STAND_IN, starts, wait_for


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[RunTask]]:
    """tasks(code, ...) -> tasks that run these pieces of Python in place of proxnas."""

    def command(self: LocalExecutor, task: RunTask, slot: int) -> list[str]:
        words = original(self, task, slot)[3:]  # after python -m proxnas
        return [sys.executable, "-c", STAND_IN + textwrap.dedent(words[0]), *words[1:]]

    original = LocalExecutor.command
    monkeypatch.setattr(LocalExecutor, "command", command)
    return lambda *codes: [
        RunTask(f"t{i}", (code,), tmp_path / f"t{i}") for i, code in enumerate(codes)
    ]


def run(tasks: list[RunTask], workers: int = 1) -> list[Outcome]:
    return LocalExecutor(workers).run(tasks, SilentBoard(), lambda outcome: None)


def test_the_display_counts_what_had_ended_before(tmp_path: Path) -> None:
    for terminal, count in ((False, "5/9 e: "), (True, "5/9")):
        file = StringIO()
        with show_board(
            Console(file=file, force_terminal=terminal, width=100), "9 runs", 9, False, ended=4
        ) as board:
            board.end(Outcome(RunTask("e", (), tmp_path), 0))
        assert count in file.getvalue() and "1/" not in file.getvalue()


def test_tasks_are_run_once_and_never_again(tasks: Callable[..., list[RunTask]]) -> None:
    these = tasks(FINISH, FINISH)
    for _ in range(2):
        assert [outcome.code for outcome in run(these)] == [0, 0]
    assert [starts(task) for task in these] == [1, 1]
    threads = "--threads=auto"
    assert (
        these[0].folder / "starts"
    ).read_text() == f"--run={these[0].folder} --resume {threads}\n"


def test_two_workers_work_at_the_same_time_and_share_the_cores(
    tasks: Callable[..., list[RunTask]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the other: one after the other, they would wait for ever."""
    monkeypatch.setattr("proxnas.runs.executors.processes.available", lambda: 4)
    wait = """
    (folder / "share").write_text(os.environ["OMP_NUM_THREADS"])
    while not all((folder.parent / name / "starts").exists() for name in ("t0", "t1")):
        time.sleep(0.01)
    """
    these = tasks(textwrap.dedent(wait) + FINISH, textwrap.dedent(wait) + FINISH)
    assert [outcome.code for outcome in run(these, workers=2)] == [0, 0]
    assert (these[0].folder / "share").read_text() == "2", "of the four cores"


def test_a_worker_that_is_killed_is_replaced(tasks: Callable[..., list[RunTask]]) -> None:
    (task,) = tasks(f"if starts < 3: os.kill(os.getpid(), signal.SIGKILL)\n{FINISH}")
    assert run([task]) == [Outcome(task, 0)]
    assert starts(task) == 1 + pool.RETRIES


def test_a_worker_that_is_killed_again_and_again_is_given_up(
    tasks: Callable[..., list[RunTask]],
) -> None:
    task, other = tasks("os.kill(os.getpid(), signal.SIGKILL)", FINISH)
    failed, done = run([task, other])
    assert failed.code == -signal.SIGKILL and "killed by SIGKILL 3 times" in failed.message
    assert str(task.log) in failed.message
    assert (starts(task), done.code) == (1 + pool.RETRIES, 0)


def test_a_worker_that_somebody_stopped_goes_on(tasks: Callable[..., list[RunTask]]) -> None:
    (task,) = tasks(f"if starts < 2: os.kill(os.getpid(), signal.SIGTERM)\n{FINISH}")
    assert run([task]) == [Outcome(task, 0)]
    assert (starts(task), (task.folder / "checkpoint").exists()) == (2, True)


@pytest.mark.parametrize("code", [1, 2])
def test_a_task_that_gives_up_is_reported_once_with_its_line(
    tasks: Callable[..., list[RunTask]], code: int
) -> None:
    task, other = tasks(f'print("proxnas: error: --epochs 0: give more"); sys.exit({code})', FINISH)
    heard: list[Outcome] = []
    outcomes = LocalExecutor().run([task, other], SilentBoard(), heard.append)
    assert outcomes == heard == [Outcome(task, code, "--epochs 0: give more"), Outcome(other, 0)]
    assert starts(task) == 1


def test_a_task_without_a_result_is_not_done(tasks: Callable[..., list[RunTask]]) -> None:
    (outcome,) = run(tasks("pass"))
    assert (outcome.code, str(outcome.task.log) in outcome.message) == (1, True)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_the_rest_goes_on_later(
    tasks: Callable[..., list[RunTask]], signum: signal.Signals
) -> None:
    """Both workers write their checkpoints before the executor ends; the third task was never
    begun."""
    long = f"if starts < 2: time.sleep(60)\n{FINISH}"
    these = tasks(long, long, FINISH)

    def stop() -> None:
        wait_for(lambda: all(starts(task) for task in these[:2]))
        os.kill(os.getpid(), signum)

    threading.Thread(target=stop).start()
    before = signal.getsignal(signum)
    with pytest.raises(Interrupted) as stopped:
        run(these, workers=2)
    assert (stopped.value.exit_code, signal.getsignal(signum)) == (128 + signum, before)
    assert [(task.folder / "checkpoint").exists() for task in these] == [True, True, False]
    assert [outcome.code for outcome in run(these, workers=2)] == [0, 0, 0]
    assert [starts(task) for task in these] == [2, 2, 1]


def test_workers_end_when_their_executor_is_killed(tmp_path: Path) -> None:
    """Killed, it can tell nobody: the workers notice, and write their checkpoints."""
    code = f"""
from pathlib import Path
import sys
from proxnas.runs.executors.progress import SilentBoard
from proxnas.runs.executors.tasks import RunTask
from proxnas.runs.executors.processes import LocalExecutor
worker = [sys.executable, "-c", {STAND_IN + "time.sleep(60)"!r}]
LocalExecutor.command = lambda self, task, slot: [*worker, "--run=" + str(task.folder)]
LocalExecutor().run([RunTask("t", (), Path({str(tmp_path / "t")!r}))], SilentBoard(), print)
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        wait_for((tmp_path / "t" / "starts").exists)
        process.kill()
    wait_for((tmp_path / "t" / "checkpoint").exists)


def test_a_folder_that_another_process_holds_is_waited_for(
    tasks: Callable[..., list[RunTask]],
) -> None:
    held, other = tasks(FINISH, FINISH)
    held.folder.mkdir()
    lock = pool.FileLock(held.folder / ".lock", thread_local=False)
    lock.acquire()
    heard: list[str] = []

    def done(outcome: Outcome) -> None:
        heard.append(outcome.task.name)
        lock.release()

    assert [
        outcome.code for outcome in LocalExecutor().run([held, other], SilentBoard(), done)
    ] == [0, 0]
    assert heard == ["t1", "t0"]


def test_the_next_task_may_depend_on_how_the_last_one_ended(
    tasks: Callable[..., list[RunTask]],
) -> None:
    """Taken when there is room for it; None waits for an end, and is asked again."""
    these, heard, asked = tasks(FINISH, FINISH, FINISH), list[str](), list[int]()

    def drawn() -> Iterator[RunTask | None]:
        for task in these:
            while len(heard) < len(asked):
                yield None
            asked.append(len(heard))
            yield task

    outcomes = LocalExecutor(2).run(
        drawn(), SilentBoard(), lambda outcome: heard.append(outcome.task.name)
    )
    assert [outcome.task.name for outcome in outcomes] == heard == ["t0", "t1", "t2"]
    assert asked == [0, 1, 2]


def test_workers_take_the_devices_in_turn() -> None:
    local, task = (
        LocalExecutor(3, threads=4, devices=("cuda:0", "cuda:1")),
        RunTask("t", ("search",), Path("x")),
    )
    assert [local.command(task, slot)[-1] for slot in range(3)] == [
        "--device=cuda:0",
        "--device=cuda:1",
        "--device=cuda:0",
    ]
    assert local.command(task, 0)[3:6] == ["search", "--run=x", "--resume"]
    assert local.command(task, 0)[6] == "--threads=4"


# the display


def a_run(folder: Path, rows: int) -> RunTask:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"proxnas": "0", "epochs": 4}))
    lines = [json.dumps({"epoch": i, "valid_accuracy": i / 10}) + "\n" for i in range(1, rows + 1)]
    (folder / "metrics.jsonl").write_text(
        "".join(lines) + '{"epoch": '
    )  # the next line is being written
    return RunTask(folder.name, (), folder)


def test_progress_is_read_from_the_folder(tmp_path: Path) -> None:
    assert progress_of(a_run(tmp_path / "a", 3).folder) == (
        3,
        4,
        {"epoch": 3, "valid_accuracy": 0.3},
    )
    assert progress_of(tmp_path / "missing") == (0, None, {})


@pytest.mark.parametrize(("terminal", "quiet"), [(False, False), (True, False), (True, True)])
def test_the_board_shows_all_workers(tmp_path: Path, terminal: bool, quiet: bool) -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, highlight=False)
    a, b = a_run(tmp_path / "a", 3), a_run(tmp_path / "b", 2)
    with show_board(console, "all", 2, quiet) as board:
        board.look([a, b])
        board.end(Outcome(a, 0))
        board.end(Outcome(b, 2, "--epochs [0]: no"))
    said = text.getvalue()
    assert quiet == (said == "")
    for words in (
        "a: done in 3 epochs valid 0.300",
        "b: --epochs [0]: no",
        *(["2/2"] if not quiet else []),
    ):
        assert quiet != (words in said)
