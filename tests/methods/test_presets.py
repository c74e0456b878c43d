"""A preset is what was published: none of our additions, and every step that of an independent
Algorithm 2."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.cli.search import parse_search
from proxnas.common.clock import Clock
from proxnas.common.options import flatten
from proxnas.common.types import Batch
from proxnas.core.choice import Choice
from proxnas.core.supernet import Supernet
from proxnas.methods.additions import Additions
from proxnas.methods.base import Setup
from proxnas.methods.proximal import Nasp, Proximal
from proxnas.runs.metrics import Validation
from proxnas.searching.job import Search
from proxnas.searching.owners import asks_for_nothing
from support.searches import Repeat

MakeSearch = Callable[..., Search]

COMMON: dict[str, Any] = {
    # none of our additions
    "explore": 0.0,
    "look_ahead": 0,
    "evidence": 0.0,
    "pooling": 0.0,
    "refine": 0,
    "patience": 0,
    "max_skip": -1,
    "warmup": 0.0,
    "arch_every": 1,
    "score_batch": 1.0,
    "score_nodes": 1.0,
    # train_search.py and architect.py
    "arch_optimizer": "adam",
    "arch_learning_rate": 3e-4,
    "arch_beta1": 0.5,
    "arch_beta2": 0.999,
    "arch_noise": 0.0,
    "ties": "first",
    "order": 1,
    "eta": 0.0,
    "eta_at": "A_bar",
    "cutout": 0,
    "learning_rate": 0.025,
    "learning_rate_min": 0.001,
    "momentum": 0.9,
    "weight_decay": 3e-4,
    "clip": 5.0,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "paper": {"value": "a_k", "arch_decay": 0.0, "eta_cells": "all", "unselected": "still"},
    "official": {"value": "one", "arch_decay": 1e-3, "eta_cells": "normal", "unselected": "drift"},
}
OF_TEXT: dict[str, Any] = {  # DARTS' recurrent search, which is all that is published of NASP's
    "arch_learning_rate": 3e-3,
    "arch_beta1": 0.9,
    "learning_rate": 20.0,
    "learning_rate_min": 20.0,
    "momentum": 0.0,
    "weight_decay": 5e-7,
    "clip": 0.25,
}


def set_to(argv: str, wanted: dict[str, Any]) -> None:
    used = flatten(parse_search(argv.split()))
    known = {name: value for name, value in wanted.items() if name in used}
    assert {name: used[name] for name in known} == known
    # what the method or the domain lacks would ask for nothing
    for name in wanted.keys() - known.keys():
        assert wanted[name] == asks_for_nothing(name)


@pytest.mark.parametrize("preset", PUBLISHED)
@pytest.mark.parametrize("method", ["nasp", "pa", "lazy-pa"])
@pytest.mark.parametrize("space", ["nasp12", "nasbench201", "rnn"])
def test_a_preset_has_none_of_our_additions(preset: str, method: str, space: str) -> None:
    data = "pydocs" if space == "rnn" else "digits"
    wanted = COMMON | PUBLISHED[preset] | (OF_TEXT if space == "rnn" else {})
    set_to(f"{data} --method {method} --preset {preset} --space {space}", wanted)


@pytest.mark.parametrize("preset", PUBLISHED)
@pytest.mark.parametrize("method", ["nasp", "pa", "lazy-pa"])
@pytest.mark.parametrize("space", ["nasp12", "nasbench201", "rnn"])
def test_the_method_of_a_preset_is_built_without_additions(
    preset: str, method: str, space: str, make_search: MakeSearch
) -> None:
    built = make_search("--method", method, "--preset", preset, "--space", space).method
    assert isinstance(built, Proximal)
    assert built.additions == Additions()


@pytest.mark.parametrize("order", ["1st", "2nd"])
def test_darts_has_none_of_our_additions(order: str) -> None:
    published = {
        name: COMMON[name] for name in COMMON if name not in ("ties", "arch_noise", "order")
    }
    set_to(f"digits --method darts-{order}", published | {"arch_noise": 1e-3, "arch_decay": 1e-3})


def test_the_sizes_of_the_published_search() -> None:
    sizes = {
        "epochs": 50,
        "batch_size": 64,
        "cells": 8,
        "channels": 16,
        "final_cells": 20,
        "final_channels": 36,
    }
    set_to("digits --protocol cifar --preset official", sizes)


def test_images_that_move_A_are_changed_like_those_that_train_w(make_search: MakeSearch) -> None:
    """As in the public codes, where both halves are one set with one transform; what judges a cell
    is not changed."""
    search = make_search("--space", "nasbench201", "--cutout", "3")
    assert (
        search.valid.part.augment == search.train.part.augment
        and search.valid.part.augment.cutout == 3
    )
    plain = search.task.part.evaluation_batches(64)
    known = {tuple(x.flatten().tolist()) for batch in plain for x in batch.x}
    assert len(known) == 20
    for _ in range(5):
        for x in search.valid.next().x:
            hidden = (x == 0).all(0)  # zeros are mean colours
            assert 4 <= int(hidden.sum()) <= 9 and tuple(x.flatten().tolist()) not in known


# ----------------------------------------------------- Algorithm 2, written anew


LINEAR = {"a": (4, 4), "b": (4, 2, 4), "c": (4, 3, 4)}
"""Candidates: the sizes of chains of linear layers, whose parameters R counts."""
ETA, STEPS = 0.3, 6
GROUPS = ("normal", "reduce")


def chain(sizes: tuple[int, ...]) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(n, m, bias=False) for n, m in pairwise(sizes)))


def network() -> nn.Sequential:
    choices = [
        Choice({name: chain(sizes) for name, sizes in LINEAR.items()}, share=group)
        for group in GROUPS
    ]
    return nn.Sequential(choices[0], nn.Tanh(), choices[1])


class ByHand:
    """Lines 3 to 6 of Algorithm 2 on the network above: plain autograd, Adam and SGD as their
    formulas are printed."""

    def __init__(
        self, module: nn.Sequential, preset: str, epochs: int, steps_per_epoch: int
    ) -> None:
        self.choices = [module[0], module[2]]
        self.weights = [w.detach().clone() for w in module.parameters()]
        self.official, self.steps, self.t = preset == "official", epochs * steps_per_epoch, 0
        self.A = [torch.full((3,), 0.5) for _ in GROUPS]
        self.m, self.v = [torch.zeros(3) for _ in GROUPS], [torch.zeros(3) for _ in GROUPS]
        self.momentum = [torch.zeros_like(w) for w in self.weights]

    def discrete(self) -> list[Tensor]:
        """prox_C1: the first of the largest entries, with its value (paper) or 1 (public code)."""
        kept = []
        for a in self.A:
            k = a.tolist().index(max(a.tolist()))
            kept.append(torch.zeros(3))
            kept[-1][k] = 1.0 if self.official else a[k]
        return kept

    def output(self, factors: list[Tensor], weights: list[Tensor], x: Tensor) -> Tensor:
        left = list(weights)
        for i, each in enumerate(factors):
            total = torch.zeros(len(x), 4)
            for factor, sizes in zip(each, LINEAR.values(), strict=True):
                y = x
                for _ in sizes[1:]:
                    y = y @ left.pop(0).T
                total = total + factor * y
            x = total.tanh() if i == 0 else total
        return x

    def step(self, train: Batch, valid: Batch) -> None:
        self.t += 1
        A_bar = [a.requires_grad_() for a in self.discrete()]
        loss = nn.functional.cross_entropy(self.output(A_bar, self.weights, valid.x), valid.y)
        gradients = torch.autograd.grad(loss, A_bar)
        counts = torch.tensor([sum(n * m for n, m in pairwise(s)) for s in LINEAR.values()])
        for i, g in enumerate(gradients):
            if GROUPS[i] == "normal" or not self.official:
                g = g + ETA * 2 * counts / counts.sum() * A_bar[i].detach()
            self.A[i] = self.adam(i, g).clamp(0, 1)
        weights = [w.requires_grad_() for w in self.weights]
        loss = nn.functional.cross_entropy(self.output(self.discrete(), weights, train.x), train.y)
        self.sgd(torch.autograd.grad(loss, weights))

    def adam(self, i: int, g: Tensor) -> Tensor:
        g = g + (1e-3 if self.official else 0.0) * self.A[i]
        self.m[i] = 0.5 * self.m[i] + 0.5 * g
        self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
        m, v = self.m[i] / (1 - 0.5**self.t), self.v[i] / (1 - 0.999**self.t)
        return self.A[i] - 3e-4 * m / (v.sqrt() + 1e-8)

    def sgd(self, gradients: tuple[Tensor, ...]) -> None:
        """Unselected candidates have a gradient of zero: the public code lets them drift all the
        same."""
        rate = 0.001 + 0.024 * (1 + math.cos(math.pi * (self.t - 1) / self.steps)) / 2
        norm = torch.stack([g.norm() for g in gradients]).norm()
        for i, g in enumerate(gradients):
            w = self.weights[i].detach()
            if self.official or g.any():
                self.momentum[i] = (
                    0.9 * self.momentum[i] + g * min(1.0, 5.0 / float(norm)) + 3e-4 * w
                )
                w = w - rate * self.momentum[i]
            self.weights[i] = w


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("preset", PUBLISHED)
def test_steps_of_a_preset_are_those_of_an_algorithm_2_written_anew(
    preset: str, make_search: MakeSearch
) -> None:
    torch.set_default_dtype(torch.float32)  # the search is only asked for what its flags come to
    asked = make_search(
        "--preset", preset, "--space", "nasbench201", "--eta", str(ETA), "--epochs", "2"
    ).setup
    torch.set_default_dtype(torch.float64)
    module = network()
    train, valid = (Batch(torch.randn(6, 4), torch.arange(6) % 4) for _ in range(2))
    by_hand = ByHand(module, preset, epochs=2, steps_per_epoch=len(Repeat(train)))
    ours = Nasp(
        Setup(
            Supernet(module),
            Repeat(train),
            Repeat(valid),
            asked.options,
            asked.weights,
            Clock(torch.device("cpu")),
            evaluate=lambda batches=None: Validation(0.0, 0.0),
        )
    )
    cells = set()
    for _ in range(STEPS):
        ours.step()
        by_hand.step(train, valid)
        for name, A in zip(GROUPS, by_hand.A, strict=True):
            torch.testing.assert_close(ours.A[name][0], A, rtol=1e-9, atol=1e-12)
        for w, expected in zip(module.parameters(), by_hand.weights, strict=True):
            torch.testing.assert_close(w.detach(), expected.detach(), rtol=1e-9, atol=1e-12)
        cells.add(tuple(int(a.argmax()) for a in by_hand.discrete()))
    assert len(cells) > 1 or cells != {(0, 0)}  # another cell than the tie at the start


ALWAYS = "waiting for evidence, pooled scores"
REFINED = "short trainings of the found cell and others like it"
WIRED = "Muon for w, wiring by short trainings of random cells"


@pytest.mark.parametrize(
    ("words", "beyond"),
    [
        ((), f"look-ahead, exploration, {ALWAYS}, scaled steps of A, {WIRED}"),
        (
            ("--wiring", "free", "--weight-optimizer", "sgd", "--refine", "24"),
            f"look-ahead, exploration, {ALWAYS}, scaled steps of A, {REFINED}",
        ),
        (
            ("--look-ahead", "0", "--wiring", "inputs"),
            f"exploration, {ALWAYS}, scaled steps of A, Muon for w, nodes that read inputs only",
        ),
        (
            (
                *("--look-ahead", "0", "--explore", "0", "--evidence", "0", "--pooling", "0"),
                *("--arch-optimizer", "adam"),
            ),
            WIRED,
        ),
        (("--preset", "paper"), ""),
        (("--preset", "official"), ""),
        (
            ("--preset", "paper", "--score-batch", "0.5", "--order", "2"),
            "partial scoring, second order",
        ),
        (("--space", "rnn"), ""),
        (("--method", "gdas"), ""),
    ],
)
def test_what_a_search_does_beyond_the_paper_is_said(words: tuple[str, ...], beyond: str) -> None:
    data = "pydocs" if "rnn" in words else "digits"
    said = parse_search([data, *words]).beyond()
    assert said == (f"{beyond} (preset paper: without)" if beyond else "")
