"""`--threads auto`: the quickest number of threads, found on the steps of a job, beside whatever
else runs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import proxnas
from proxnas.cli.main import main
from proxnas.common import cores
from proxnas.common.cores import available, wait_without_spinning
from proxnas.common.errors import InputError
from proxnas.runs import threads
from proxnas.runs.threads import Auto, Duel, Look

SMALL = ["--space=nasbench201", "--cells=1", "--channels=2", "--epochs=1", "--refine=0", "--quiet"]
SMALL += ["--final-cells=1", "--final-channels=2"]
Seconds = Callable[[int, int], float]
"""(step, threads) -> how long the step takes."""


class Machine:
    """Steps that take as long as is said, by a clock of their own."""

    def __init__(self, seconds: Seconds, most: int, looks: list[Look] | None = None) -> None:
        self.seconds, self.time, self.steps, self.used = seconds, 0.0, 0, 1
        self.kept: list[list[Look]] = []
        keep = lambda looks: self.kept.append(list(looks))  # noqa: E731
        self.auto = Auto(most, keep, looks or [], self.use, lambda: self.time)

    def use(self, count: int) -> None:
        self.used = count

    def run(self, steps: int) -> float:
        """How many times as long so many steps take as with the best number for each of them."""
        begin, best = self.time, 0.0
        for _ in range(steps):
            with self.auto.step(1, self.steps + 1):
                self.time += self.seconds(self.steps, self.used)
            best += min(
                self.seconds(self.steps, count) for count in threads._counts(self.auto.most)
            )
            self.steps += 1
        return (self.time - begin) / best


def quiet(step: int, count: int) -> float:
    """Three quarters of the work can be divided."""
    return 0.25 + 0.75 / count


def busy(step: int, count: int) -> float:
    """Threads wait for each other: the more, the longer."""
    return float(count**2)


def noisy(seconds: Seconds) -> Seconds:
    """The same with a fifth more or less, and a step in fifteen that does more."""

    def taken(step: int, count: int) -> float:
        draw = random.Random(1000 * step + count)
        return seconds(step, count) * draw.uniform(0.8, 1.2) * (4 if step % 15 == 7 else 1)

    return taken


@pytest.mark.parametrize("most", [2, 3, 8])
@pytest.mark.parametrize("noise", [False, True])
def test_the_quickest_is_found_and_costs_little(most: int, noise: bool) -> None:
    for seconds, best in ((quiet, most), (busy, 1)):
        machine = Machine(noisy(seconds) if noise else seconds, most)
        assert machine.run(600) < 1.2
        assert machine.used == best


def test_a_bad_experience_is_cut_short() -> None:
    """Two threads that take twenty times as long get one step, and that only now and then."""
    counted: list[int] = []

    def bad(step: int, count: int) -> float:
        return 20.0 if count > 1 else 1.0

    machine = Machine(bad, 2)
    for _ in range(330):
        machine.run(1)
        counted.append(round(machine.time))
    jumps = [after - before for before, after in pairwise(counted)]
    assert jumps.count(20) == len(machine.auto.looks) <= 4
    assert machine.used == 1


def test_a_machine_that_becomes_busy_is_noticed_within_a_few_steps() -> None:
    machine = Machine(lambda step, count: (quiet if step < 60 else busy)(step, count), 8)
    machine.run(60)
    assert machine.used == 8
    machine.run(12)
    assert machine.used == 1
    assert machine.auto.looks[-1]["why"] == "slow"


def test_a_machine_that_becomes_quiet_is_noticed_in_time() -> None:
    machine = Machine(lambda step, count: (busy if step < 20 else quiet)(step, count), 4)
    machine.run(20)
    assert machine.used == 1
    machine.run(2 * threads.SOONEST + 30)
    assert machine.used == 4
    assert machine.auto.looks[-1]["why"] == "again"


def test_on_a_tie_fewer_threads_are_taken() -> None:
    machine = Machine(lambda step, count: 1.0 - 0.01 * count, 4)
    machine.run(300)
    assert machine.used == 1


def test_steps_that_alternate_between_cheap_and_dear_ones_mislead_nobody() -> None:
    duel = Duel(1, 2, 1.0)
    for step in range(1 + 2 * threads.PAIRS):
        duel.add(3.0 if step % 2 else 1.0)
        assert duel.over() == (step == 2 * threads.PAIRS)
    assert duel.medians() == {"1": 2.0, "2": 2.0}
    assert duel.winner() == 1


def test_what_it_did_is_kept_and_a_run_goes_on_with_it() -> None:
    machine = Machine(quiet, 2)
    machine.run(30)
    (look,) = machine.kept[-1]
    assert look == {
        **{"epoch": 1, "step": threads.WARM + 1, "why": "start", "choice": 2},
        "seconds": {"1": pytest.approx(1.0), "2": pytest.approx(0.625)},
    }
    stored = json.loads(json.dumps(machine.kept[-1]))
    again = Machine(quiet, 2, stored)
    again.run(20)
    assert again.used == 2 and again.kept == [], "no look before it is time"
    slow = Machine(busy, 2, stored)
    slow.run(20)
    assert slow.used == 1 and slow.kept[-1][-1]["why"] == "slow"


def test_looks_do_not_fill_the_file() -> None:
    machine = Machine(quiet, 2)
    machine.auto.looks = [{"choice": 1, "number": n} for n in range(threads.KEPT)]
    machine.run(100)
    assert len(machine.auto.looks) == threads.KEPT
    assert machine.auto.looks[0]["number"] == 0 and machine.auto.looks[-1]["choice"] == 2


@pytest.mark.parametrize(
    "looks", [None, 3, [], [3], [{"choice": "2"}], [{"choice": 64}], [{"choice": 2, "seconds": 1}]]
)
def test_what_stands_in_a_file_is_not_trusted(looks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    found = threads.threads_for("auto", torch.device("cpu"), looks=looks)
    assert isinstance(found, Auto) and found.choice in (1, 2) and found.usual is None


def test_threads_wait_asleep_unless_the_user_says_otherwise() -> None:
    environ: dict[str, str] = {}
    wait_without_spinning(environ)
    assert environ == {"OMP_WAIT_POLICY": "PASSIVE"}
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        environ = {name: "7"}
        wait_without_spinning(environ)
        assert environ == {name: "7"}


def test_the_command_says_so_before_torch_is_loaded() -> None:
    code = """
