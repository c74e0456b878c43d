"""`--processes N`: one command line, several processes, one exit code, and nobody is left
behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.runs import processes
from proxnas.runs.processes import Ended, exit_code, run_together, to_start

SMALL = [
    "--batch-size=8",
    "--channels=2",
    "--device=cpu",
    "--quiet",
    "--space=nasbench201",
    "--cells=1",
]
SMALL += ["--final-cells=1", "--final-channels=2", "--refine=0"]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """stand_in(code): Python that is run in place of proxnas, with its number as `rank`."""

    def use(code: str) -> None:
        first = (
            "import os, signal, sys, time\nfrom pathlib import Path\nrank ="
            " int(os.environ['RANK'])\n"
        )
        first += f"here = Path({str(tmp_path)!r})\n"
        monkeypatch.setattr(
            processes, "PROGRAM", (sys.executable, "-c", first + textwrap.dedent(code))
        )

    return use


def test_each_is_told_its_place_and_its_share(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "available", lambda: 8)
    names = ["WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS"]
    stand_in(f"""
        found = [os.environ[name] for name in {names}] + sys.argv[1:]
        (here / f"{{rank}}").write_text(" ".join(found) + " " + os.environ["MASTER_PORT"])
    """)
    run_together(["search", "data"], 3)
    said = [(tmp_path / str(rank)).read_text().split() for rank in range(3)]
    assert [words[:-1] for words in said] == [
        ["3", str(r), "3", "127.0.0.1", "2", "search", "data"] for r in range(3)
    ]
    assert len({words[-1] for words in said}) == 1, "they meet at one port"


@pytest.mark.parametrize(
    ("codes", "one"),
    [
        ([0, 0], 0),
        ([2, 1], 2),
        ([1, 2], 2),
        ([0, 1], 1),
        ([-9, 1], 1),
        ([143, 143], 143),
        ([130, 1], 130),
        ([-15, 1], 143),
    ],
)
def test_one_exit_code_for_all(codes: list[int], one: int) -> None:
    assert exit_code(codes) == one


def test_a_failure_ends_those_that_do_not_notice_it(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE", 0.2)
    stand_in("time.sleep(1000) if rank else sys.exit(2)")
    start = time.monotonic()
    with pytest.raises(Ended) as ended:
        run_together([], 2)
    assert ended.value.code == 2 and time.monotonic() - start < 60


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_all_of_them(
    stand_in: Any, tmp_path: Path, signum: signal.Signals
) -> None:
    stand_in(f"""
        signal.signal({int(signum)}, lambda *_: sys.exit({128 + signum}))
        (here / f"ready{{rank}}").touch()
        if rank == 0:
            while not (here / "ready1").exists():
                time.sleep(0.01)
            os.kill(os.getppid(), {int(signum)})
        time.sleep(1000)
    """)
    with pytest.raises(Ended) as ended:
        run_together([], 2)
    assert ended.value.code == 128 + signum


def test_who_starts_them_and_who_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [to_start(number) for number in (1, 2, 4)] == [0, 2, 4]
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert [to_start(number) for number in (1, 4)] == [0, 0]
    with pytest.raises(InputError, match="processes 2: torchrun has started 4 already"):
        to_start(2)


@pytest.mark.parametrize("command", ["search", "train", "fit"])
@pytest.mark.parametrize("number", ["0", "-1", "2000"])
def test_impossible_numbers_are_refused(
    command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main([command, *["zoo:DARTS_V2"] * (command == "train"), "digits", "--processes", number])
        == 2
    )
    assert f"--processes {number}: give a number from 1 to 1024" in capsys.readouterr().err


def test_more_than_the_machine_bears_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 2)
    assert to_start(8) == 8
    with pytest.raises(InputError, match=r"processes 99: there are 2 cores: .* from 1 to 8"):
        to_start(99)


@pytest.mark.parametrize("data", ["digits", "pydocs"])
def test_a_deadline_is_for_one_process(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", data, "--processes", "2", "--minutes", "5"]) == 2
    assert "--minutes 5: is for one process" in capsys.readouterr().err


def test_the_commands_hand_their_words_on(stand_in: Any, tmp_path: Path, stripes: Path) -> None:
    stand_in('(here / f"{rank}").write_text(" ".join(sys.argv[1:])); sys.exit(2)')
    for words in (
        ["search", str(stripes)],
        ["train", "zoo:DARTS_V2", str(stripes)],
        ["train", "zoo:LSTM", "pydocs"],
    ):
        argv = [*words, "--processes", "2", f"--run={tmp_path / 'run'}", "--resume"]
        assert main(argv) == 2
        assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text() == " ".join(argv)
    assert not (tmp_path / "run").exists(), "that is for them to make"


def test_one_process_is_the_plain_run(stripes: Path, tmp_path: Path) -> None:
    argv = [
        "search",
        str(stripes),
        *SMALL,
        "--epochs=1",
        "--processes=1",
        f"--run={tmp_path / 'run'}",
    ]
    assert main(argv) == 0
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["processes"] == 1
    assert "processes" not in json.loads((tmp_path / "run" / "config.json").read_text())


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "proxnas", *words]


@pytest.mark.slow
def test_a_search_by_two_is_stopped_and_goes_on(stripes: Path, tmp_path: Path) -> None:
    """As a user starts it: exit codes and lines are those of one process."""
    run = tmp_path / "run"
    argv = command(
        "search",
        str(stripes),
        *SMALL,
        "--epochs=30",
        "--processes=2",
        f"--run={run}",
        "--patience=0",
    )
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while started.poll() is None and not (run / "metrics.jsonl").exists():
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    _out, err = started.communicate(timeout=300)
    assert started.returncode == 143, err
    assert (
        err
        == "proxnas: stopped by SIGTERM; a checkpoint is written: the same command with --resume"
        " goes on\n"
    )
    again = subprocess.run([*argv, "--resume"], capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stderr
    # so short a search may end in a cell that it warns of
    assert again.stderr.count("proxnas: ") == again.stderr.count("proxnas: warning: ") <= 1
    assert again.stdout.count("run folder") == 1, "one of them speaks"
    environment = json.loads((run / "environment.json").read_text())
    assert (environment["processes"], environment["threads"]) == (2, 1)
    assert json.loads((run / "result.json").read_text())["epochs"] == 30
    twice = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert twice.returncode == 2
    assert twice.stderr.count("\n") == 1 and "holds a finished run" in twice.stderr


@pytest.mark.slow
def test_a_fit_by_two(stripes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = [
        "--search-epochs=1",
        "--epochs=1",
        "--batch-size=16",
        "--cells=2",
        "--channels=4",
        "--device=cpu",
        "--quiet",
    ]
    argv = command("fit", str(stripes), *small, "--processes=2", f"--run={run}")
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    for part in ("search", "train"):
        assert json.loads((run / part / "environment.json").read_text())["processes"] == 2
    assert 0 <= json.loads((run / "result.json").read_text())["test_accuracy"] <= 1
    assert torch.load(run / "train" / "checkpoint.pt", weights_only=True)
    assert os.path.exists(run / "model_card.md")
