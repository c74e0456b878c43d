"""Flags that make a search of every method short and let all of its phases happen."""

from __future__ import annotations

from support.methods import SAMPLING, has_option

QUICK = {
    "nasp": ("--look-ahead", "3"),
    "enas": ("--controller-steps", "1"),
    "bayesnas": ("--warmup", "0"),
    "asap": ("--tau-start", "0.9"),
    "pc-darts": ("--resting", "0"),
    "proxyless": ("--warmup", "0"),
    "random-ws": ("--random-cells", "5"),
    "spos": ("--population", "3", "--generations", "2"),
    "score": ("--random-cells", "5"),
    **dict.fromkeys(SAMPLING, ("--evaluations", "5")),
    "nao": ("--evaluations", "5", "--predictor-steps", "2"),
}
"""The phases that come late or take long."""


def short(method: str, space: str = "darts7") -> tuple[str, ...]:
    """Five steps, in which A moves far; a sampling method has one a cell."""
    rate = ("--arch-learning-rate", "0.02") if has_option(method, "arch_learning_rate") else ()
    late = (
        () if (method, space) == ("nasp", "rnn") else QUICK.get(method, ())
    )  # nothing to look ahead at
    return "--epochs", "1", *rate, *late
