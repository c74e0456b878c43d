"""Schedules go by steps: at the start of an epoch they are where the published ones are, and a
search of one epoch has all of them; a search in which A could never move is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from proxnas.common.errors import InputError
from proxnas.core.choice import Choice
from proxnas.core.groups import NONE
from proxnas.core.supernet import Supernet
from proxnas.methods.asap import Asap
from proxnas.methods.bayesnas import BayesNas
from proxnas.methods.enas import Enas
from proxnas.methods.gdas import Gdas
from proxnas.methods.optimizers import WeightOptimizer, WeightOptions
from proxnas.methods.proximal import Proximal
from proxnas.methods.snas import Snas
from proxnas.searching.job import Search
from support.commands import call, one_line
from support.searches import same, steps, stored

MakeSearch = Callable[..., Search]
STEPS = 5
"""Of an epoch of the tiny images."""


def rates(optimizer: WeightOptimizer) -> list[float]:
    """The learning rates of all steps of a search, and the one behind its end."""
    found = []
    for t in range(optimizer.steps + 1):
        optimizer.t = t
        found.append(optimizer.learning_rate)
    return found


def cosine(share: float, high: float = 0.025, low: float = 0.001) -> float:
    return low + (high - low) * (1 + math.cos(math.pi * share)) / 2


def optimizer_of(epochs: int, steps_per_epoch: int, cycles: int = 1) -> WeightOptimizer:
    net = Supernet(Choice({"a": nn.Linear(3, 2)}))
    return WeightOptimizer(net, WeightOptions(epochs=epochs, cycles=cycles), steps_per_epoch)


@pytest.mark.parametrize(("epochs", "steps_per_epoch"), [(1, 7), (3, 5), (50, 3)])
def test_the_rate_of_w_falls_with_every_step_from_end_to_end(
    epochs: int, steps_per_epoch: int
) -> None:
    found = rates(optimizer_of(epochs, steps_per_epoch))
    assert all(a > b for a, b in pairwise(found))
    by_epoch = [cosine(epoch / epochs) for epoch in range(epochs + 1)]  # what CosineAnnealingLR has
    assert found[::steps_per_epoch] == pytest.approx(by_epoch)


def test_a_rate_stays_at_its_lowest_behind_the_end() -> None:
    optimizer = optimizer_of(2, 3)
    optimizer.t = 100
    assert optimizer.learning_rate == pytest.approx(0.001) and optimizer.progress == 1.0


@pytest.mark.parametrize("steps_per_epoch", [1, 7, 49])
def test_four_cosines_begin_anew_exactly_where_the_authors_do(steps_per_epoch: int) -> None:
    found = rates(optimizer_of(150, steps_per_epoch, cycles=4))
    epochs = []
    for start, length in ((0, 10), (10, 20), (30, 40), (70, 80)):
        epochs += [cosine((epoch - start) / length) for epoch in range(start, start + length)]
    assert found[:-1:steps_per_epoch] == pytest.approx(epochs)
    assert sum(b > a for a, b in pairwise(found)) == 3  # the restarts


def test_a_short_search_of_enas_has_all_four_cosines(make_search: MakeSearch) -> None:
    method = make_search("--method", "enas", "--space", "nasbench201", "--epochs", "4").method
    assert isinstance(method, Enas)
    found = rates(method.w_optimizer)
    assert max(found) == pytest.approx(0.05) and found[-1] == pytest.approx(0.0005)
    assert found[-2] < 0.003 and sum(b > a for a, b in pairwise(found)) == 3


# ---------------------------------------------------------------- temperatures


def taus(method: Snas | Gdas | Asap) -> list[float]:
    """The temperatures of all steps of a search."""
    found = []
    for t in range(method.learner.w_optimizer.steps):
        method.learner.w_optimizer.t = t
        found.append(method.tau)
    return found


def tempered(make_search: MakeSearch, name: str, epochs: int) -> Snas | Gdas | Asap:
    method = make_search("--method", name, "--space", "nasbench201", "--epochs", str(epochs)).method
    assert isinstance(method, Snas | Gdas | Asap)
    return method


@pytest.mark.parametrize(("name", "epochs"), [("snas", 150), ("gdas", 250), ("asap", 50)])
def test_temperatures_are_the_published_ones_at_the_start_of_an_epoch(
    name: str, epochs: int, make_search: MakeSearch
) -> None:
    published: dict[str, Callable[[int], float]] = {
        "snas": lambda epoch: (1 - epoch / 150) * (1 - 0.03) + 0.03,
        "gdas": lambda epoch: 10 - (10 - 0.1) * epoch / 249,
        "asap": lambda epoch: 1.6 * 0.95**epoch,
    }
    found = taus(tempered(make_search, name, epochs))
    assert found[::STEPS] == pytest.approx([published[name](epoch) for epoch in range(epochs)])


@pytest.mark.parametrize(("name", "low"), [("snas", 0.03), ("gdas", 0.1), ("asap", 1.6 * 0.95**50)])
@pytest.mark.parametrize("epochs", [1, 4])
def test_a_short_search_is_annealed_as_far_as_a_long_one(
    name: str, low: float, epochs: int, make_search: MakeSearch
) -> None:
    found = taus(tempered(make_search, name, epochs))
    assert all(a >= b for a, b in pairwise(found))
    one_step_more = found[-1] - (found[-2] - found[-1])
    assert found[-1] == pytest.approx(low) or one_step_more <= low + 1e-9
    flat = (
        STEPS - 1 if name == "gdas" and epochs > 1 else 0
    )  # it has its lowest in all of a last epoch
    assert len(set(found)) == len(found) - flat


# ------------------------------------------------------------------------ ASAP


def test_asap_moves_A_and_drops_candidates_in_a_search_of_one_epoch(
    make_search: MakeSearch,
) -> None:
    search = make_search(
        "--method", "asap", "--space", "nasbench201", "--epochs", "1", "--arch-learning-rate", "0.3"
    )
    method = search.method
    assert isinstance(method, Asap)
    before = stored(method.learner.A)
    steps(search, STEPS)
    moved = [t for t, tau in enumerate(taus(method)) if tau < method.constants.grace]
    assert moved == [1, 2, 3, 4] and search.valid.delivered == len(moved)
    assert not same(method.learner.A, before)
    assert not method.alive["cell"].all()


@pytest.mark.parametrize(
    ("epochs", "expected"), [(50, range(0, 250, 5)), (100, range(0, 500, 10)), (1, range(5))]
)
def test_asap_prunes_fifty_times_evenly_spread(
    epochs: int, expected: range, make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = tempered(make_search, "asap", epochs)
    assert isinstance(method, Asap)
    due = []
    for t in range(method.learner.w_optimizer.steps):
        method.learner.w_optimizer.t = t
        due += [t] * method._prunes()
    assert due == list(expected)


# -------------------------------------------------------------------- BayesNAS


def test_bayesnas_warms_up_for_half_of_a_search_of_one_epoch(make_search: MakeSearch) -> None:
    search = make_search("--method", "bayesnas", "--space", "nasbench201", "--epochs", "1")
    method = search.method
    assert isinstance(method, BayesNas)
    candidates = method.candidates["cell"]
    gamma = candidates.gamma.clone()
    steps(search, 3)  # the third begins after 0.4 of the epoch
    assert (candidates.switch == 1).all()
    steps(search, 1)
    assert not (candidates.switch == 1).all() and torch.equal(candidates.gamma, gamma)
    steps(search, 1)
    assert not torch.equal(candidates.gamma, gamma)


@pytest.mark.parametrize(
    ("flags", "warmup"),
    [
        (("--epochs", "1"), 0.5),
        (("--epochs", "2"), 1.0),
        (("--epochs", "50"), 1.0),
        (("--epochs", "9", "--warmup", "3"), 3.0),
        (("--epochs", "9", "--warmup", "0"), 0.0),
    ],
)
def test_the_warm_up_is_what_was_asked_for_else_an_epoch_but_half_of_the_search_at_most(
    flags: tuple[str, ...], warmup: float, make_search: MakeSearch
) -> None:
    search = make_search("--method", "bayesnas", "--space", "nasbench201", *flags)
    assert search.config.warmup_epochs() == warmup


def test_a_warm_up_can_be_a_part_of_an_epoch(make_search: MakeSearch) -> None:
    search = make_search("--space", "nasbench201", "--warmup", "0.6", "--epochs", "1")
    steps(search, 3)
    assert search.valid.delivered == 0
    steps(search, 1)
    assert search.valid.delivered == 1


# ------------------------------------------------ what could never move is refused


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            "--method bayesnas --warmup 15 --epochs 15",
            "--warmup 15: in none of the .* steps of --epochs 15 would A move",
        ),
        ("--method nasp --warmup 2 --epochs 2", "--warmup 2: in none of the"),
        ("--method darts-1st --warmup 1 --epochs 1", "--warmup 1: in none of the"),
        (
            "--method pa --warmup 1 --epochs 2 --arch-every 99999",
            "--warmup 1 --arch-every 99999: in none of the",
        ),
        (
            "--method asap --tau-end 1.2 --epochs 2",
            "--tau-start 1.6 --tau-end 1.2: asap moves A below a temperature of 1",
        ),
        (
            "--method nasp --arch-learning-rate 0",
            "--arch-learning-rate 0.0: give a number above 0, or A never moves",
        ),
        (
            "--method drnas --arch-learning-rate 0",
            "--arch-learning-rate 0.0: give a number above 0, or A never moves",
        ),
        (
            "--method pc-darts --resting 0.99 --epochs 1",
            "--resting 0.99: in none of the .* steps would A move: give less, or more --epochs",
        ),
        (
            "--method darts-pt --deciding 1 --epochs 2",
            "--deciding 1.0: none of the 0 steps before darts-pt decides would move A",
        ),
        (
            "--method darts-pt --warmup 7 --epochs 10",
            "--warmup 7.0: none of the 7 steps before darts-pt decides would move A",
        ),
        ("--method enas --controller-steps 0", "--controller-steps 0: give a number of at least 1"),
        ("--method nasp --warmup -0.5", "--warmup -0.5: give a number of at least 0, or -1"),
    ],
)
def test_a_search_in_which_A_can_never_move_is_refused_before_the_folder_is_touched(
    flags: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], stripes: Path
) -> None:
    sizes = ["--space", "nasbench201", "--cells", "1", "--channels", "2", "--threads", "1"]
    assert call("search", stripes, *sizes, *flags.split(), "--run", tmp_path / "run") == 2
    message = one_line(capsys.readouterr().err)
    assert re.match(said, message), message
    assert not (tmp_path / "run").exists()


def test_asap_refuses_a_search_of_one_step(make_search: MakeSearch) -> None:
    setup = make_search("--method", "asap", "--space", "nasbench201", "--epochs", "1").setup

    class One:
        def __len__(self) -> int:
            return 1

    with pytest.raises(InputError, match="none of its 1 steps"):
        Asap(setup.__class__(**vars(setup) | {"train": One()}))


@pytest.mark.parametrize("preset", ["paper", "official"])
@pytest.mark.parametrize("method", ["nasp", "pa", "lazy-pa"])
@pytest.mark.parametrize("space", ["nasbench201", "darts8"])
def test_presets_start_with_a_network_that_has_a_gradient(
    preset: str, method: str, space: str, make_search: MakeSearch
) -> None:
    search = make_search("--method", method, "--preset", preset, "--space", space)
    this = search.method
    assert isinstance(this, Proximal)
    for name, group in search.net.groups.items():
        if NONE in group.candidates:
            assert not this.A_bar[name][:, group.candidates.index(NONE)].any()
    before = stored(this.A)
    dA = this.gradient(this.A_bar, search.train.next())
    assert all(g.abs().max() > 0 for g in dA.values())
    steps(search, 1)
    assert not same(this.A, before)
