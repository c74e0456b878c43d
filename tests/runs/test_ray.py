"""Runs on a Ray cluster: real nodes, killed for real; and what is said where there is no Ray."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.common.interrupt import Interrupted
from proxnas.common.words import with_address
from proxnas.runs.executors import choice
from proxnas.runs.executors import ray as ray_executor
from proxnas.runs.executors.choice import ManyFlags
from proxnas.runs.executors.progress import SilentBoard
from proxnas.runs.executors.ray import RayExecutor, check_ray, fitting
from proxnas.runs.executors.tasks import Outcome, RunTask
from support.stand_ins import FINISH, STAND_IN, starts, wait_for

LIMIT = 600
"""Seconds that a test with a cluster may take."""
TOKEN = secrets.token_hex(32)


@pytest.fixture
def limited() -> Iterator[None]:
    """Nothing hangs: after LIMIT seconds the test is ended, whatever it waits for."""

    def end(signum: int, frame: object) -> None:
        raise TimeoutError(f"more than {LIMIT} seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def ray(limited: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Ray, and nothing of it left behind; with a token of its own, else it would write one into the
    home folder."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.setenv(
        "RAY_worker_niceness", "0"
    )  # its 15 would starve the workers on a busy machine
    found = pytest.importorskip("ray", reason="needs the extra: pip install 'proxnas[ray]'")
    yield found
    found.shutdown()


# what is asked for


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["digits", "--ray"], ["digits", "--ray=local"]),
        (["--ray", "--quiet"], ["--ray=local", "--quiet"]),
        (["--ray", "auto", "--quiet"], ["--ray", "auto", "--quiet"]),
        (["--ray=head:6379"], ["--ray=head:6379"]),
        ([], []),
    ],
)
def test_the_address_may_be_left_out(argv: list[str], wanted: list[str]) -> None:
    assert with_address(argv) == wanted


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"ray": "auto", "workers": 2}, "workers 2: with ray the cluster says how many"),
        ({"ray": "digits"}, "ray digits: give local, auto or HOST:PORT"),
        ({"ray": "ray://head:10001"}, "ray ray://head:10001: give"),
        ({"gpus_per_task": 1}, "gpus_per_task 1: is for ray"),
        ({"ray": "auto", "gpus_per_task": 1.5}, "gpus_per_task 1.5: give a whole number"),
        ({"cpus_per_task": -1}, "cpus_per_task -1: give"),
    ],
)
def test_impossible_flags_are_refused(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ManyFlags(**flags)


def test_a_share_of_a_gpu_and_several_cpus() -> None:
    node = {"CPU": 9.0, "GPU": 2.0}
    assert [fitting(node, 2, gpus) for gpus in (0, 0.5, 1, 2, 4)] == [4, 4, 2, 1, 0]
    assert fitting({}, 1, 0) == 0


def test_the_executor_is_what_the_flags_ask_for() -> None:
    made = choice.make_executor(
        ManyFlags(ray="auto", cpus_per_task=3, gpus_per_task=0.5), threads=2
    )
    assert isinstance(made, RayExecutor) and (made.address, made.cpus, made.gpus) == (
        "auto",
        3,
        0.5,
    )
    by_threads = choice.make_executor(ManyFlags(ray="auto"), threads=2)
    assert isinstance(by_threads, RayExecutor) and by_threads.cpus == 2


# where there is no cluster

COMMANDS = (["compare", "digits", "--methods", "nasp"], ["search", "digits", "--method", "random"])


@pytest.mark.parametrize("command", COMMANDS)
def test_without_ray_one_line_says_what_to_install(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ray_executor, "find_spec", lambda name: None)
    assert main([*command, "--run", str(tmp_path / "run"), "--ray"]) == 2
    assert (
        capsys.readouterr().err
        == "proxnas: error: --ray needs the extra: pip install 'proxnas[ray]'\n"
    )
    assert not (tmp_path / "run").exists()


def served(answer: bytes | None) -> int:
    """The port of somebody who answers every greeting like this; None: never."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection = server.accept()[0]
        connection.recv(100)
        if answer is None:
            time.sleep(5)
        else:
            connection.sendall(answer)
        connection.close()
        server.close()

    threading.Thread(target=serve, daemon=True).start()
    port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, r"no answer from 127.0.0.1:\d+ \(timed out\)"),
        (b"HTTP/1.1 400 Bad Request\r\n", "is no Ray cluster"),
    ],
)
def test_somebody_else_at_the_address_is_no_cluster(
    answer: bytes | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "find_spec", lambda name: object())
    monkeypatch.setattr(ray_executor, "ANSWER", 0.3)
    with pytest.raises(InputError, match=words):
        check_ray(f"127.0.0.1:{served(answer)}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_that_cannot_be_reached_is_said_at_once(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ray_executor, "find_spec", lambda name: object())
    assert main([*command, "--run", str(tmp_path / "run"), "--ray", "127.0.0.1:1"]) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("proxnas: error: --ray 127.0.0.1:1: no answer from 127.0.0.1:1 (")
        and "ray start" in error
    )
    assert not (tmp_path / "run").exists()


def test_a_node_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    code, message = ray_executor.work([], str(tmp_path / "missing" / "t.log"), str(tmp_path))
    assert (
        code == 2
        and str(tmp_path / "missing") in message
        and "keep runs and data where all nodes see" in message
    )


