"""Files from strangers: read or refused in one line; no traceback, no hang, no flood of memory, no
code run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from faults import bombs, fuzz
from faults.samples import samples
from proxnas.cli.main import main
from proxnas.runs.folder import Run
from support.places import TESTS

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and Pillow, about what odd files hold


def test_the_files_are_read_before_they_are_spoilt(tmp_path: Path) -> None:
    for sample in samples(tmp_path):
        (sample.place / sample.file).write_bytes(sample.content)
        sample.read(sample.place / sample.file)


def isolated(code: str) -> str:
    """What a process of its own prints: limits of memory are for it alone."""
    head = (
        "import warnings; warnings.simplefilter('ignore')\nfrom pathlib import Path\nfrom faults"
        " import bombs, fuzz\n"
    )
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_malformed_files() -> None:
    said = isolated(
        "found = fuzz.fuzz(300, seed=1)\nprint(found.inputs, found.refused, *found.findings,"
        " sep='\\n')"
    )
    inputs, refused, *findings = said.splitlines()
    assert int(inputs) == 300 and int(refused) > 170
    assert findings == []


@pytest.mark.slow
def test_small_files_that_would_fill_the_memory(tmp_path: Path) -> None:
    code = f"""
report = fuzz.Report()
with fuzz.limits():
    for sample in bombs.bombs(Path({str(tmp_path)!r})):
        fuzz.judge(sample, sample.content, sample.place, report)
print(*report.findings, sep="\\n")
"""
    assert isolated(code).strip() == ""


def test_a_pickle_in_any_place_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    canary, report = tmp_path / "canary", fuzz.Report()
    for sample in bombs.evil(tmp_path / "evil", canary):
        before = report.refused
        fuzz.judge(sample, sample.content, sample.place, report)
        assert report.refused == before + 1 and not report.findings, (sample.name, report.findings)
    assert report.inputs > 70
    assert not canary.exists()


def test_the_canary_sings_when_a_pickle_is_run(tmp_path: Path) -> None:
    """Else its silence would mean nothing."""
    import pickle

    pickle.loads(pickle.dumps(bombs.Evil(tmp_path / "canary")))
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("weights"),
        lambda state: state.update(epochs_done="many"),
        lambda state: state.update(rollbacks=None),
        lambda state: state["weights"].popitem(),
        lambda state: state.update(method={}),
        lambda state: state["totals"].update(sums=7),
    ],
)
def test_a_sound_checkpoint_of_something_else_is_refused_in_one_line(
    stripes: Path, tmp_path: Path, change: Any, capsys: Any
) -> None:
    argv = [
        "search",
        str(stripes),
        "--space",
        "nasbench201",
        "--cells",
        "1",
        "--channels",
        "2",
        "--batch-size",
        "8",
    ]
    argv += [
        "--epochs",
        "1",
        "--final-cells",
        "1",
        "--final-channels",
        "2",
        "--quiet",
        "--run",
        str(tmp_path),
    ]
    assert main(argv) == 0
    (tmp_path / "result.json").unlink()
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["state"]
    change(state)
    Run(tmp_path).save_checkpoint(state)
    capsys.readouterr()
    assert main([*argv, "--resume"]) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith(f"proxnas: error: {tmp_path}: the checkpoint is of another run (")
        and said.count("\n") == 1
    )
