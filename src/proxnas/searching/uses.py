"""Which flags of a search do anything: by its method, and by its other flags.

What would do nothing is refused, so that nobody takes its silence for a result. No torch here:
`--help` must be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from proxnas.common.errors import InputError
from proxnas.methods import METHODS, SAMPLING
from proxnas.runs.options import flag, require

if TYPE_CHECKING:
    from proxnas.searching.options import SearchConfig

PROXIMAL = ("nasp", "pa", "lazy-pa")
DARTS = ("darts-1st", "darts-2nd")
DESCENDING = (*PROXIMAL, *DARTS, "snas", "gdas", "asap")
"""Methods whose A takes steps by its gradient."""
PARTLY = (*PROXIMAL, "random-ws", "gdas", "enas", "asng")
"""Methods that train shared weights through some candidates at a time: what they leave aside comes
back later."""
OWN_RULES = ("gdas", "enas", "asng", "reinforce", "pnas")
"""Methods that choose inputs and candidates by rules of their own."""
USED_BY: dict[tuple[str, ...], dict[str, object]] = {
    PROXIMAL: {
        "preset": "default",
        "value": "one",
        "ties": "last",
        "order": 1,
        "eta": 0.0,
        "eta_cells": "all",
        "eta_at": "A_bar",
        "cost": "auto",
        "score_batch": 1.0,
        "score_nodes": 1.0,
        "arch_optimizer": "adam",
        "explore": 0.0,
        "look_ahead": 0,
        "horizon": 1.0,
    },
    (*PROXIMAL, *DARTS): {"arch_every": 1},
    (*PROXIMAL, *DARTS, "bayesnas"): {"warmup": 0},
    DESCENDING: {"arch_beta1": 0.5, "arch_beta2": 0.999, "arch_decay": 0.0},
    (*DESCENDING, "enas", "reinforce"): {"arch_learning_rate": 3e-4},
    (*DESCENDING, "bayesnas"): {"arch_noise": 1e-3},
    PARTLY: {"unselected": "still"},
    ("snas", "gdas", "asap"): {"tau_start": 1.0, "tau_end": 0.1},
    ("snas",): {"resource": 0.0},
    ("gdas",): {"fixed_reduction": False, "unsampled_gradient": "zero"},
    ("enas",): {"controller_steps": 30},
    ("random-ws",): {"random_cells": 100},
    SAMPLING: {"evaluations": 8, "evaluate": "train"},
    ("evolution",): {"population": 0, "tournament": 0},
    ("local",): {"start": ""},
    tuple(m for m in METHODS if m not in OWN_RULES): {"max_skip": -1},
}
"""Methods -> flags that the others would silently ignore, with the values that ask for nothing."""


def of_use(method: str, name: str) -> bool:
    """Whether the method does anything with the flag."""
    return all(method in methods for methods, flags in USED_BY.items() if name in flags)


def check_method(config: SearchConfig) -> None:
    """An InputError for flags of other methods."""
    for methods, flags in USED_BY.items():
        for name, neutral in flags.items():
            value = getattr(config, name)
            idle = config.method not in methods and value != neutral
            require(
                not idle,
                flag(name),
                value,
                f"is for {', '.join(methods)}, not for {config.method}: leave it out",
            )


class Need(NamedTuple):
    """What a flag needs besides its method to do anything."""

    met: Callable[[SearchConfig], bool]
    without: Callable[[SearchConfig], str]
    """When it does nothing, in words."""


def _priced(c: SearchConfig) -> bool:
    return c.eta > 0 or c.limit() is not None


ADAM = Need(
    lambda c: c.arch_optimizer == "adam", lambda c: f"with --arch-optimizer {c.arch_optimizer}"
)
PRICE = Need(_priced, lambda c: "without --eta or a limit")
TRAINED = Need(
    lambda c: c.evaluate == "train", lambda c: "with --evaluate table, which trains nothing"
)
NEEDS: dict[str, tuple[Need, ...]] = {
    "arch_beta1": (ADAM,),
    "arch_beta2": (ADAM,),
    "look_ahead": (
        Need(
            lambda c: c.space != "rnn", lambda c: "in --space rnn, whose candidates have no weights"
        ),
    ),
    "horizon": (Need(lambda c: c.look_ahead > 0, lambda c: "with --look-ahead 0"),),
    "eta": (
        Need(
            lambda c: c.space != "rnn" or c.cost_of_R() not in ("params", "flops"),
            lambda c: (
                "in --space rnn, whose candidates have neither weights nor products: give --cost"
                " latency, or"
            ),
        ),
    ),
    "cost": (PRICE,),
    "eta_at": (PRICE,),
    "eta_cells": (
        PRICE,
        Need(
            lambda c: c.space not in ("nasbench201", "resnet", "rnn"),
            lambda c: f"in --space {c.space}, which has one cell only",
        ),
    ),
    "patience": (
        Need(
            lambda c: c.method not in ("enas", "random-ws"),
            lambda c: "because it draws another cell in every step, and so never comes to rest",
        ),
    ),
    **dict.fromkeys(
        ("learning_rate", "learning_rate_min", "momentum", "weight_decay", "clip"), (TRAINED,)
    ),
}
"""Flags that do nothing unless other flags let them."""


def why_idle(config: SearchConfig, name: str) -> str:
    """When the flag does nothing in this search, in words; empty if it does something."""
    return next((need.without(config) for need in NEEDS.get(name, ()) if not need.met(config)), "")


def check_asked(config: SearchConfig, asked: Iterable[str]) -> None:
    """An InputError for flags that somebody asked for and that would do nothing beside the
    others."""
    for name in asked:
        if why := why_idle(config, name):
            raise InputError(
                f"{flag(name)} {getattr(config, name)}: does nothing for {config.method} {why}:"
                " leave it out"
            )
