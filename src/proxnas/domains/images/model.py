"""A trained network in a file: safetensors, with all that is needed to build and feed it as JSON in
the metadata.

Nothing in the file is believed before it is checked, and nothing of it is ever run: metadata is
JSON, weights are compared name by name and shape by shape with the network that the genotype makes.
"""

# N images, H height, W width, C channels, K classes

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from proxnas import __version__
from proxnas.cells.designs import Architecture, from_json
from proxnas.cells.genotype import Genotype
from proxnas.common.errors import AboutOptions, InputError
from proxnas.common.stored import is_figure
from proxnas.domains.images import networks
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.targets import CLASSES, Target
from proxnas.domains.images.targets import from_json as read_target
from proxnas.training.model_file import metadata_entry, read_file, read_weights, write_weights

if TYPE_CHECKING:
    from proxnas.domains.images.data.picture import Head

DOMAIN, SCHEMA = "images", 1
PIXELS = ("uint8", "float32")
LIMITS = {"cells": 200, "channels": 4096, "image_channels": 1024, "classes": 1_000_000}
# of the whole network, which is built before its weights are compared; published ones have 400
MOST_EDGES = 5_000
MOST_VALUES, VALUES_A_WEIGHT = 2**24, 64
"""Of the widest layer on one image: the first, and so many more a weight. A small file must not ask
for gigabytes."""
STEM = 3
"""Times the channels: the first layer of the widest kind of network."""
PREDICT_BATCH = 64


