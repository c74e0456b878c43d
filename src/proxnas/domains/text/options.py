"""What training a language model, testing it and generating text are told; and the protocols of
training.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from proxnas.runs.logging_options import LogFlags
from proxnas.runs.options import JobConfig, RunConfig
from proxnas.training.options import Range, check_ranges

CellArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CELL")]
TextArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
ModelArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]


def quick() -> dict[str, Any]:
    """A small text on a laptop: a small network, little to drop, few epochs."""
    return {
        "units": 128,
        "epochs": 10,
        "patience": 0,
        "batch_size": 16,
        "learning_rate": 20.0,
        "drop_output": 0.3,
        "drop_hidden": 0.1,
        "drop_input": 0.3,
        "drop_embedding": 0.1,
        "drop_words": 0.0,
        "test_batch_size": 10,
        "average_after": 2,
    }


def ptb() -> dict[str, Any]:
    """PTB as the public DARTS code trains; it stops when nothing got better for 500 epochs."""
    return {
        "units": 850,
        "epochs": 8000,
        "patience": 500,
        "batch_size": 64,
        "learning_rate": 20.0,
        "weight_decay": 8e-7,
        "drop_output": 0.75,
        "drop_hidden": 0.25,
        "drop_input": 0.75,
        "drop_embedding": 0.2,
        "drop_words": 0.1,
        "test_batch_size": 1,
        "average_after": 5,
    }


def wt2() -> dict[str, Any]:
    """WikiText-2 as the public DARTS code trains."""
    return ptb() | {"units": 700, "weight_decay": 5e-7, "drop_hidden": 0.15}


TEXT_PROTOCOLS = {"quick": quick, "ptb": ptb, "wt2": wt2}


@dataclass(frozen=True)
class TokenFlags:
    """How a text becomes tokens."""

    tokens: Literal["word", "char"] = "word"
    """Words between white space, with <eos> at the end of each line; or characters."""
    max_words: int = 0
    """Keep so many words, the most frequent; the others are <unk>; 0: all."""
    min_count: int = 0
    """Words that occur less often are <unk>; 0: 2, or 1 for a text with <unk> in it."""
    train_tokens: int = 0
    """Train on the first so many tokens only, and take the vocabulary from them; 0: all."""


@dataclass(frozen=True)
class TextTrainConfig(TokenFlags, LogFlags, JobConfig):
    """Train the language model of a recurrent cell on DATA from scratch, and test it."""

    cell: CellArgument = ""
    """A run folder, a genotype JSON file, zoo:NAME of a recurrent cell, or zoo:LSTM."""
    data: TextArgument = ""
    """pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME."""
    protocol: Literal["quick", "ptb", "wt2"] = "quick"
    """Defaults of all the following: a laptop's, or those of the DARTS code for PTB and
    WikiText-2."""

    units: int = 128
    """Of the embedding and of every node: the decoder shares the embedding's weights."""
    epochs: int = 10
    patience: int = 0
    """Stop when validation has not improved for so many epochs; 0: never."""
    batch_size: int = 16
    """Pieces of the text that are read side by side."""
    bptt: int = 35
    """Mean length of a window; its gradient goes no further back. Lengths are random, as in the
    DARTS code."""
    learning_rate: float = 20.0
    """Of SGD, times length / bptt for a window."""
    weight_decay: float = 8e-7
    clip: float = 0.25
    """Largest norm of the gradient."""
    average_after: int = 2
    """Average the weights once validation is worse than the best of all epochs but the last so
    many; 0: never."""
    drop_output: float = 0.3
    """Chance to drop a unit of the cell's output, alike at all times of a window; and so on:"""
    drop_hidden: float = 0.1
    """what a node reads,"""
    drop_input: float = 0.3
    """the cell's input,"""
    drop_embedding: float = 0.1
    """the embedding's output,"""
    drop_words: float = 0.0
    """whole words."""
    activation: float = 0.0
    """Weight of the outputs' squares (AR)."""
    slowness: float = 1e-3
    """Weight of the squares of the outputs' change in time (TAR)."""
    valid_batch_size: int = 10
    """Pieces that the validation text is read in."""
    test_batch_size: int = 10
    """Pieces that the test text is read in; 1 is exact and slow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, TEXT_RANGES)


TEXT_RANGES: dict[str, Range] = {
    "units": (1, 16384),
    "epochs": (1, 1_000_000),
    "patience": (0, 1_000_000),
    "batch_size": (1, 1_000_000),
    "bptt": (1, 100_000),
    "learning_rate": (0, 1e6),
    "weight_decay": (0, 1),
    "clip": (0, 1e9),
    "average_after": (0, 1_000_000),
    "drop_output": (0, 0.99),
    "drop_hidden": (0, 0.99),
    "drop_input": (0, 0.99),
    "drop_embedding": (0, 0.99),
    "drop_words": (0, 0.99),
    "activation": (0, 1e6),
    "slowness": (0, 1e6),
    "valid_batch_size": (1, 1_000_000),
    "test_batch_size": (1, 1_000_000),
    "checkpoint_minutes": (0, 1e9),
}


@dataclass(frozen=True)
class TextTestConfig(RunConfig):
    """Test a trained language model on DATA: its perplexity."""

    __test__ = False  # pytest, this is no test

    model: ModelArgument = ""
    """The folder of a train or fit run, or a model.safetensors."""
    data: TextArgument = ""
    """pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME."""
    part: Literal["test", "valid", "train"] = "test"
    """Which part of DATA."""
    other_text: bool = False
    """DATA has another vocabulary than the model: words that the model does not know count as
    <unk>."""
    json: str = ""
    """Write everything into this file."""


@dataclass(frozen=True)
class GenerateConfig(RunConfig):
    """Let a trained language model write on from a prompt."""

    model: ModelArgument = ""
    """The folder of a train or fit run, or a model.safetensors."""
    prompt: str = ""
    """How the text begins; empty: with a new line."""
    words: int = 100
    """So many words (or characters) to write."""
    temperature: float = 1.0
    """Below 1 likely words become more likely; 0: always the likeliest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {"words": (1, 1_000_000), "temperature": (0, 1000)})
