"""A trained model on a data set that may not be the one it was trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from proxnas.common.config_file import FINGERPRINT
from proxnas.common.errors import InputError, OptionError, escape
from proxnas.common.say import list_names
from proxnas.domains.images.data.arrays import held_out_fifth
from proxnas.domains.images.data.images import Images, Part, load
from proxnas.domains.images.data.stream import ImageBatches
from proxnas.domains.images.evaluate import evaluation_of
from proxnas.domains.images.model import Model
from proxnas.domains.images.options import ImageTestOptions
from proxnas.runs.fingerprint import differences


def load_for(model: Model, config: ImageTestOptions, data: Any = None) -> Images:
    """DATA, or what a program has in its place, brought to the model's size, judged to be of the
    model's kind; nothing is set aside."""
    C, H, W = model.shape
    if config.image_size and (config.image_size, config.image_size) != (H, W):
        raise OptionError(
            "image_size", config.image_size, f"the model reads {W} x {H} pixels: leave it out"
        )
    options = dataclasses.replace(config.load_options(), image_size=0, for_model=model.shape)
    images = load(config.data if data is None else data, options)
    if images.shape != model.shape:
        c, h, w = images.shape
        raise InputError(
            f"{config.data}: images of {c} x {h} x {w} (channels, height, width), the model reads "
            f"{C} x {H} x {W}: give images like those it was trained on"
        )
    if str(images.x_test.dtype) != model.pixels:
        raise InputError(
            f"{config.data}: {images.x_test.dtype} images, the model was trained on {model.pixels}:"
            " give those"
        )
    if images.target.kind != model.target.kind:
        raise InputError(
            f"{config.data}: its targets are {images.target.kind}, the model answers"
            f" {model.target.kind}: give such data, or ?kind={model.target.kind} behind the name"
        )
    unknown = [repr(name) for name in images.classes if name not in model.classes]
    if unknown:
        more = (
            f" (and {len(unknown) - 1} more: {list_names(unknown[1:])})" if len(unknown) > 1 else ""
        )
        raise InputError(
            f"{config.data}: class {unknown[0]}{more} is none of the model's {len(model.classes)}"
            f" classes ({', '.join(model.classes[:5])}, ...): give data of the classes it was"
            " trained on"
        )
    return images


def choose(model: Model, images: Images, asked: str) -> tuple[str, list[Part], str]:
    """(part, what is tested, that in words); --part auto is decided by whether the model was
    trained on these data."""
    name, own = images.name, len(images.y_test) > 0
    known = trained_on(model, images)
    part = asked
    if asked == "auto":
        part = "test" if own or known else "all"
    if part == "valid":
        if images.x_valid is None or images.y_valid is None:
            raise OptionError(
                "part", part, f"{escape(name)} has no such part: give test, train or all"
            )
        return part, [(images.x_valid, images.y_valid)], f"the valid part of {name}"
    if part == "all":
        if images.x_valid is None or images.y_valid is None:
            valid = []
        else:
            valid = [(images.x_valid, images.y_valid)]
        parts = [(images.x_train, images.y_train), *valid, (images.x_test, images.y_test)]
        without = "" if own else ", which has no test part"
        seen = "; the model was trained on some of them" if known else ""
        return part, [pair for pair in parts if len(pair[1])], f"all of {name}{without}{seen}"
    if own:
        x, y = (
            (images.x_test, images.y_test) if part == "test" else (images.x_train, images.y_train)
        )
        words = f"the {part} part of {name}"
    else:
        test = held_out_fifth(images.target.strata(images.y_train))
        rows = test if part == "test" else np.setdiff1d(np.arange(len(images.y_train)), test)
        x, y = images.x_train[rows], images.y_train[rows]
        if part == "test":
            words = f"the fifth of {name} that is set aside for testing"
        else:
            words = f"{name} without that fifth"
    if not len(y):
        raise OptionError("part", part, f"{escape(name)} has no images in it: give all")
    return part, [(x, y)], words


def trained_on(model: Model, images: Images) -> bool:
    """Whether these are the data of the model's training; of models without a fingerprint the name
    must do."""
    known = model.info.get(FINGERPRINT)
    if isinstance(known, Mapping) and known:
        return not differences(known, images.fingerprint)
    return model.info.get("data") == images.name and set(model.classes) == set(images.classes)


def test_model(model: Model, images: Images, part: str) -> dict[str, Any]:
    """Accuracy, by class, and confusion on a part; the images are normalised as in training."""
    part, parts, words = choose(model, images, part)
    images = dataclasses.replace(images, mean=model.mean, std=model.std)
    found: list[Any] = []
    for x, y in parts:
        known = model.target.for_model(y, images.classes, model.classes)
        batches = ImageBatches(images, (x, known), device=model.device)
        outputs = len(model.classes)
        found.append(evaluation_of(model.target, model.network, batches, outputs, torch.float32))
    tested = found[0].joined(found[1:])
    about = {"part": part, "tested": words, "images": tested.images, "loss": tested.loss}
    figures: dict[str, Any] = tested.tested(model.classes)
    return about | {"classes": list(model.classes)} | figures


test_model.__test__ = False  # type: ignore[attr-defined]  # pytest, this is no test
