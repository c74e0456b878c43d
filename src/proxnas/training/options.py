"""What train, test and predict are told: frozen dataclasses, checked at birth, each error
naming its flag.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from proxnas.domains.images.options import ImageFlags
from proxnas.runs.logging_options import LogFlags
from proxnas.runs.options import JobConfig, RunConfig, flag, require

DataArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
LONGEST_WARMUP = 0.2
"""Share of a training that its warm-up takes at most: of one epoch, an epoch of warm-up would be
all."""


@dataclass(frozen=True)
class TrainConfig(ImageFlags, LogFlags, JobConfig):
    """Train the network of a cell on DATA from scratch, and test it.

    A recurrent cell is trained on text and has flags of its own: proxnas train zoo:LSTM --help
    """

    cell: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CELL")] = ""
    """A run folder, a genotype JSON file, a NAS-Bench-201 string or zoo:NAME, which may be a
    network made by hand."""
    data: DataArgument = ""
    """digits, an .npz file, a CIFAR folder, a folder of class folders or hf:NAME."""
    protocol: Literal["auto", "quick", "cifar", "imagenet", "tinyimagenet"] = "auto"
    """Defaults of all the following; auto: cifar for a CIFAR folder, tinyimagenet for its folder,
    else quick."""

    cells: int = 8
    """Cells of the network (nasbench201, resnet: a stage)."""
    channels: int = 16
    """Channels of its first cell."""
    stem: Literal["cifar", "imagenet", "tinyimagenet"] = "cifar"
    """What stands before the cells."""
    epochs: int = 30
    batch_size: int = 64
    """Images of an update."""
    accumulate: int = 1
    """Parts that a batch is computed in, one after the other: less memory, nearly the same
    update."""
    valid_share: float = 0.1
    """Held out of the training images to choose the best weights by (a valid part of DATA comes
    first); 0: none."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = 0.025
    learning_rate_min: float = 0.0
    """Where the cosine ends."""
    schedule: Literal["cosine", "exponential"] = "cosine"
    gamma: float = 0.97
    """Factor an epoch of the exponential schedule."""
    warmup: int = 0
    """Epochs at the start in which the learning rate rises, at most a fifth of all."""
    momentum: float = 0.9
    """Of SGD."""
    weight_decay: float = 3e-4
    clip: float = 5.0
    """Largest norm of the gradient; 0: any."""
    label_smoothing: float = 0.0
    auxiliary: float = 0.0
    """Weight of the auxiliary tower's loss; 0: no tower."""
    drop_path: float = 0.0
    """Path dropout at the last epoch, to which it rises from 0."""
    ema: float = 0.0
    """Decay of a moving average of the weights, for example 0.999, that is kept in place of the
    weights; 0: none."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the operations; weights stay fp32. For GPUs: most CPUs are slower in bf16."""

    shift: Literal["auto", "yes", "no"] = "auto"
    """Move training images by up to an eighth; auto: as suits the data. Likewise --flip."""
    flip: Literal["auto", "yes", "no"] = "auto"
    cutout: int = 0
    """Side of the square that is hidden in training images."""
    rotation: float = 0.0
    """Turn training images by up to so many degrees."""
    colour: float = 0.0
    """Vary their brightness, contrast, saturation and hue by up to this share."""
    resized_crop: bool = False
    """Stretch a random part of them to the whole image."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, TRAIN_RANGES)
        require(
            self.accumulate <= self.batch_size // 2,
            "--accumulate",
            self.accumulate,
            "parts of a batch need two images each: give fewer",
        )
        require(
            self.learning_rate_min <= self.learning_rate,
            "--learning-rate-min",
            self.learning_rate_min,
            "give at most --learning-rate",
        )
        self.load_options()


@dataclass(frozen=True)
class TestConfig(ImageFlags, RunConfig):
    """Test a trained model on DATA: accuracy, accuracy of each class, confusion matrix."""

    __test__ = False  # pytest, this is no test

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")] = ""
    """The folder of a train or fit run, or a model.safetensors."""
    data: DataArgument = ""
    """digits, an .npz file, a CIFAR folder, a folder of class folders or hf:NAME."""
    part: Literal["auto", "test", "valid", "train", "all"] = "auto"
    """Which part of DATA; auto: its test part; without one all of it, but of the data that the
    model was trained on the fifth that was set aside then, as with test."""
    json: str = ""
    """Write everything into this file."""


@dataclass(frozen=True)
class PredictConfig(RunConfig):
    """Say what a trained model sees in images."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")] = ""
    """The folder of a train or fit run, or a model.safetensors."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="IMAGE")] = ()
    """Image files, or folders of them; they are brought to the size and the channels that the model
    was trained on."""
    top: int = 1
    """So many classes an image, the most probable first."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.top >= 1, "--top", self.top, "give a number of at least 1")


Range = tuple[float, float]
TRAIN_RANGES: dict[str, Range] = {
    "cells": (1, 200),
    "channels": (1, 4096),
    "epochs": (1, 1_000_000),
    "batch_size": (2, 1_000_000),
    "accumulate": (1, 1_000_000),
    "valid_share": (0, 0.5),
    "learning_rate": (0, 1e6),
    "learning_rate_min": (0, 1e6),
    "gamma": (0, 1),
    "warmup": (0, 1_000_000),
    "momentum": (0, 0.9999),
    "weight_decay": (0, 1e6),
    "clip": (0, 1e9),
    "label_smoothing": (0, 0.99),
    "auxiliary": (0, 100),
    "drop_path": (0, 0.99),
    "ema": (0, 0.999999),
    "checkpoint_minutes": (0, 1e9),
}


def check_ranges(config: RunConfig, ranges: dict[str, Range]) -> None:
    """An InputError naming the flag that is out of its range, or no number."""
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        require(
            low <= value <= high and math.isfinite(value),
            flag(name),
            value,
            f"give a number from {low} to {high}",
        )
