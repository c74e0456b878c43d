"""No option of a search is accepted and then ignored: for every method each is refused, or changes
what comes out."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import proxnas
from proxnas.cells.kinds import CUSTOM
from proxnas.cli.search import parse_search
from proxnas.common.errors import InputError, flag_of
from proxnas.common.options import flat_hints, flatten
from proxnas.common.words import words_for
from proxnas.core.choice import Choice
from proxnas.domains.images.options import ImageFlags
from proxnas.domains.modules.space import CustomSpace
from proxnas.domains.modules.task import CustomData
from proxnas.domains.text.options import TextSearchOptions
from proxnas.methods import METHODS, options_of
from proxnas.methods.limit_options import BudgetFlags
from proxnas.runs.executors.choice import ManyFlags
from proxnas.runs.loggers import LogFlags
from proxnas.runs.loop import run_epochs
from proxnas.runs.options import JobConfig
from proxnas.runs.progress import shown
from proxnas.searching.defaults import check_asked
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.owners import parts_for
from proxnas.workflows.compare import CompareConfig, search_values
from support.commands import SMALL, call, one_line, stripes_file
from support.methods import SAMPLING

REWARDED = {"max_params": "90", "arch_learning_rate": 0.2, "evaluations": 9}
"""Beside which a reward shows."""
OPTIONS: dict[str, dict[str, Any]] = {
    "learning_rate": {"learning_rate": 0.3},
    "learning_rate_min": {"learning_rate_min": 0.02},
    "momentum": {"momentum": 0.2},
    "weight_decay": {"weight_decay": 0.2},
    "clip": {"clip": 0.01},
    "unselected": {"unselected": "drift", "explore": 3.0},
    "arch_optimizer": {"arch_optimizer": "sgd"},
    "arch_learning_rate": {"arch_learning_rate": 0.2},
    "arch_beta1": {"arch_beta1": 0.1},
    "arch_beta2": {"arch_beta2": 0.5},
    "arch_decay": {"arch_decay": 0.3},
    "arch_noise": {"arch_noise": 0.3},
    "value": {"value": "a_k"},
    "ties": {"ties": "first", "arch_noise": 0.0},
    "order": {"order": 2},
    "eta": {"eta": 3.0},
    "eta_cells": {"eta_cells": "normal", "eta": 3.0},
    "eta_at": {"eta_at": "A", "eta": 3.0},
    "cost": {"cost": "flops", "eta": 3.0, "expected_cost": 3.0},
    "explore": {"explore": 3.0},
    "look_ahead": {"look_ahead": 1},
    "evidence": {"evidence": 1e9},
    "pooling": {"pooling": 0.9},
    "horizon": {"horizon": 40.0, "look_ahead": 1},
    "max_skip": {"max_skip": 0},
    "warmup": {"warmup": 2},
    "patience": {"patience": 1, "arch_learning_rate": 1e-9, "epochs": 6},
    "arch_every": {"arch_every": 2},
    "score_batch": {"score_batch": 0.3},
    "score_nodes": {"score_nodes": 0.3},
    "tau_start": {"tau_start": 3.0},
    "tau_end": {"tau_end": 0.5},
    "resource": {"resource": 3.0},
    "unsampled_gradient": {"unsampled_gradient": "sum"},
    "controller_steps": {"controller_steps": 2},
    "evaluations": {"evaluations": 4},
    "population": {"population": 4, "evaluations": 9},
    "tournament": {"tournament": 4, "population": 4, "evaluations": 9},
    "random_cells": {"random_cells": 1},
    "paths": {"paths": "fair"},
    "generations": {"generations": 4},
    "by": {"by": "grad-norm"},
    "reward_alpha": {"reward_alpha": -10.0, **REWARDED},
    "reward_beta": {"reward_beta": -10.0, **REWARDED},
    "rounds": {"rounds": 2, "evaluations": 9},
    "predictor_steps": {"predictor_steps": 9, "evaluations": 9},
    "zero_one": {"zero_one": 0.0},
    "beta": {"beta": 0.3},
    "keep": {"keep": 1.0},
    "resting": {"resting": 0.0},
    "deciding": {"deciding": 0.9},
    "judged_batches": {"judged_batches": 1},
    "gates": {"gates": "reinforce"},
    "expected_cost": {"expected_cost": 5.0},
    "max_params": {"max_params": "90"},
}
"""Option -> other values than the defaults; what stands after the first is what it needs beside
it."""
ELSEWHERE = {
    "data",
    "space",
    "method",
    "preset",
    "protocol",
    "epochs",
    "batch_size",
    "cells",
    "channels",
    "cutout",
}
ELSEWHERE |= {
    "final_cells",
    "final_channels",
    "precision",
    "table",
    "seeds",
    "pick",
    "evaluate",
    "refine",
}
ELSEWHERE |= {"max_flops", "max_latency", "latency_by", "fixed_reduction", "start", "channel_part"}
ELSEWHERE |= {"wiring", "weight_optimizer"}
"""What the data, the network and the command make use of, whatever the method: tested where they
are."""


def fields(*classes: type) -> set[str]:
    return {field.name for cls in classes for field in dataclasses.fields(cls)}


def test_every_flag_of_a_search_is_tried_here_or_no_business_of_the_method() -> None:
    of_the_command = fields(ImageFlags, TextSearchOptions, ManyFlags, LogFlags, JobConfig)
    assert SearchOptions.all_hints().keys() == OPTIONS.keys() | ELSEWHERE | of_the_command
    of_methods = {name for method in METHODS for name in fields(options_of(method))}
    assert of_methods - OPTIONS.keys() == {"evaluate", "start", "fixed_reduction"}
    assert fields(BudgetFlags) <= OPTIONS.keys() | ELSEWHERE


class Net(nn.Module):
    """The smallest module that has something to choose for every option."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 6), nn.Linear(6, 2)
        self.first, self.second, self.reduce = (Choice(candidates()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.reduce(self.second(self.first(self.stem(x)))))
        return out


def candidates() -> dict[str, nn.Module]:
    one = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    narrow = nn.Sequential(nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 6))
    return {"skip_connect": nn.Identity(), "one": one, "narrow": narrow}