import os, sys
import proxnas.cli.main
sys.argv = ["proxnas", "--version"]
proxnas.cli.main.main()
print("torch" in sys.modules, os.environ.get("OMP_WAIT_POLICY"))
"""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMP", "GOMP", "KMP"))
    }
    ran = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == "False PASSIVE", ran.stderr


def test_cores_are_those_that_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cpu.max"
    monkeypatch.setattr(cores, "QUOTA", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cores.cores() == 8
    for text, found in (
        ("max 100000", 8),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("nonsense", 8),
    ):
        file.write_text(text)
        assert cores.cores() == found
    file.unlink()
    for text, found in (("3", 3), ("99", 8), ("", 8), ("4,2", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert available() == found


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """auto may take two threads, as far as it can tell."""
    number = [1]
    monkeypatch.setattr(torch, "set_num_threads", lambda count: number.__setitem__(0, count))
    monkeypatch.setattr(torch, "get_num_threads", lambda: number[0])
    for module in ("runs.threads", "common.environment", "searching.job"):
        monkeypatch.setattr(f"proxnas.{module}.available", lambda: 2)


def test_a_search_writes_its_looks_and_auto_is_the_default(
    stripes: Path, tmp_path: Path, two_cores: None
) -> None:
    folder = tmp_path / "run"
    assert main(["search", str(stripes), *SMALL, "--batch-size=2", "--run", str(folder)]) == 0
    environment = json.loads((folder / "environment.json").read_text())
    assert json.loads((folder / "config.json").read_text())["threads"] == "auto"
    (look,) = environment["looks"]
    assert (look["epoch"], look["step"], look["why"]) == (1, threads.WARM + 1, "start")
    assert environment["threads"] == look["choice"] and set(look["seconds"]) == {"1", "2"}
    assert all(seconds > 0 for seconds in look["seconds"].values())


def test_runs_of_before_go_on(
    stripes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 was "as many as torch takes"."""
    folder = tmp_path / "run"
    assert main(["search", str(stripes), *SMALL, "--run", str(folder)]) == 0
    config = folder / "config.json"
    for old in (0, None, 1):
        config.write_text(json.dumps(json.loads(config.read_text()) | {"threads": old}))
        assert main(["search", str(stripes), "--run", str(folder), "--resume", "--quiet"]) == 0
    config.write_text(json.dumps(json.loads(config.read_text()) | {"threads": "many"}))
    assert main(["search", str(stripes), "--run", str(folder), "--resume", "--quiet"]) == 2
    assert 'threads is "many": give auto or a whole number' in capsys.readouterr().err


def test_a_run_of_a_larger_machine_goes_on_with_fewer(
    stripes: Path, tmp_path: Path, capsys: Any
) -> None:
    folder = tmp_path / "run"
    assert main(["search", str(stripes), *SMALL, "--run", str(folder)]) == 0
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"threads": 999}))
    again = ["search", str(stripes), "--run", str(folder), "--resume", "--quiet"]
    assert main(again) == 2
    assert (
        f"--threads 999: there are {cores.cores()} cores: give a number from 1"
        in capsys.readouterr().err
    )
    assert main([*again, "--threads", "1"]) == 0


@pytest.mark.parametrize(
    "command",
    ["test", "predict", "generate", "compare", "sweep", "bench", "export", "train", "fit"],
)
@pytest.mark.parametrize("count", ["0", "999", "x"])
def test_every_command_refuses_what_cannot_be(
    command: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {
        "export": ["model", "--card", "card.md"],
        "bench": [],
        "generate": ["model"],
        "predict": ["model", "a.png"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir("/")
        try:
            code = main(
                [
                    command,
                    *words.get(command, ["a", "b"][: 2 if command in ("test", "train") else 1]),
                    "--threads",
                    count,
                ]
            )
        except SystemExit as box:
            code = int(box.code or 0)
    assert code == 2
    assert ("cores" if count == "999" else "--threads") in capsys.readouterr().err


def test_the_python_call_takes_threads_and_leaves_those_of_the_caller() -> None:
    module = nn.Sequential(
        proxnas.Choice({"a": nn.Linear(2, 4), "b": nn.Linear(2, 4, bias=False)}), nn.Linear(4, 2)
    )
    x, y = torch.randn(16, 2), torch.randint(0, 2, (16,))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for count in ("auto", 1, None):
            proxnas.search(module, (x, y), (x, y), epochs=1, batch_size=8, threads=count)
            assert torch.get_num_threads() == 2
        with pytest.raises(InputError, match=r"^threads 999: there are \d+ cores"):
            proxnas.search(module, (x, y), (x, y), epochs=1, batch_size=8, threads=999)
        with pytest.raises(InputError, match=r"^threads 0: give auto"):
            proxnas.search(module, (x, y), (x, y), epochs=1, batch_size=8, threads=0)
    finally:
        torch.set_num_threads(before)
