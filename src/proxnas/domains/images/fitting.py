"""What a fit on images is told, and how it sizes searches and trainings of image classifiers. No
torch before it is needed: `--help` must be quick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from proxnas.common.errors import AboutOptions, InputError, unknown_value
from proxnas.common.options import Range, changed
from proxnas.domains.fitting import FitMinutes, FitOptions, Free, Say
from proxnas.domains.images.options import ImageFlags, ImageTrainOptions
from proxnas.domains.images.protocols import protocol_values
from proxnas.domains.images.spaces import SPACES, space_traits
from proxnas.training.few_steps import SMALLEST_BATCH, batch_for, epochs_for
from proxnas.training.options import DataArgument

if TYPE_CHECKING:
    from proxnas.cells.designs import Architecture
    from proxnas.domains.images.data.images import Images
    from proxnas.domains.trained import TrainedModel


@dataclass(frozen=True)
class FitConfig(ImageFlags, FitOptions):
    """Make a tested, exported model of DATA in the time that --minutes gives.

    In --space auto and resnet the search is the training, by the clock; in spaces of cells, or with
    --method or epochs, a cell is searched first, then its network trained.

    For text there are flags of their own: proxnas fit pydocs --help
    """

    DOMAIN: ClassVar[str] = "images"

    data: DataArgument = ""
    """digits, an .npz file, a CIFAR folder, a folder of class folders, a .csv of files
    and labels, or hf:NAME."""
    minutes: FitMinutes = 0.0
    """Time of everything, kept by the clock; 0: as the data ask for, a minute to ten (in spaces of
    cells the epochs of the protocol, in any time)."""
    space: str = "auto"
    """Where to search: as in `proxnas search`, and so are --method and --eta. auto: resnet, where
    the search is the training; darts7 if a method, --cost or epochs are asked for."""
    eta: Annotated[float, Range(0, 1e9)] = 0.0
    """Weight of the size regulariser R(A): larger finds smaller networks."""
    protocol: Literal["auto", "quick", "cifar", "imagenet", "tinyimagenet"] = "auto"
    """Sizes and training; auto: cifar for a CIFAR folder, tinyimagenet for its folder, else
    quick."""
    cells: Annotated[int, Range(0, 200)] = 0
    """Cells of the trained network; 0: as the protocol says, fewer where --minutes are few."""
    channels: Annotated[int, Range(0, 4096)] = 0
    """Of its first cell; 0: as the protocol, or the time, says."""
    flip: Literal["auto", "yes", "no"] = "auto"
    """Mirror training images; auto: where a simple model knows half as much of mirrored ones (for
    --space auto and resnet)."""
    flip_test: bool = False
    """Answer by the mean over an image and its mirror image, in model.onnx too: more accurate on
    photos, and twice as slow (for --space auto and resnet)."""
    finish: bool = False
    """Make of a stopped run a tested, exported model now (for --space auto and resnet)."""

    def check(self) -> None:
        """A space of images."""
        super().check()
        if self.space not in ("auto", *SPACES):
            raise unknown_value("space", self.space, ("auto", *SPACES))


SEARCH_SIDE = 32
"""Pixels that files of large images are brought to in a search, as is usual: cells found there are
good at 224 too."""
OWN = ("epochs", "batch_size", "cells", "channels", "image_size", "skip_broken")
"""Options of a fit that are the training's."""


