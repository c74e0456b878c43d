"""--weight-optimizer: what trains w in searches of images."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import proxnas
from proxnas.cli.search import parse_search
from proxnas.common.errors import InputError
from proxnas.domains import load_for_search
from proxnas.searching.job import Search
from proxnas.searching.muon_steps import MuonSteps

SMALL = ("--cells", "1", "--final-cells", "1", "--channels", "2", "--batch-size", "8")


def built(stripes: Path, *words: str) -> Search:
    config = parse_search([str(stripes), *SMALL, "--epochs", "1", *words])
    return Search(config, load_for_search(config.space, config.data, config))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ("muon", 0.05, 0.005)),
        (["--space", "nasbench201"], ("muon", 0.05, 0.005)),
        (["--weight-optimizer", "sgd"], ("sgd", 0.05, 0.005)),
        (["--preset", "paper"], ("sgd", 0.025, 0.001)),
        (["--preset", "official"], ("sgd", 0.025, 0.001)),
        (["--method", "darts-1st"], ("sgd", 0.025, 0.001)),
        (["--method", "pa"], ("sgd", 0.025, 0.001)),
    ],
)
def test_defaults(words: list[str], expected: tuple[str, float, float]) -> None:
    found = parse_search(["digits", *words])
    assert (found.weight_optimizer, found.learning_rate, found.learning_rate_min) == expected


def test_text_keeps_the_rates_of_its_domain() -> None:
    for words in ([], ["--preset", "paper"]):
        found = parse_search(["pydocs", "--space", "rnn", *words])
        assert (found.learning_rate, found.learning_rate_min) == (20.0, 20.0)
        assert not hasattr(found, "weight_optimizer")


def test_convolutions_keep_their_norm_and_the_rate_is_the_one_asked_for(stripes: Path) -> None:
    search = built(stripes, "--learning-rate", "0.02", "--evidence", "0")
    optimizer = search.method.w_optimizer
    assert isinstance(optimizer.sgd, MuonSteps) and optimizer.learning_rate == pytest.approx(0.02)
    parts = [part for part in search.net.module.modules() if isinstance(part, nn.Conv2d)]
    mixing = [part for part in parts if part.groups == 1 and part.in_channels > 1]
    before = [part.weight.detach().clone() for part in mixing]
    search.step()
    pairs = zip(mixing, before, strict=True)
    trained = [part for part, old in pairs if not torch.equal(part.weight, old)]
    assert trained
    for module in trained:
        rows = module.out_channels
        # sqrt(rows), but for the step itself: at most one of length sqrt(rows) times the rate
        assert abs(float(module.weight.detach().norm()) - rows**0.5) < 0.03 * rows**0.5


def test_steps_of_sgd_are_as_ever(stripes: Path) -> None:
    search = built(stripes, "--weight-optimizer", "sgd")
    assert isinstance(search.method.w_optimizer.sgd, torch.optim.SGD)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--unselected", "drift"], "weight_optimizer muon"),
        (["--momentum", "0.5"], "with weight_optimizer muon"),
        (["--weight-decay", "0.1"], "with weight_optimizer muon"),
    ],
)
def test_what_it_has_no_use_for_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(InputError) as error:
        parse_search(["digits", *words])
    assert said in str(error.value)
    parse_search(["digits", "--weight-optimizer", "sgd", *words])


def test_modules_of_ones_own_are_trained_by_descent() -> None:
    """Muon is for convolutions with a norm behind them, which nobody knows of a user's module."""
    x, y = torch.rand(32, 4), torch.arange(32) % 2
    choice = proxnas.Choice({"linear": nn.Linear(4, 4), "same": nn.Identity()})
    net = nn.Sequential(choice, nn.Linear(4, 2))
    found = proxnas.search(net, (x, y), (x, y), method=proxnas.NASP(), epochs=1, batch_size=8)
    assert found.model()(x).shape == (32, 2)
