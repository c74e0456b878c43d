"""The flags of a search on text, which `search` takes besides those of a search on images.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from proxnas.common.errors import InputError

if TYPE_CHECKING:
    from proxnas.searching.options import SearchConfig


@dataclass(frozen=True)
class TextFlags:
    """Text data and recurrent cells."""

    tokens: Literal["word", "char"] = "word"
    """Text: words between white space, with <eos> at the end of each line; or characters."""
    max_words: int = 0
    """Text: keep so many words, the most frequent; the others are <unk>; 0: all."""
    min_count: int = 0
    """Text: words that occur less often are <unk>; 0: 2, or 1 for a text with <unk> in it."""
    train_tokens: int = 0
    """Text: only the first so many tokens for w; the vocabulary is that of them; 0: all."""
    units: int = 300
    """rnn: units of the embedding and of every node in the search."""
    final_units: int = 850
    """rnn: units of the final network that params and flops refer to."""
    bptt: int = 35
    """rnn: mean length of a window of text; its gradient goes no further back."""
    lengths: Literal["random", "fixed"] = "random"
    """rnn: windows for w of random lengths, as DARTS, or all as long as --bptt."""
    norm: Literal["batch", "none"] = "batch"
    """rnn: nodes normalised over the batch in the search, as DARTS does, or not."""
    drop_output: float = 0.75
    """rnn: chance to drop a unit of the cell's output, alike at all times of a window; and so
    on:"""
    drop_hidden: float = 0.25
    """what a node reads,"""
    drop_input: float = 0.75
    """the cell's input,"""
    drop_embedding: float = 0.2
    """the embedding's output,"""
    drop_words: float = 0.0
    """whole words."""
    activation: float = 0.0
    """rnn: weight of the outputs' squares in the loss (AR)."""
    slowness: float = 1e-3
    """rnn: weight of the squares of the outputs' change in time (TAR)."""


TEXT_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(TextFlags)}
IMAGE_DEFAULTS: dict[str, Any] = {
    "max_skip": -1,
    "cells": 5,
    "channels": 16,
    "final_cells": 8,
    "final_channels": 16,
    "cutout": 0,
    "image_size": 0,
    "skip_broken": False,
    "resource": 0.0,
    "fixed_reduction": False,
    "unsampled_gradient": "zero",
    "precision": "fp32",
}
"""What a search of recurrent cells has no use for, with the values that ask for nothing."""

NOT_FOR_TEXT = ("bayesnas",)
"""Methods that draw answers from the logits of a whole batch, which a language model never
holds."""

TEXT_RANGES: dict[str, tuple[float, float]] = {
    "units": (1, 16384),
    "final_units": (1, 16384),
    "bptt": (1, 100_000),
    **dict.fromkeys((name for name in TEXT_DEFAULTS if name.startswith("drop_")), (0, 0.99)),
    "activation": (0, 1e6),
    "slowness": (0, 1e6),
}


def check_domain(config: SearchConfig) -> None:
    """An InputError for flags of the other domain, which would do nothing, and for impossible
    values."""
    text = config.space == "rnn"
    for name, neutral in (IMAGE_DEFAULTS if text else TEXT_DEFAULTS).items():
        idle = (
            "is not for --space rnn: leave it out" if text else "is for --space rnn: leave it out"
        )
        _require(getattr(config, name) == neutral, config, name, idle)
    refused = text and config.method in NOT_FOR_TEXT
    _require(not refused, config, "method", "cannot search recurrent cells: choose another")
    wrong = "cifar" if text else "ptb"
    _require(
        config.protocol != wrong,
        config,
        "protocol",
        f"does not go with --space {config.space}: leave it out",
    )
    for name, (low, high) in TEXT_RANGES.items():
        _require(
            low <= getattr(config, name) <= high,
            config,
            name,
            f"give a number from {low:g} to {high:g}",
        )
    if text:
        config.text_options()


def _require(ok: bool, config: SearchConfig, name: str, what_to_do: str) -> None:
    if not ok:
        raise InputError(f"--{name.replace('_', '-')} {getattr(config, name)}: {what_to_do}")


def recurrent(protocol: str) -> dict[str, Any]:
    """DARTS' recurrent search: plain SGD with a constant, large rate and short clipped steps."""
    sizes = {"epochs": 50, "batch_size": 256} if protocol == "ptb" else quick()
    return {
        "learning_rate": 20.0,
        "learning_rate_min": 20.0,
        "momentum": 0.0,
        "weight_decay": 5e-7,
        "clip": 0.25,
        # not studied on text: what nasp adds for images stays off (activations have no weights to
        # look ahead at)
        "arch_optimizer": "adam",
        "explore": 0.0,
        "look_ahead": 0,
        "arch_learning_rate": 3e-3,
        "arch_beta1": 0.9,
        "arch_beta2": 0.999,
    } | sizes


def quick() -> dict[str, Any]:
    """A small text on a laptop."""
    return {
        "epochs": 10,
        "batch_size": 64,
        "units": 64,
        "final_units": 128,
        "norm": "none",  # normalised, the first choices stay: docs/recurrent.md
        "drop_output": 0.3,
        "drop_hidden": 0.1,
        "drop_input": 0.3,
        "drop_embedding": 0.1,
    }