@dataclass(frozen=True, eq=False)
class Model:
    """A trained network and what belongs to it."""

    network: nn.Module
    """In evaluation mode, without an auxiliary tower."""
    genotype: Architecture
    size: Size
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """A channel: of x / 255 if `pixels` is uint8, of x itself if float32; `std` likewise."""
    std: tuple[float, ...]
    shape: tuple[int, int, int]
    """(C, H, W) of the images it reads."""
    pixels: str = "uint8"
    """What it was trained on: uint8 or float32 images."""
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What is known of it: data, accuracy, params, flops, ... : JSON values."""
    target: Target = CLASSES
    """What it answers; where that is not one of the classes, `classes` names numbers or labels."""

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def normalised(self, images: Any) -> Tensor:
        """(N, H, W, C) or (N, H, W) arrays as trained on -> (N, C, H, W) as the network reads
        them."""
        images = np.stack(images) if isinstance(images, list) else images
        if isinstance(images, np.ndarray) and not images.flags.writeable:
            images = images.copy()  # as pandas gives them; torch would warn of it
        x = torch.as_tensor(images)
        C, H, W = self.shape
        if x.ndim == 3:
            x = x[..., None]
        if x.ndim != 4 or tuple(x.shape[1:]) != (H, W, C):
            raise InputError(
                f"images of shape {tuple(x.shape)}: this model reads (N, {H}, {W}, {C})"
            )
        if x.dtype.is_floating_point != (self.pixels == "float32"):
            raise InputError(f"images of {x.dtype}: this model was trained on {self.pixels} images")
        unit = 255.0 if self.pixels == "uint8" else 1.0
        # in float64 first, so that 255 * mean is rounded once, as in the training
        mean, std = (
            torch.tensor(v, dtype=torch.float64).mul(unit).float() for v in (self.mean, self.std)
        )
        x = x.to(self.device, torch.float32)
        return ((x - mean.to(self.device)) / std.to(self.device)).permute(0, 3, 1, 2)

    @torch.no_grad()
    def outputs(self, images: Any) -> Tensor:
        """(N, K) on the host: what the network puts out, of arrays (N, H, W, C) or (N, H, W)."""
        parts = self.normalised(images).split(PREDICT_BATCH)
        return torch.cat([self.network(x) for x in parts]).cpu()

    def probabilities(self, images: Any) -> Tensor:
        """(N, K): the probability of each class."""
        return self.outputs(images).softmax(-1)

    def read(self, files: Sequence[str | os.PathLike[str]]) -> Any:
        """Image files as arrays of the size and channels that the network reads, made as in the
        training."""
        import numpy as np

        from proxnas.domains.images.data.picture import BrokenImage

        self.check_files()
        found = []
        for file in files:
            try:
                found.append(picture(os.fspath(file), self.shape)[0])
            except BrokenImage as error:
                raise InputError(f"{file}: {error}: give an image file") from error
        return np.stack(found)

    def save(self, path: Path) -> None:
        """Write the model whole or not at all."""
        save_model(path, self)

    def check_files(self) -> None:
        """An InputError if image files are nothing for this model."""
        if self.pixels != "uint8":
            raise InputError(
                "this model was trained on float32 arrays: image files do not tell their scale,"
                " give arrays"
            )

    def predict(self, images: Any, top: int = 1) -> list[list[Any]]:
        """For each image the `top` most probable classes, best first; or its numbers, or labels.

        Images are arrays (N, H, W, C) or (N, H, W) of the size and kind that the network was
        trained on, or a list of files, which are brought to that size.
        """
        if isinstance(images, Sequence) and images and isinstance(images[0], str | os.PathLike):
            images = self.read(images)
        return self.target.answers(self.outputs(images), self.classes, top)


def picture(file: str, shape: tuple[int, int, int]) -> tuple[Any, Head]:
    """(H, W, C): as it is if it has that size, else its middle square, scaled; and what it was. Or
    a BrokenImage."""
    from proxnas.domains.images.data.picture import head, open_picture, pixels, quiet

    C, H, W = shape
    # a model of images that are not square reads only images of just its size
    with quiet(), open_picture(file) as image:
        found = head(image)
        resize = H == W and (found.height, found.width) != (H, W)
        return pixels(image, (H, W, C), resize), found


def save_model(path: Path, model: Model) -> None:
    """Write the model whole or not at all."""
    metadata = {
        "proxnas": __version__,
        "schema": str(SCHEMA),
        "domain": json.dumps(DOMAIN),
        "genotype": model.genotype.to_json(),
        "size": json.dumps(dataclasses.asdict(model.size)),
        "classes": json.dumps(model.classes),
        "mean": json.dumps(model.mean),
        "std": json.dumps(model.std),
        "shape": json.dumps(model.shape),
        "pixels": json.dumps(model.pixels),
        "info": json.dumps(dict(model.info)),
        "target": json.dumps(model.target.to_json()),
    }
    write_weights(path, model.network, metadata)


def load_model(place: str | os.PathLike[str], device: torch.device | str = "cpu") -> Model:
    """The model in a file or run folder, ready to use; an InputError says what is wrong with it."""
    return read_file(place, lambda file, metadata: read_model(file, metadata, torch.device(device)))


def read_model(file: Any, metadata: Mapping[str, str], device: torch.device) -> Model:
    """The model of an open file and its metadata."""
    genotype = _genotype(metadata)
    size = _size(metadata_entry(metadata, "size"), genotype)
    classes = _list(metadata, "classes", size.classes, lambda name: isinstance(name, str))
    shape = _list(metadata, "shape", 3, lambda side: type(side) is int and 0 < side <= 65536)
    if shape[0] != size.image_channels:
        raise InputError(
            f"shape {shape} does not fit the network's {size.image_channels} image channels:"
            " damaged"
        )
    network = _network(file, genotype, size)
    check_shape(shape, size, network)
    model = Model(
        network=network.to(device).eval(),
        genotype=genotype,
        size=size,
        classes=classes,
        mean=_list(metadata, "mean", shape[0], is_figure),
        std=_list(metadata, "std", shape[0], lambda value: is_figure(value) and value > 0),
        shape=(shape[0], shape[1], shape[2]),
        pixels=metadata_entry(metadata, "pixels"),
        info=metadata_entry(metadata, "info"),
        target=_target(metadata, size.classes),
    )
    if model.pixels not in PIXELS or not isinstance(model.info, dict):
        raise InputError("pixels or info in its metadata are not as proxnas writes them: damaged")
    return model


def _genotype(metadata: Mapping[str, str]) -> Architecture:
    """What describes the network; an InputError for files that are no image model of ours."""
    if "vocabulary" in metadata:
        raise InputError(
            "a language model, which sees no images: let it write with proxnas generate"
        )
    if "genotype" not in metadata:
        raise InputError(
            "not written by proxnas (no genotype in its metadata): give the model of a train run"
        )
    try:
        return from_json(metadata["genotype"])
    except InputError as error:
        raise InputError(f"genotype: {error}") from error


def _target(metadata: Mapping[str, str], outputs: int) -> Target:
    """What the model answers; of files that do not tell: classes."""
    if "target" not in metadata:
        return CLASSES
    return read_target(metadata_entry(metadata, "target"), outputs)


def _list(
    metadata: Mapping[str, str], name: str, length: int, good: Callable[[Any], bool]
) -> tuple[Any, ...]:
    values = metadata_entry(metadata, name)
    if not isinstance(values, list) or len(values) != length or not all(map(good, values)):
        raise InputError(
            f"{name} in its metadata is not a list of {length} sound values: the file is damaged"
        )
    return tuple(values)


def _size(values: Any, genotype: Architecture) -> Size:
    """The Size in the metadata: known fields, of their types, and no larger than can be meant."""
    known = {field.name: field for field in dataclasses.fields(Size)}
    if not isinstance(values, dict) or not values.keys() <= known.keys():
        raise InputError(
            f"size in its metadata is not an object of {', '.join(known)}: the file is damaged"
        )
    for name, limit in LIMITS.items():
        value = values.get(name)
        if type(value) is not int or not 1 <= value <= limit:
            raise InputError(
                f"size in its metadata has {name} {value!r:.40}, not 1 to {limit}: the file is"
                " damaged"
            )
    cells = genotype.cells.values() if isinstance(genotype, Genotype) else ()
    # an upper bound: a cell is normal or reduction, not both
    edges = values["cells"] * sum(len(node) for cell in cells for node in cell.nodes)
    if edges > MOST_EDGES:
        raise InputError(f"a network of {edges} operations cannot be meant: the file is damaged")
    try:
        return Size(**values)
    except TypeError as error:
        raise InputError(f"size in its metadata is wrong ({error}): the file is damaged") from error


def check_shape(shape: Sequence[int], size: Size, network: nn.Module) -> None:
    """An InputError for images (C, H, W) that are larger than can be meant for a network of so many
    weights."""
    C, H, W = shape
    values = max(C, STEM * size.channels) * H * W
    weights = sum(w.numel() for w in network.parameters())
    if values > MOST_VALUES + VALUES_A_WEIGHT * weights:
        raise AboutOptions(
            f"images of {W} x {H} pixels are too large for a network of {weights:,} weights: give"
            " {image_size} to train on smaller ones; in a model file such a shape is damaged"
        )


def _network(file: Any, genotype: Architecture, size: Size) -> nn.Module:
    """The network of the metadata with the weights of the file."""
    # no memory for weights that are about to be read, whatever size the file claims
    with torch.device("meta"):
        network = networks.build_network(genotype, size)
    return channels_last(read_weights(file, network))