BASE: dict[str, Any] = {
    "space": CUSTOM,
    "epochs": 3,
    "batch_size": 8,
    "threads": 1,
    "device": "cpu",
    "patience": 0,
}
FEWER: dict[str, dict[str, Any]] = {
    "enas": {"controller_steps": 1},
    "random-ws": {"random_cells": 4},
    "spos": {"population": 3, "generations": 2},
    "score": {"random_cells": 4},
}
FEWER |= {method: {"evaluations": 3} for method in SAMPLING}
FEWER["nao"] |= {"predictor_steps": 2}


@cache
def outcome(method: str, seed: int, **changes: Any) -> str:
    """All that a search says, but for the time it took; an InputError if the option is refused."""
    # what it has by itself for images is no option of modules
    known = flat_hints(SearchOptions, parts_for(CUSTOM, method))
    own = options_of(method).defaults
    defaults = {name: value for name, value in own.items() if name in known}
    usual = {"method": method, **defaults} | BASE | FEWER.get(method, {})
    config = SearchOptions.from_values(usual | changes | {"seed": seed})
    check_asked(config, flatten(SearchOptions.from_values(usual | {"seed": seed})))
    torch.manual_seed(seed)
    x, space = torch.randn(48, 4), CustomSpace(Net())
    y = (x[:, 0] * x[:, 1] > 0).long()
    if config.max_skip >= 0:
        space.groups = {
            name: dataclasses.replace(group, max_skip=0) for name, group in space.groups.items()
        }
    search = Search(config, CustomData((x[:24], y[:24]), (x[24:], y[24:])), space)
    with shown(Console(), method, True) as bar:
        rows = run_epochs(search, None, bar)
    return json.dumps(
        [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
    )


def refusal(method: str, **changes: Any) -> str:
    """Why the option is refused; empty if it is not."""
    try:
        outcome(method, 0, **changes)
    except InputError as error:
        return str(error)
    return ""


SEEDS = 6
"""An option may be without effect under one seed, where what it would change does not come up."""


QUICK = ("random", "random-ws", "score", "asng", "local", "darts-1st")
"""Methods of which forty searches take no more than a moment."""


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=() if m in QUICK else pytest.mark.slow) for m in METHODS]
)
def test_an_option_is_refused_or_changes_the_search(method: str) -> None:
    for name, values in OPTIONS.items():
        asked = {name: values[name]}
        if said := refusal(method, **asked):
            assert said.startswith(name) and method in said, said
        beside = {
            other: value
            for other, value in values.items()
            if other != name and other in flatten(SearchOptions.from_values({"method": method}))
        }
        if not refusal(method, **beside | asked):
            seeds = range(SEEDS)
            used = any(
                outcome(method, s, **beside | asked) != outcome(method, s, **beside) for s in seeds
            )
            assert used, f"{method} ignores {flag_of(name)}"
        else:
            assert said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--method asng --arch-learning-rate 0.1", "--arch-learning-rate 0.1: is for nasp"),
        ("--method random --arch-decay 0.1", "--arch-decay 0.1: is for nasp"),
        ("--method enas --arch-noise 0.1", "--arch-noise 0.1: is for nasp"),
        ("--method bayesnas --arch-beta1 0.1", "--arch-beta1 0.1: is for nasp"),
        (
            "--arch-beta1 0.3",
            "--arch-beta1 0.3: does nothing for nasp with --arch-optimizer scaled: leave it out",
        ),
        ("--look-ahead 0 --horizon 2", "--horizon 2.0: does nothing for nasp with --look-ahead 0"),
        ("--method darts-1st --unselected drift", "--unselected drift: is for nasp"),
        ("--method asap --unselected drift", "--unselected drift: is for nasp"),
        ("--cost flops", "--cost flops: does nothing for nasp without --eta or a limit"),
        (
            "--space nasbench201 --eta 1 --eta-cells normal",
            "--eta-cells normal: does nothing for nasp in --space",
        ),
        ("--space rnn --eta 1", "--eta 1.0: does nothing for nasp in --space rnn"),
        ("--space rnn --look-ahead 9", "--look-ahead 9: does nothing for nasp in --space rnn"),
        ("--method random-ws --patience 3", "--patience 3: does nothing for random-ws"),
    ],
)
def test_what_would_do_nothing_is_refused(
    flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("search", "digits", *flags.split()) == 2
    message = one_line(capsys.readouterr().err)
    assert message.startswith(said) and "leave it out" in message


def test_flags_count_as_they_are_together() -> None:
    """The presets, the text and the optimizer bring values of their own; only what somebody asks
    for is judged."""
    assert parse_search(["digits", "--preset", "official"]).eta_cells == "normal"
    assert (
        parse_search(["digits", "--arch-optimizer", "adam", "--arch-beta1", "0.3"]).arch_beta1
        == 0.3
    )
    text = parse_search(["pydocs", "--space", "rnn", "--arch-optimizer", "scaled"])
    assert text.arch_beta1 == 0.9  # DARTS' for text: idle, but nobody has asked for it
    assert "arch_beta1" not in flatten(
        parse_search(["pydocs", "--space", "rnn", "--method", "random"])
    )


def test_a_study_gives_each_search_what_it_has_a_use_for(tmp_path: Path) -> None:
    file = tmp_path / "search.json"
    file.write_text('{"arch_beta1": 0.3, "evaluations": 3, "look_ahead": 0, "horizon": 2.0}')
    study = CompareConfig(data="digits", search_config=str(file))
    given = {
        name: " ".join(words_for(search_values(study, name, 0)))
        for name in ("nasp", "darts-1st", "random")
    }
    assert (
        "--look-ahead=0" in given["nasp"] and "--arch-beta1" not in given["nasp"] + given["random"]
    )
    assert "--arch-beta1=0.3" in given["darts-1st"] and "--evaluations=3" in given["random"]
    assert not [words for words in given.values() if "--horizon" in words]


@pytest.mark.parametrize("options", [{"horizon": 2.0, "look_ahead": 0}, {"cost": "flops"}])
def test_the_classes_of_methods_refuse_the_same(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"^{next(iter(options))} .*does nothing for nasp"):
        proxnas.search(Net(), DATA, DATA, proxnas.NASP(**options), epochs=1)


DATA = (torch.randn(8, 4), torch.arange(8) % 2)


def test_a_search_with_fewer_steps_than_evaluations_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = stripes_file(tmp_path)
    flags = ["--method", "evolution", "--batch-size", "80", "--quiet", "--run", tmp_path / "run"]
    assert call("search", data, *SMALL, *flags) == 0
    said = (
        "evaluations 24: only 2 cells were evaluated, because 2 epochs have no more steps: give"
        " epochs 24"
    )
    assert said in capsys.readouterr().err
    assert said in json.loads((tmp_path / "run" / "result.json").read_text())["warning"]
