"""What every training, test and prediction is told, whatever its domain; a domain adds its own in
its folder.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import tyro

from proxnas.common.errors import OptionError
from proxnas.common.options import COUNT, Range
from proxnas.runs.loggers import LogFlags
from proxnas.runs.options import JobConfig, RunConfig

CellArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CELL")]
DataArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
ModelArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
Epochs = Annotated[int, COUNT]
Rate = Annotated[float, Range(0, 1e6)]
Norm = Annotated[float, Range(0, 1e9)]
Chance = Annotated[float, Range(0, 0.99)]
LONGEST_WARMUP = 0.2
"""Share of a training that its warm-up takes at most: of one epoch, an epoch of warm-up would be
all."""

Defaults = dict[str, Any]
"""A protocol: values for the options of a training."""


@dataclass(frozen=True)
class TrainOptions(LogFlags, JobConfig):
    """Train a network on DATA from scratch, and test it."""

    heading: ClassVar[str] = "training:"

    DOMAIN: ClassVar[str] = ""
    """The domain whose options they are."""

    cell: CellArgument = ""
    """A run folder, a genotype JSON file or zoo:NAME."""
    data: DataArgument = ""
    protocol: str = "auto"
    """Defaults of all the following."""
    epochs: Epochs = 30
    """Passes over the training part."""
    batch_size: Annotated[int, COUNT] = 64
    """Examples of an update."""
    learning_rate: Rate = 0.025
    """Of the first step after the warm-up."""
    weight_decay: Rate = 3e-4
    """Share of the weights, times the rate, that a step takes off."""
    clip: Norm = 5.0
    """Largest norm of the gradient; 0: any."""

    def over_all_epochs(self) -> str:
        """What follows a schedule over all epochs, so that it cannot be made longer; empty if
        nothing does."""
        return ""


@dataclass(frozen=True)
class ScheduledOptions(TrainOptions):
    """A training by SGD or AdamW on a schedule."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    """What trains the weights."""
    learning_rate_min: Rate = 0.0
    """Where the cosine ends."""
    schedule: Literal["cosine", "exponential"] = "cosine"
    """How the rate falls."""
    gamma: Annotated[float, Range(0, 1)] = 0.97
    """Factor an epoch of the exponential schedule."""
    warmup: Annotated[int, Range(0, 1_000_000)] = 0
    """Epochs at the start in which the learning rate rises, at most a fifth of all."""
    momentum: Annotated[float, Range(0, 0.9999)] = 0.9
    """Of SGD."""
    accumulate: Annotated[int, COUNT] = 1
    """Parts that a batch is computed in, one after the other: less memory, nearly the same
    update."""
    ema: Annotated[float, Range(0, 0.999999)] = 0.0
    """Decay of a moving average of the weights, for example 0.999, that is kept in place of the
    weights; 0: none."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the operations; weights stay fp32. For GPUs: most CPUs are slower in bf16."""

    def check(self) -> None:
        super().check()
        if self.learning_rate_min > self.learning_rate:
            raise OptionError(
                "learning_rate_min", self.learning_rate_min, "give at most {learning_rate}"
            )

    def over_all_epochs(self) -> str:
        # then its end moves with the epochs, and a longer run would have begun otherwise
        if self.warmup > LONGEST_WARMUP * self.epochs:
            return f"its {{warmup}} is a share of {self.epochs} epochs"
        falls = self.schedule == "cosine" and self.learning_rate_min != self.learning_rate
        return f"its learning rate falls to its end over {self.epochs} epochs" if falls else ""


@dataclass(frozen=True)
class TestOptions(RunConfig):
    """Test a trained model on DATA."""

    heading: ClassVar[str] = ""

    __test__ = False  # pytest, this is no test

    model: ModelArgument = ""
    """The folder of a train or fit run, or a model.safetensors."""
    data: DataArgument = ""
    part: Literal["auto", "test", "valid", "train", "all"] = "auto"
    """Which part of DATA; auto: its test part."""
    json: str = ""
    """Write everything into this file."""


@dataclass(frozen=True)
class PredictOptions(RunConfig):
    """Say what a trained model sees in images."""

    heading: ClassVar[str] = ""

    model: ModelArgument = ""
    """The folder of a train or fit run, or a model.safetensors."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="IMAGE")] = ()
    """Image files, or folders of them; they are brought to the size and the channels that the model
    was trained on."""
    top: Annotated[int, Range(1)] = 1
    """So many classes an image, the most probable first."""
    json: bool = False
    """Print JSON."""
