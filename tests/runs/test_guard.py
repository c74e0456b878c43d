"""Numbers that must stay finite: seen at once, the step not taken, back to the last checkpoint at a
lower rate."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from faults import crash
from proxnas.cli.main import main
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.methods import METHODS
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.runs.checkpoint import digest
from proxnas.runs.divergence import Diverged, Guard, step_if_sound
from proxnas.runs.progress import Silent
from proxnas.training.optimizer import Optimizer

EPOCHS, STEPS = 3, 5

# one step


def weights(module: nn.Module) -> list[Tensor]:
    return [w.detach().clone() for w in module.parameters()]


@pytest.mark.parametrize("method", ["nasp", "darts-1st"])
@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_step_of_a_search_whose_loss_is_not_finite_is_not_taken(
    method: str, factor: float, make_search: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = make_search("--method", method, "--space", "nasbench201")
    search.step()
    search.guard.check()
    before = digest([weights(search.net.module), search.method.state_dict()["w"]["sgd"]["state"]])
    real = WeightOptimizer.step
    monkeypatch.setattr(
        WeightOptimizer, "step", lambda self, loss, *rest: real(self, loss * factor, *rest)
    )
    search.step()
    assert (
        digest([weights(search.net.module), search.method.state_dict()["w"]["sgd"]["state"]])
        == before
    )
    with pytest.raises(Diverged, match="the loss or its gradient is not finite"):
        search.guard.check()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("clip", [0.0, 5.0])
@pytest.mark.parametrize("fault", ["loss", "gradient", "none"])
def test_a_step_of_a_training_is_taken_only_if_all_is_finite(
    optimizer: str, clip: float, fault: str
) -> None:
    network = nn.Linear(3, 2)
    this = Optimizer(network, ImageTrainOptions(optimizer=optimizer, clip=clip), steps_per_epoch=5)  # type: ignore[arg-type]
    for step in range(3):
        loss = network(torch.randn(4, 3)).square().mean()
        this.backward(loss)
        before = weights(network)
        if step == 2 and fault == "gradient":
            assert network.bias.grad is not None
            network.bias.grad[0] = math.inf
        this.step(loss * math.nan if step == 2 and fault == "loss" else loss)
    moved = not all(torch.equal(a, b) for a, b in zip(before, weights(network), strict=True))
    assert moved == (fault == "none")
    if moved:
        this.guard.check()
    else:
        with pytest.raises(Diverged):
            this.guard.check()


def test_an_optimizer_that_knows_no_verdicts_is_asked_by_the_host() -> None:
    w = torch.ones(2, requires_grad=True)
    sgd = torch.optim.SGD([w], lr=1.0, foreach=False)
    for verdict, wanted in ((1.0, 1.0), (0.0, 0.0)):
        w.grad = torch.ones(2)
        step_if_sound(sgd, torch.tensor(verdict))
        assert w.tolist() == [wanted] * 2


def test_a_verdict_of_an_accelerator_is_read_one_step_later() -> None:
    """Reading it at once would make the host wait for the step."""
    guard = Guard()
    guard._verdicts.append(torch.ones((), device="meta"))  # reading this one is an error
    guard.check()
    assert len(guard._verdicts) == 1


def test_verdicts_that_nobody_asks_for_do_not_pile_up() -> None:
    guard = Guard()
    for _ in range(1000):
        guard.judge(torch.tensor(1.0))
    assert len(guard._verdicts) < 100


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e300, 1e300, allow_nan=False), min_size=5, max_size=5),
    st.sampled_from(["adam", "scaled", "sgd"]),
)
def test_A_of_nasp_never_leaves_the_unit_interval(values: list[float], optimizer: str) -> None:
    from proxnas.core.prox import prox_c2
    from proxnas.methods.architecture import ArchitectureOptimizer
    from proxnas.methods.options import DescendsA

    A = {"cell": torch.rand(1, 5, dtype=torch.float64)}
    this = ArchitectureOptimizer(A, DescendsA(arch_learning_rate=10.0), optimizer)
    for sign in (1, -1, 1):
        try:
            this.step({"cell": sign * torch.tensor([values], dtype=torch.float64)})
        except Diverged:
            return
        A["cell"].copy_(prox_c2(A["cell"]))
        assert (A["cell"] >= 0).all() and (A["cell"] <= 1).all()


@pytest.mark.parametrize("method", sorted(METHODS))
def test_judging_an_epoch_changes_nothing_that_a_checkpoint_before_it_holds(
    method: str, make_search: Any
) -> None:
    """A run that is stopped meanwhile writes the state from before."""
    size = ("--epochs", "2", "--final-cells", "1", "--final-channels", "2")
    search = make_search(
        "--method", method, "--space", "nasbench201", *size, *QUICK.get(method, ())
    )
    for _ in range(len(search)):
        search.totals.add(search.step())
    state = search.state_dict()
    before = digest(state)
    search.row(0.0)
    assert digest(state) == before


QUICK = {"enas": ("--controller-steps", "1"), "random-ws": ("--random-cells", "2")}

# a run


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    return [*crash.command("search", crash.stripes(tmp_path), EPOCHS), "--run"]


@pytest.fixture
def diverging(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """diverging(step, times): the loss of that step is NaN until the run has gone back so many
    times."""

    def arrange(step: int, times: int) -> None:
        real = WeightOptimizer.step

        def fails(self: WeightOptimizer, loss: Tensor, *rest: Any) -> None:
            bad = self.t == step and self.options.guard.rollbacks < times
            real(self, loss * math.nan if bad else loss, *rest)

        monkeypatch.setattr(WeightOptimizer, "step", fails)

    return arrange


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_search_that_diverges_goes_back_says_so_and_ends(
    argv: list[str], tmp_path: Path, diverging: Callable[[int, int], None], capsys: Any
) -> None:
    diverging(7, 2)
    assert main([*argv, str(tmp_path / "run"), "--checkpoint-minutes", "9"]) == 0
    said = capsys.readouterr().err.splitlines()
    where = (
        "proxnas: the loss or its gradient is not finite in epoch 2: back to the last checkpoint"
        " (step 0 of epoch 2)"
    )
    assert said == [
        f"{where}, learning rate times {f:g} from now on ({n} of 3)"
        for n, f in ((1, 0.5), (2, 0.25))
    ]
    assert [row["rollbacks"] for row in rows(tmp_path / "run")] == [0, 2, 2]
    assert [row["epoch"] for row in rows(tmp_path / "run")] == [1, 2, 3]


def test_one_that_is_stopped_besides_ends_the_same(
    argv: list[str],
    tmp_path: Path,
    diverging: Callable[[int, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the step that diverges, and after it."""
    diverging(7, 1)
    assert main([*argv, str(tmp_path / "alone")]) == 0
    for stop in (6, 9):
        run, steps = tmp_path / f"stopped-{stop}", iter(range(1, 100))

        def step(*_: Any, steps: Iterator[int] = steps, stop: int = stop) -> None:
            if next(steps) == stop:
                signal.raise_signal(signal.SIGTERM)

        with monkeypatch.context() as patch:
            patch.setattr(Silent, "step", step)
            assert main([*argv, str(run)]) == 143
        assert main([*argv, str(run), "--resume"]) == 0
        assert crash.outcome(run) == crash.outcome(tmp_path / "alone")


