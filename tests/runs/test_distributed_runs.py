"""Runs by two processes, as the command line does them: one folder, one message, stopped and
resumed together."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from proxnas.cli.main import main
from proxnas.core.supernet import Supernet
from proxnas.runs.checkpoint import digest
from support.dying import at_step, die, quietly
from support.places import TESTS
from support.team import Job, free_port

EPOCHS = 3  # of 5 steps: 40 images for w, 8 a step
SMALL = [
    "--batch-size=8",
    "--channels=2",
    "--device",
    "cpu",
    "--threads",
    "1",
    "--quiet",
    "--epochs",
    str(EPOCHS),
]
SEARCH = [*SMALL, "--space", "nasbench201", "--cells=1", "--final-cells=1", "--final-channels=2"]


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def with_bad_loss(argv: list[str]) -> int:
    """The command; one of the processes once has a loss that is not finite."""
    right, calls = Supernet.loss, iter(range(1000))

    def wrong(self: Supernet, *args: Any, **kwargs: Any) -> Any:
        loss, output = right(self, *args, **kwargs)
        return (loss * torch.nan if next(calls) == 15 else loss), output

    if os.environ["RANK"] == "1":
        Supernet.loss = wrong  # type: ignore[method-assign]
    return quietly(argv)


def outcome(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """All that must not depend on what happened by the way."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    state = torch.load(folder / "checkpoint.pt", weights_only=True)["state"]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows], digest(state)


@pytest.fixture(scope="module")
def alone(stripes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search by two processes that nothing befell."""
    folder = tmp_path_factory.mktemp("alone")
    job = Job(
        folder / "log", 2, quietly, ["search", str(stripes), *SEARCH, "--run", str(folder / "run")]
    )
    assert job.codes() == [0, 0], job.said()
    assert "nor_conv" in job.logs[0].with_suffix(".out").read_text()
    assert job.logs[1].with_suffix(".out").read_text() == "", "one of them speaks"
    return folder / "run"


def test_one_of_them_writes(alone: Path) -> None:
    assert json.loads((alone / "environment.json").read_text())["processes"] == 2
    assert json.loads((alone / "result.json").read_text())["epochs"] == EPOCHS
    assert len(outcome(alone)[0]) == EPOCHS
    assert {path.name for path in alone.iterdir()} == {
        *(
            ".lock",
            "checkpoint.pt",
            "checkpoint.previous.pt",
            "config.json",
            "environment.json",
            "genotype.json",
        ),
        *("metrics.jsonl", "result.json", "space.json"),
    }


def test_a_signal_to_one_stops_all_and_any_number_goes_on(
    alone: Path, stripes: Path, tmp_path: Path
) -> None:
    argv = ["search", str(stripes), *SEARCH, "--run", str(tmp_path / "run")]
    job = Job(tmp_path / "log", 2, at_step, 7, 1, terminate, argv)
    assert job.codes() == [143, 143]
    assert (
        "".join(job.said())
        == "proxnas: stopped by SIGTERM; a checkpoint is written: the same command with --resume"
        " goes on\n"
    )
    shutil.copytree(tmp_path / "run", tmp_path / "one")
    again = Job(tmp_path / "log", 2, quietly, [*argv, "--resume"])
    assert again.codes() == [0, 0], again.said()
    assert outcome(tmp_path / "run") == outcome(alone), "not as if it had not been stopped"
    assert main([*argv[:-1], str(tmp_path / "one"), "--resume"]) == 0
    rows, before = outcome(tmp_path / "one")[0], outcome(alone)[0]
    assert rows[0] == before[0] and len(rows) == EPOCHS
    # one process normalises by the whole batch, so that only the beginning can be the same
    assert rows[1]["train_loss"] == pytest.approx(before[1]["train_loss"], rel=0.2)


def test_a_dead_process_ends_the_job_and_a_restart_goes_on(
    alone: Path, stripes: Path, tmp_path: Path
) -> None:
    argv = ["search", str(stripes), *SEARCH, "--run", str(tmp_path / "run")]
    job = Job(tmp_path / "log", 2, at_step, 7, 1, die, argv)
    assert job.codes() == [1, -signal.SIGKILL]
    said = "".join(job.said())
    assert (
        said.count("\n") == 1 and "another process of this job died" in said and "--resume" in said
    )
    again = Job(
        tmp_path / "log", 2, quietly, argv, TORCHELASTIC_RESTART_COUNT="1"
    )  # as torchrun's --max-restarts
    assert again.codes() == [0, 0], again.said()
    assert outcome(tmp_path / "run") == outcome(alone)


def test_all_go_back_when_one_diverges(stripes: Path, tmp_path: Path) -> None:
    job = Job(
        tmp_path / "log",
        2,
        with_bad_loss,
        ["search", str(stripes), *SEARCH, "--run", str(tmp_path / "run")],
    )
    assert job.codes() == [0, 0], job.said()
    assert "".join(job.said()).count("back to the last checkpoint") == 1
    assert [row["rollbacks"] for row in outcome(tmp_path / "run")[0]][-1] == 1


def test_a_training_goes_on_as_if_it_had_not_been_stopped(
    alone: Path, stripes: Path, tmp_path: Path
) -> None:
    small = [*SMALL, "--cells=1", "--ema=0.9", "--drop-path=0.2"]
    argv = ["train", str(alone), str(stripes), *small, "--run"]
    job = Job(tmp_path / "log", 2, quietly, [*argv, str(tmp_path / "whole")])
    assert job.codes() == [0, 0], job.said()
    assert (tmp_path / "whole" / "model.safetensors").exists()
    stopped = Job(tmp_path / "log", 2, at_step, 7, 0, terminate, [*argv, str(tmp_path / "run")])
    assert stopped.codes() == [143, 143]
    again = Job(tmp_path / "log", 2, quietly, [*argv, str(tmp_path / "run"), "--resume"])
    assert again.codes() == [0, 0], again.said()
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_bad_input_is_said_once(alone: Path, stripes: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, 2, quietly, ["search", str(stripes), *SEARCH, "--run", str(alone)])
    codes = job.codes()
    assert codes[0] == 2 and codes[1] in (1, 2)
    said = "".join(job.said())
    assert (
        said == f"proxnas: error: {alone}: holds a finished run: use --resume to go on, --force to"
        " overwrite, or another --run\n"
    )


DIES_ONCE = """
import os, sys
from support.dying import at_step, die, quietly
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
sys.exit(at_step(7, 1, die, sys.argv[1:]) if first else quietly(sys.argv[1:]))
"""


@pytest.mark.slow
def test_torchrun_starts_a_killed_job_anew(alone: Path, stripes: Path, tmp_path: Path) -> None:
    """As a user starts it; torchrun itself and all processes import torch anew."""
    script = tmp_path / "dies_once.py"
    script.write_text(DIES_ONCE)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        f"--master-port={free_port()}",
    ]
    argv = [str(script), "search", str(stripes), *SEARCH, f"--run={tmp_path / 'run'}"]
    places = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [*torchrun, "--max-restarts=1", "--", *argv],
        env=os.environ | {"PYTHONPATH": places, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("another process of this job died") == 1
    assert outcome(tmp_path / "run") == outcome(alone)
