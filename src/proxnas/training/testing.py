"""A trained model on a data set that may not be the one it was trained on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from proxnas.data.images import Images, load
from proxnas.data.stream import ImageBatches
from proxnas.errors import InputError
from proxnas.model import Model
from proxnas.train_config import TestConfig
from proxnas.training.evaluate import TOP, evaluate


def load_for(model: Model, config: TestConfig) -> Images:
    """DATA, its image files brought to the model's size, judged to be of the model's kind."""
    images = load(config.data, config.load_options())
    if images.shape != model.shape:
        (C, H, W), (c, h, w) = model.shape, images.shape
        way = f"give --image-size {H}" if c == C and H == W else "give images like those it was trained on"
        raise InputError(f"{config.data}: images of {c} x {h} x {w} (channels, height, width), the model reads "
                         f"{C} x {H} x {W}: {way}")  # fmt: skip
    if str(images.x_test.dtype) != model.pixels:
        raise InputError(
            f"{config.data}: {images.x_test.dtype} images, the model was trained on {model.pixels}: give those"
        )
    unknown = [name for name in images.classes if name not in model.classes]
    if unknown:
        raise InputError(
            f"{config.data}: class {unknown[0]!r} is none of the model's {len(model.classes)} classes "
            f"({', '.join(model.classes[:5])}, ...): give data of the classes it was trained on"
        )
    return images


def test_model(model: Model, images: Images, part: str) -> dict[str, Any]:
    """Accuracy, by class, and confusion on a part; the images are normalised as in training."""
    x, y = getattr(images, f"x_{part}"), getattr(images, f"y_{part}")
    if x is None:
        raise InputError(f"--part {part}: {images.name} has no such part: give --part test or train")
    to_model = np.array([model.classes.index(name) for name in images.classes])
    images = dataclasses.replace(images, mean=model.mean, std=model.std)
    batches = ImageBatches(images, (x, to_model[y]), device=model.device)
    found = evaluate(model.network, batches, len(model.classes), torch.float32)
    figures = {
        "part": part,
        "images": found.images,
        "accuracy": found.accuracy,
        "loss": found.loss,
        "classes": list(model.classes),
        "per_class": dict(zip(model.classes, found.per_class(), strict=True)),
        "confusion": found.confusion.tolist(),
    }
    return figures | ({"top5": found.top5} if len(model.classes) > TOP else {})


test_model.__test__ = False  # type: ignore[attr-defined]  # pytest, this is no test