def test_after_three_returns_it_stops_in_one_line(
    argv: list[str], tmp_path: Path, diverging: Callable[[int, int], None], capsys: Any
) -> None:
    diverging(7, 99)
    assert main([*argv, str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4
    assert (
        "not finite in epoch 2: lower --learning-rate (now 0.05): also at 0.00625, after 3"
        " returns" in said[3]
    )
    assert (
        main([*argv, str(tmp_path / "run"), "--resume"]) == 2
    )  # and stays so: nobody need look for the line


def test_a_learning_rate_that_is_far_too_high_is_named(
    argv: list[str], tmp_path: Path, capsys: Any
) -> None:
    """No stand-in: weights of 1e30 overflow by themselves."""
    assert main([*argv, str(tmp_path / "run"), "--learning-rate", "1e30"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("proxnas: error: the")


# the same bits twice


def test_deterministic_mode_gives_the_same_files_twice(argv: list[str], tmp_path: Path) -> None:
    try:
        for name in ("one", "two"):
            assert main([*argv, str(tmp_path / name), "--deterministic"]) == 0
            assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    one, two = (crash.outcome(tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert json.loads((tmp_path / "one" / "environment.json").read_text())["deterministic"] is True
    assert json.loads((tmp_path / "one" / "config.json").read_text())["deterministic"] is True
