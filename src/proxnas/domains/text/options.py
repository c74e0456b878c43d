"""What searching recurrent cells, training a language model, testing it and generating text are
told; and the protocols of search and training.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from proxnas.common.options import COUNT, Options, Range
from proxnas.domains.search_options import DomainOptions
from proxnas.domains.text.data.options import TextOptions
from proxnas.runs.options import RunConfig
from proxnas.training.options import (
    CellArgument,
    Chance,
    DataArgument,
    Defaults,
    Epochs,
    ModelArgument,
    Norm,
    Rate,
    TestOptions,
    TrainOptions,
)

LITTLE_DROPPED: Defaults = {
    "drop_output": 0.3,
    "drop_hidden": 0.1,
    "drop_input": 0.3,
    "drop_embedding": 0.1,
}
"""For small texts and networks, in search and training alike."""
PTB: Defaults = {
    "units": 850,
    "epochs": 8000,
    "patience": 500,
    "batch_size": 64,
    "drop_words": 0.1,
    "test_batch_size": 1,
    "average_after": 5,
}
"""PTB as the public DARTS code trains; it stops when nothing got better for 500 epochs."""
WT2: Defaults = PTB | {"units": 700, "weight_decay": 5e-7, "drop_hidden": 0.15}
"""WikiText-2 as the public DARTS code trains."""
TEXT_PROTOCOLS: dict[str, Defaults] = {"quick": LITTLE_DROPPED, "ptb": PTB, "wt2": WT2}
"""quick: a small text on a laptop, a small network and few epochs, as the options are declared."""


@dataclass(frozen=True)
class Regularised(Options):
    """What keeps a language model from learning its text by heart; the values are DARTS'."""

    heading: ClassVar[str] = "data and networks:"

    drop_output: Chance = 0.75
    """Chance to drop a unit of the cell's output, alike at all times of a window; and so on:"""
    drop_hidden: Chance = 0.25
    """what a node reads,"""
    drop_input: Chance = 0.75
    """the cell's input,"""
    drop_embedding: Chance = 0.2
    """the embedding's output,"""
    drop_words: Chance = 0.0
    """whole words."""
    activation: Rate = 0.0
    """Weight of the outputs' squares (AR)."""
    slowness: Rate = 1e-3
    """Weight of the squares of the outputs' change in time (TAR)."""


@dataclass(frozen=True)
class TextTrainOptions(Regularised, TextOptions, TrainOptions):
    """Train the language model of a recurrent cell on DATA from scratch, and test it."""

    DOMAIN: ClassVar[str] = "text"

    cell: CellArgument = ""
    """A run folder, a genotype JSON file, zoo:NAME of a recurrent cell, or zoo:LSTM."""
    data: DataArgument = ""
    """pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME."""
    protocol: Literal["quick", "ptb", "wt2"] = "quick"
    """Defaults of all the following: a laptop's, or those of the DARTS code for PTB and
    WikiText-2."""
    epochs: Epochs = 10
    batch_size: Annotated[int, COUNT] = 16
    """Pieces of the text that are read side by side."""
    learning_rate: Rate = 20.0
    """Of SGD, times length / bptt for a window."""
    weight_decay: Annotated[float, Range(0, 1)] = 8e-7
    clip: Norm = 0.25

    units: Annotated[int, Range(1, 16384)] = 128
    """Of the embedding and of every node: the decoder shares the embedding's weights."""
    patience: Annotated[int, Range(0, 1_000_000)] = 0
    """Stop when validation has not improved for so many epochs; 0: never."""
    bptt: Annotated[int, Range(1, 100_000)] = 35
    """Mean length of a window; its gradient goes no further back. Lengths are random, as in the
    DARTS code."""
    average_after: Annotated[int, Range(0, 1_000_000)] = 2
    """Average the weights once validation is worse than the best of all epochs but the last so
    many; 0: never."""
    valid_batch_size: Annotated[int, COUNT] = 10
    """Pieces that the validation text is read in."""
    test_batch_size: Annotated[int, COUNT] = 10
    """Pieces that the test text is read in; 1 is exact and slow."""


@dataclass(frozen=True)
class TextTestOptions(TestOptions):
    """Test a trained language model on DATA: its perplexity."""

    data: DataArgument = ""
    """pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME."""
    part: Literal["auto", "test", "valid", "train"] = "auto"
    """Which part of DATA; auto: its test part."""
    other_text: bool = False
    """DATA has another vocabulary than the model: words that the model does not know count as
    <unk>."""


@dataclass(frozen=True)
class GenerateOptions(RunConfig):
    """Let a trained language model write on from a prompt."""

    model: ModelArgument = ""
    """The folder of a train or fit run, or a model.safetensors."""
    prompt: str = ""
    """How the text begins; empty: with a new line."""
    words: Annotated[int, COUNT] = 100
    """So many words (or characters) to write."""
    temperature: Annotated[float, Range(0, 1000)] = 1.0
    """Below 1 likely words become more likely; 0: always the likeliest."""


UNITS = Range(1, 16384)


@dataclass(frozen=True)
class TextSearchOptions(Regularised, TextOptions, DomainOptions):
    """Text, and recurrent cells for it."""

    protocols: ClassVar[tuple[str, ...]] = ("quick", "ptb")
    weightless: ClassVar[bool] = True
    own_rates: ClassVar[bool] = True
    or_smaller: ClassVar[str] = ", or fewer {final_units}"

    units: Annotated[int, UNITS] = 300
    """Units of the embedding and of every node in the search."""
    final_units: Annotated[int, UNITS] = 850
    """Units of the final network that params and flops refer to."""
    bptt: Annotated[int, Range(1, 100_000)] = 35
    """Mean length of a window; its gradient goes no further back."""
    lengths: Literal["random", "fixed"] = "random"
    """Windows for w: as DARTS, or all as long as --bptt."""
    norm: Literal["batch", "none"] = "batch"
    """Nodes normalised over the batch, as DARTS does, or not."""

    @classmethod
    def choose_protocol(cls, data: str) -> str:
        """A folder is a corpus such as PTB."""
        return "ptb" if Path(data).is_dir() else "quick"

    @classmethod
    def sizes(cls, protocol: str, space: str) -> dict[str, Any]:
        """Of DARTS' recurrent search, or of a small text on a laptop."""
        return recurrent(protocol)


def recurrent(protocol: str) -> dict[str, Any]:
    """DARTS' recurrent search: plain SGD with a constant, large rate and short clipped steps."""
    sizes = {"epochs": 50, "batch_size": 256} if protocol == "ptb" else SMALL_SEARCH
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
        "evidence": 0.0,
        "pooling": 0.0,
        "arch_learning_rate": 3e-3,
        "arch_beta1": 0.9,
        "arch_beta2": 0.999,
    } | sizes


SMALL_SEARCH: Defaults = {
    "epochs": 10,
    "batch_size": 64,
    "units": 64,
    "final_units": 128,
    "norm": "none",  # normalised, the first choices stay: docs/recurrent.md
} | LITTLE_DROPPED
"""A small text on a laptop."""