# with a cluster


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[RunTask]]:
    """tasks(code, ...) -> tasks that run these pieces of Python in place of proxnas."""

    def command(self: RayExecutor, task: RunTask) -> list[str]:
        words = original(self, task)[2:]  # after -m proxnas
        return ["-c", STAND_IN + textwrap.dedent(words[0]), *words[1:]]

    original = RayExecutor.command
    monkeypatch.setattr(RayExecutor, "command", command)
    return lambda *codes: [
        RunTask(f"t{i}", (code,), tmp_path / f"t{i}") for i, code in enumerate(codes)
    ]


def run(address: str, these: list[RunTask]) -> list[Outcome]:
    return RayExecutor(address, gpus=0).run(these, SilentBoard(), lambda outcome: None)


def test_runs_on_a_ray_of_our_own(
    ray: Any, tasks: Callable[..., list[RunTask]], capfd: pytest.CaptureFixture[str]
) -> None:
    """One that is killed is started again, one that refuses is not, and nothing is printed but by
    us."""
    killed = f"if starts < 2: os.kill(os.getpid(), signal.SIGKILL)\n{FINISH}"
    refused = 'print("proxnas: error: --epochs 0: give more"); sys.exit(2)'
    these = tasks(FINISH, killed, refused)
    before = signal.getsignal(signal.SIGTERM)
    outcomes = run("local", these)
    assert [outcome.code for outcome in outcomes] == [0, 0, 2] and outcomes[
        2
    ].message == "--epochs 0: give more"
    assert [starts(task) for task in these] == [1, 2, 1]
    assert (
        f"--run={these[0].folder} --resume --threads=1" in (these[0].folder / "starts").read_text()
    )
    assert (signal.getsignal(signal.SIGTERM), ray.is_initialized()) == (before, False)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def cluster(ray: Any) -> Iterator[Any]:
    """A head without CPUs and two nodes of two."""
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": ray_executor.STORE}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **store}
    )
    made.workers = [made.add_node(num_cpus=2, **store) for _ in range(2)]
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
def test_tasks_of_a_node_that_dies_go_to_another(
    cluster: Any, tasks: Callable[..., list[RunTask]]
) -> None:
    """Four hold out, two a node, until one node is killed and its runs are gone; then they may end.
    Those of the other node were not started again."""
    wait = '(folder / "pid").write_text(str(os.getpid()))\n'
    wait += 'while not (folder.parent / "go").exists(): time.sleep(0.05)\n'
    these = tasks(*[wait + FINISH] * 4)

    def gone(task: RunTask) -> bool:
        try:
            os.kill(int((task.folder / "pid").read_text()), 0)
        except ProcessLookupError:
            return True
        return False

    def disturb() -> None:
        wait_for(lambda: all((task.folder / "pid").exists() for task in these))
        cluster.remove_node(cluster.workers[0], allow_graceful=False)
        wait_for(lambda: sum(map(gone, these)) == 2)
        (these[0].folder.parent / "go").write_text("")

    thread = threading.Thread(target=disturb)
    thread.start()
    outcomes = run(cluster.address, these)
    thread.join(LIMIT)
    assert [outcome.code for outcome in outcomes] == [0] * 4
    assert sorted(starts(task) for task in these) == [1, 1, 2, 2]


@pytest.mark.slow
def test_a_signal_reaches_the_workers_of_a_cluster(
    cluster: Any, tasks: Callable[..., list[RunTask]]
) -> None:
    long = f"if starts < 2: time.sleep(60)\n{FINISH}"
    these = tasks(long, long)

    def stop() -> None:
        wait_for(lambda: all(starts(task) for task in these))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop).start()
    with pytest.raises(Interrupted):
        run(cluster.address, these)
    assert [(task.folder / "checkpoint").exists() for task in these] == [True, True]
    assert [outcome.code for outcome in run(cluster.address, these)] == [0, 0]


@pytest.mark.slow
def test_a_sweep_survives_the_death_of_a_node(cluster: Any, stripes: Path, tmp_path: Path) -> None:
    """Twelve searches; a node is killed when some are finished: none is lost, none of those is run
    again."""
    flags = {"cells": 2, "channels": 2, "batch_size": 8, "final_cells": 2, "final_channels": 4}
    (tmp_path / "search.json").write_text(json.dumps(flags))
    words = [
        "sweep",
        str(stripes),
        "--eta",
        "0,0.1,1,10",
        "--seeds",
        "0,1,2",
        "--epochs",
        "2",
        "--quiet",
    ]
    words += ["--search-config", str(tmp_path / "search.json"), "--run", str(tmp_path / "run")]
    folder = tmp_path / "run" / "search"
    command = [sys.executable, "-m", "proxnas", *words, "--ray", cluster.address]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(lambda: len(list(folder.glob("*/result.json"))) >= 3, LIMIT)
            finished = {path: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}
            cluster.remove_node(cluster.workers[0], allow_graceful=False)
            output, errors = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    assert len(list(folder.glob("*/result.json"))) == 12 and "eta" in output
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    rows = json.loads((tmp_path / "run" / "table.json").read_text())
    assert [row["seeds"] for row in rows] == [[0, 1, 2]] * 4
    # at most the two tasks of the dead node were begun again, and none that had ended
    logs = [log.read_text() for log in (folder / "logs").glob("*.log")]
    assert max(log.count("run folder") for log in logs) == 1
    assert sum(log.count("epoch 1/2") for log in logs) <= 14
    assert [len(path.read_text().splitlines()) for path in folder.glob("*/metrics.jsonl")] == [
        2
    ] * 12