class ImageFitting:
    """Images."""

    options: type[FitOptions] = FitConfig
    auto_space = "darts7"
    needed: tuple[str, ...] = ()

    def train_values(
        self, config: FitConfig, architecture: Architecture | None, file: Mapping[str, Any]
    ) -> dict[str, Any]:
        # before anything is found, the network is of the kind that the space has
        kind = architecture.kind if architecture else space_traits(config.space).kind
        values = protocol_values(config.protocol, config.data, kind)
        values |= file
        return values | {name: getattr(config, name) for name in OWN if getattr(config, name)}

    def search_values(self, config: FitConfig, training: ImageTrainOptions) -> dict[str, Any]:
        limit = config.limit()
        if limit and training.stem != "cifar":
            # the search counts networks as they are for small images
            raise AboutOptions(
                f"{limit.asked()}: is not for networks with the stem {training.stem}: leave it out,"
                " or give {eta}"
            )
        values: dict[str, Any] = {
            "protocol": "cifar" if config.protocol.endswith("imagenet") else config.protocol,
            "final_cells": training.cells,
            "final_channels": training.channels,
        }
        # what is trained on large files is searched for on small ones
        side = config.image_size or (SEARCH_SIDE if training.image_size else 0)
        chosen = {"image_size": side, "eta": config.eta, "skip_broken": config.skip_broken}
        return values | {name: value for name, value in chosen.items() if value}

    def size_search(
        self, config: FitConfig, search: Any, data: Any, free: Free
    ) -> tuple[Any, Images]:
        """Batches of a size that makes steps; files of large images are brought to SEARCH_SIDE
        where time is short."""
        images = data if data is not None else _load(search)
        # time is short, and nobody asked for a side
        if config.minutes and not search.image_size and max(images.shape[1:]) > SEARCH_SIDE:
            search, images = _smaller_images(search, images)
        if free("batch_size"):
            size = batch_for(_half_size(images), search.epochs, search.batch_size)
            search = changed(search, batch_size=size)
        return search, images

    def size_training(
        self, training: ImageTrainOptions, data: Images, free: Free, most: int
    ) -> ImageTrainOptions:
        count = _count(training, data)
        if free("batch_size"):
            # each part of a batch has two images, or its statistics are none
            smallest = max(SMALLEST_BATCH, 2 * training.accumulate)
            size = batch_for(count, training.epochs, training.batch_size, smallest)
            training = replace(training, batch_size=size)
        if free("epochs"):
            epochs = epochs_for(count, training.batch_size, training.epochs, most)
            training = replace(training, epochs=epochs)
        return training

    def reads_alike(self, search: Any, training: ImageTrainOptions) -> bool:
        return bool(search.load_options() == training.load_options())

    def smaller(
        self, training: ImageTrainOptions, data: Images, free: Free
    ) -> Iterator[tuple[ImageTrainOptions, Images]]:
        """The training in the smallest batches, then smaller images, fewer channels, fewer
        cells."""
        if free("batch_size"):
            training = replace(training, batch_size=min(training.batch_size, SMALLEST_BATCH))
        yield training, data
        if training.stem != "cifar":  # their stems need large images
            return
        if free("image_size") and max(data.shape[1:]) > SEARCH_SIDE:
            smaller, data = _smaller_images(training, data)
            if smaller != training:
                training = smaller
                yield training, data
        # halved, rounded up, besides all that was given up before
        for name in ("channels", "cells"):
            if free(name):
                training = replace(training, **{name: (getattr(training, name) + 1) // 2})
                yield training, data

    def size_batches(
        self, training: ImageTrainOptions, data: Images, usual: int, epochs: int, free: Free
    ) -> ImageTrainOptions:
        if not free("batch_size"):
            return training
        size = batch_for(_count(training, data), epochs, usual, training.batch_size)
        return replace(training, batch_size=size)

    def size_line(self, training: ImageTrainOptions) -> str:
        side = f"images of {training.image_size} pixels, " if training.image_size else ""
        network = f"{training.cells} cells, {training.channels} channels"
        return f"{side}batches of {training.batch_size}, {network}"

    def deliver(
        self,
        config: FitConfig,
        training: ImageTrainOptions,
        model: TrainedModel,
        folder: Path,
        found: Mapping[str, Any],
        say: Say,
    ) -> dict[str, Any]:
        from proxnas.domains.images.data.sheet import data_sheet, sheet_warnings
        from proxnas.domains.images.fit_files import write_files

        images = _load(training)
        sheet = data_sheet(images)
        files, doubts = write_files(model, folder, images, found, say)
        files.pop("latency_ms", None)
        doubts += sheet_warnings(sheet)
        files["data_sheet"] = sheet
        return files | ({"warning": "; ".join(doubts)} if doubts else {})


def _load(options: Any) -> Images:
    from proxnas.domains.images.data.images import load

    return load(options.data, options.load_options())


def _smaller_images(options: Any, images: Images) -> tuple[Any, Images]:
    """The options with images of SEARCH_SIDE, if their data can be had so small."""
    smaller = changed(options, image_size=SEARCH_SIDE)
    try:
        return smaller, _load(smaller)
    except InputError:  # arrays are taken as they are
        return options, images


def _half_size(images: Images) -> int:
    """How many images the smaller half has that a search is made on."""
    if images.y_valid is not None:
        return min(len(images.y_train), len(images.y_valid))
    return len(images.y_train) // 2


def _count(training: ImageTrainOptions, images: Images) -> int:
    """How many images a training has."""
    from proxnas.domains.images.parts import train_parts

    return len(train_parts(images, training.valid_share)[0][1])
