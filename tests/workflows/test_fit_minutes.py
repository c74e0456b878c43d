"""fit by the clock: everything is there at the end, and a stopped run can go on or be finished."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.domains.images import networks, one_pass
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.export import as_input, export_model
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.images.one_pass import OnePass
from proxnas.domains.images.recipe import Plan
from proxnas.domains.trained import load_model
from proxnas.report.facts import leaderboard
from proxnas.training.pace import Busy
from proxnas.workflows import fit_minutes, fit_plan
from proxnas.workflows.fit_board import better_baselines
from proxnas.workflows.fitting import fit_by as fit
from support.commands import call, one_line, stripes
from support.quick_fits import pretend_to_export

STEPS = 60


def follow(plan: Plan, images: Images, clock: object) -> OnePass:
    """The pass as if a clock had said so."""
    return OnePass(plan, images, [i / STEPS for i in range(STEPS)])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No export, and as little time as there may be."""
    pretend_to_export(monkeypatch)
    monkeypatch.setattr(fit_plan, "EXPORT_SECONDS", 0.0)
    # a busy machine must not decide how many steps there are
    monkeypatch.setattr(fit_minutes, "build_pass", follow)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "stripes.npz", **stripes())
    return tmp_path / "stripes.npz"


def command(data: Path, folder: Path, *more: str) -> list[str]:
    flags = ["--minutes=0.04", "--threads=1", "--quiet", "--channels=8"]
    return ["fit", str(data), *flags, "--run", str(folder), *more]


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def test_everything_is_there_at_the_end(data: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "run"
    assert main(command(data, folder)) == 0
    shown = capsys.readouterr().out
    found = result(folder)
    assert found["space"] == "resnet" and found["genotype"]["kind"] == "chain"
    assert found["test_accuracy"] > 0.8 and found["test_images"] == 40
    model = load_model(folder)
    assert sum(w.numel() for w in model.model.network.parameters()) == found["params"]
    made = {"config.json", "metrics.jsonl", "checkpoint.pt", "genotype.json", "model.safetensors"}
    made |= {"model_card.md", "report.html", found["exported"]}
    assert made <= {path.name for path in folder.iterdir()}
    rows = leaderboard(found)
    assert [row["kind"] for row in rows] == ["baseline"] * 3 + ["network"]
    assert [row["name"] for row in rows if row["delivered"]] == ["plain network"]
    assert rows[-1]["test_accuracy"] == found["test_accuracy"]
    for row in rows:
        assert row["name"] in shown and f"{row['test_accuracy']:.4f}" in shown
    assert found["search"]["said"] in shown
    assert found["search"]["said"][1:] in (folder / "model_card.md").read_text()
    assert "nearest neighbour" in (folder / "report.html").read_text()
    assert main(["test", str(folder), str(data)]) == 0
    assert f"test accuracy {found['test_accuracy']:.4f}" in capsys.readouterr().out
    assert main(command(data, folder, "--resume")) == 0  # shown, not run again
    assert result(folder) == found


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A signal after so many steps; none if the list is empty."""
    steps: list[int] = []
    plain = OnePass.step

    def stopped(job: OnePass) -> Any:
        metrics = plain(job)
        if steps and len(job.pace.shares) >= steps[0]:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)
        return metrics

    monkeypatch.setattr(OnePass, "step", stopped)
    yield steps


def test_a_stopped_run_goes_on_with_its_plan(
    data: Path, tmp_path: Path, stop_after: list[int]
) -> None:
    folder = tmp_path / "run"
    stop_after.append(3)
    assert call(*command(data, folder)) == 130
    assert not (folder / "result.json").exists()
    plan = (folder / fit_plan.RECIPE).read_bytes()
    stop_after.clear()
    assert call(*command(data, folder, "--resume")) == 0
    assert (folder / fit_plan.RECIPE).read_bytes() == plan
    assert result(folder)["steps"] == STEPS


def test_a_stopped_run_is_finished_where_it_stands(
    data: Path, tmp_path: Path, stop_after: list[int]
) -> None:
    folder = tmp_path / "run"
    stop_after.append(3)
    assert call(*command(data, folder, "--minutes=9")) == 130
    stop_after.clear()
    assert call("fit", data, "--run", folder, "--finish", "--quiet") == 0
    found = result(folder)
    assert found["steps"] == 3 and load_model(folder).model.shape == (1, 8, 8)
    assert (folder / found["exported"]).exists()


@pytest.mark.parametrize("stop", [[], [3]])
def test_what_is_delivered_is_within_its_limit(
    data: Path, tmp_path: Path, capsys: Any, stop_after: list[int], stop: list[int]
) -> None:
    """Also if the run was stopped before anything was chosen."""
    folder = tmp_path / "run"
    stop_after.extend(stop)
    assert call(*command(data, folder, "--max-params=9k")) == (130 if stop else 0)
    if stop:
        stop_after.clear()
        assert call("fit", data, "--run", folder, "--finish", "--quiet", "--max-params=9k") == 0
    found = result(folder)
    assert found["params"] <= 9000 < found["budget"]["largest"] and found["budget"]["limit"] == 9000
    parameters = load_model(folder).model.network.parameters()
    assert sum(w.numel() for w in parameters) == found["params"]
    said = found["search"]["said"]
    if not stop:
        assert said.startswith("within the limit: ") and " where the plain network has " in said
    capsys.readouterr()
    assert call(*command(data, tmp_path / "none", "--max-params=10")) == 2
    assert "--max-params 10" in one_line(capsys.readouterr().err)
    assert not (tmp_path / "none").exists()


def test_answers_can_be_means_over_mirror_images(
    data: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the files as in the test; the network in them is the plain one."""
    monkeypatch.setattr("proxnas.domains.images.export.export_model", export_model)
    both, folder = ("--flip=yes", "--flip-test"), tmp_path / "run"
    assert call(*command(data, folder, *both)) == 0
    model = load_model(folder).model
    x = model.normalised(np.load(data)["x_train"][:8])
    plain = networks.build_network(model.genotype, dataclasses.replace(model.size, mirror=False))
    plain.load_state_dict(model.network.state_dict())
    plain.eval()
    expected = (plain(x) + plain(x.flip(3))) / 2
    torch.testing.assert_close(model.network(x), expected)
    assert not torch.equal(plain(x), model.network(x))
    program = torch.export.load(folder / result(folder)["exported"]).module()
    images = as_input(np.load(data)["x_train"][:8])
    torch.testing.assert_close(program(images), expected, rtol=1e-3, atol=1e-4)
    capsys.readouterr()
    for flags in (("--flip-test",), (*both, "--epochs=1")):
        assert call(*command(data, tmp_path / "none", *flags)) == 2
        assert "--flip-test" in one_line(capsys.readouterr().err)


def test_only_a_stopped_run_can_be_finished(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert call(*command(data, tmp_path / "none", "--finish")) == 2
    assert "--finish" in one_line(capsys.readouterr().err)
    assert call(*command(data, tmp_path / "none", "--finish", "--epochs=1")) == 2
    assert "--finish" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    "flags",
    [{"method": "gdas"}, {"epochs": 1}, {"space": "darts7"}, {"cost": "flops"}, {"eta": 0.1}],
)
def test_a_search_and_a_training_where_they_are_asked_for(flags: dict[str, Any]) -> None:
    assert fit_minutes.is_one_pass(FitConfig(data="digits"))
    assert fit_minutes.is_one_pass(FitConfig(data="digits", space="resnet", minutes=3))
    assert fit_minutes.is_one_pass(FitConfig(data="digits", max_params="90k"))
    assert not fit_minutes.is_one_pass(FitConfig(data="digits", **flags))


def test_without_minutes_time_is_by_the_data() -> None:
    assert fit_plan.usual_seconds(100) == 60
    assert fit_plan.usual_seconds(10_000) == 200
    assert fit_plan.usual_seconds(10**6) == 600


def test_time_that_nobody_asked_for_is_announced_first(data: Path, tmp_path: Path) -> None:
    said: list[str] = []
    fit(FitConfig(data=str(data), threads=1, quiet=True, channels=4), tmp_path / "run", said.append)
    announced = [line for line in said if line.startswith("1 minutes, as 160 images ask for")]
    planned = next(line for line in said if "of training" in line)
    assert said.index(announced[0]) < said.index(planned)
    said.clear()
    config = FitConfig(data=str(data), minutes=1, threads=1, quiet=True, channels=4)
    fit(config, tmp_path / "m", said.append)
    assert not any("ask for" in line for line in said)


def test_a_found_network_is_beside_the_plain_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swap wins: both networks are on the leaderboard, one line says what came of it."""
    monkeypatch.setattr(one_pass, "PROPOSALS", 1)
    monkeypatch.setattr("proxnas.core.swaps.CLEAR", -1e9)
    asked = {"space": "resnet", "threads": 1, "quiet": True, "channels": 4}
    config = FitConfig(data=str(data), minutes=0.06, **asked)
    found = fit(config, tmp_path / "run", lambda text: None)
    networks = [row for row in found["leaderboard"] if row["kind"] == "network"]
    assert [row["name"] for row in networks][-1] == "found network"
    assert len(networks) == 2 and networks[0]["params"] != networks[1]["params"]
    said = found["search"]["said"]
    assert found["search"]["won"] > 0 and "swaps tried" in said
    assert said.endswith(f"where the plain network has {networks[0]['params']:,}")


def test_simple_models_that_are_better_are_named_once() -> None:
    shares = {"a": 0.9, "b": 0.2, "c": 0.8, "d": 0.7, "plain network": 0.5}
    rows: list[dict[str, Any]] = [
        {"name": name, "kind": "baseline", "test_accuracy": share} for name, share in shares.items()
    ]
    rows[-1]["kind"] = "network"
    (line,) = better_baselines(rows)
    assert line.startswith("better on the test images than the 0.5000 of what is delivered: a 0.9")
    assert line.endswith("a 0.9000, c 0.8000 and d 0.7000: give more --minutes")
    assert better_baselines(rows[1:2] + rows[-1:]) == []


def test_larger_images_are_brought_to_what_there_is_time_for(tmp_path: Path) -> None:
    x = np.random.RandomState(0).randint(0, 255, (60, 100, 100), dtype=np.uint8)
    path = tmp_path / "large.npz"
    np.savez(path, x_train=x, y_train=np.arange(60) % 2)
    config = FitConfig(data=str(path), minutes=0.04, threads=1, quiet=True, channels=4)
    fit(config, tmp_path / "run", lambda text: None)
    assert load_model(tmp_path / "run").model.shape == (1, 32, 32)


def test_bad_data_make_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        fit(FitConfig(data=str(tmp_path / "none.npz")), tmp_path / "run", lambda text: None)
    assert not (tmp_path / "run").exists()


def test_the_clock_ends_it(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is used for steps, and not more than there is."""
    clock = iter(range(10**9))
    monkeypatch.undo()
    pretend_to_export(monkeypatch)
    monkeypatch.setattr(fit_plan, "EXPORT_SECONDS", 0.0)
    # this clock ticks whenever it is asked, which says nothing about how busy the machine is
    monkeypatch.setattr(Busy, "look", lambda self: self.ratio)
    config = FitConfig(data=str(data), minutes=2, threads=1, quiet=True, channels=4)
    found = fit_minutes.fit_minutes(
        config, tmp_path / "run", lambda text: None, clock=lambda: float(next(clock))
    )
    plan = json.loads((tmp_path / "run" / fit_plan.RECIPE).read_text())
    assert 60 < plan["seconds"] < 120
    assert next(clock) <= 1.1 * 60 * config.minutes  # asked several times a step
    assert 10 < found["steps"] < plan["seconds"]


@pytest.mark.parametrize(
    ("asked", "cores", "quick", "taken"),
    [("auto", 4, 1, 1), ("auto", 4, 4, 4), (2, 4, 1, 2), ("auto", 1, 1, 1)],
)
def test_steps_are_timed_with_the_threads_that_they_will_take(
    monkeypatch: pytest.MonkeyPatch,
    tiny_images: Images,
    asked: Any,
    cores: int,
    quick: int,
    taken: int,
) -> None:
    """Else a machine on which more threads are slower gets a network that is too small."""
    threads = []
    monkeypatch.setattr("proxnas.domains.images.recipe.has_bf16", lambda _: False)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr("proxnas.common.cores.cores", lambda: cores)
    monkeypatch.setattr("proxnas.common.cores.available", lambda: cores)
    monkeypatch.setattr("proxnas.common.environment.available", lambda: cores)
    monkeypatch.setattr(
        "proxnas.domains.images.recipe.step_seconds",
        lambda *_: 0.1 if threads[-1] == quick else 0.3,
    )
    config = FitConfig(data="digits", threads=asked)
    timer, precision = fit_plan.step_timer(config, tiny_images, 4, time.monotonic)
    assert threads[-1] == taken
    assert timer(16, 8) == (0.1 if taken == quick else 0.3) and precision == "fp32"


def test_a_dry_run_says_what_the_time_is_for(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert call(*command(data, tmp_path / "run", "--dry-run", "--json")) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["minutes"] == pytest.approx(0.04)
    assert figures["train_epochs"] * figures["train_seconds_per_epoch"] == pytest.approx(2.4)
    assert figures["params_smallest"] < figures["params_largest"]
    assert not (tmp_path / "run").exists()


def test_what_building_takes_is_not_added_to_the_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images that are read anew, operations that are timed: there are fewer steps for it."""
    now, jobs = 0.0, []

    def clock() -> float:
        nonlocal now
        now += 0.05
        return now

    def slow(plan: Plan, images: Images, clock: Any) -> OnePass:
        nonlocal now
        now += 5
        jobs.append(OnePass(plan, images, clock=clock))
        return jobs[0]

    monkeypatch.setattr(fit_minutes, "build_pass", slow)
    config = FitConfig(data=str(data), minutes=0.25, channels=4, threads=1, quiet=True)
    fit_minutes.fit_minutes(config, tmp_path / "run", lambda line: None, clock)
    (job,) = jobs
    assert job.pace.shares[0] >= 5 / job.pace.seconds
