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
    _, H, W = model.shape
    if config.image_size and (config.image_size, config.image_size) != (H, W):
        raise OptionError(
            "image_size", config.image_size, f"the model reads {W} x {H} pixels: leave it out"
        )
    options = dataclasses.replace(config.load_options(), image_size=0, for_model=model.shape)
    images = load(config.data if data is None else data, options)
    _check_images(model, images, config.data)
    _check_targets(model, images, config.data)
    return images


def _check_images(model: Model, images: Images, where: str) -> None:
    """An InputError for images of another form or kind than the model reads."""
    if images.shape != model.shape:
        (c, h, w), (C, H, W) = images.shape, model.shape
        raise InputError(
            f"{where}: images of {c} x {h} x {w} (channels, height, width), the model reads "
            f"{C} x {H} x {W}: give images like those it was trained on"
        )
    if str(images.x_test.dtype) != model.pixels:
        raise InputError(
            f"{where}: {images.x_test.dtype} images, the model was trained on {model.pixels}:"
            " give those"
        )


def _check_targets(model: Model, images: Images, where: str) -> None:
    """An InputError for another kind of target, or for classes that the model does not know."""
    if images.target.kind != model.target.kind:
        raise InputError(
            f"{where}: its targets are {images.target.kind}, the model answers"
            f" {model.target.kind}: give such data, or ?kind={model.target.kind} behind the name"
        )
    # fewer classes than the model has are fine: it is tested on those
    unknown = [repr(name) for name in images.classes if name not in model.classes]
    if unknown:
        more = ""
        if len(unknown) > 1:
            more = f" (and {len(unknown) - 1} more: {list_names(unknown[1:])})"
        raise InputError(
            f"{where}: class {unknown[0]}{more} is none of the model's {len(model.classes)}"
            f" classes ({', '.join(model.classes[:5])}, ...): give data of the classes it was"
            " trained on"
        )


def choose(model: Model, images: Images, asked: str) -> tuple[str, list[Part], str]:
    """(part, what is tested, that in words); --part auto is decided by whether the model was
    trained on these data."""
    own, known = len(images.y_test) > 0, trained_on(model, images)
    part = asked
    if asked == "auto":
        # of data that it was not trained on all images are as good for a test
        part = "test" if own or known else "all"
    if part == "all":
        return part, *_everything(images, known)
    if part == "valid":
        return part, [_valid_part(images)], f"the valid part of {images.name}"
    if own:
        chosen, words = _own_part(images, part), f"the {part} part of {images.name}"
    else:
        chosen, words = _part_set_aside(images, part)
    if not len(chosen[1]):
        raise OptionError("part", part, f"{escape(images.name)} has no images in it: give all")
    return part, [chosen], words


def _everything(images: Images, known: bool) -> tuple[list[Part], str]:
    """All parts that have images; `known`: whether the model was trained on some of them."""
    parts = [(images.x_train, images.y_train)]
    if images.x_valid is not None and images.y_valid is not None:
        parts.append((images.x_valid, images.y_valid))
    parts.append((images.x_test, images.y_test))
    without = "" if len(images.y_test) else ", which has no test part"
    seen = "; the model was trained on some of them" if known else ""
    return [pair for pair in parts if len(pair[1])], f"all of {images.name}{without}{seen}"


def _valid_part(images: Images) -> Part:
    if images.x_valid is None or images.y_valid is None:
        raise OptionError(
            "part", "valid", f"{escape(images.name)} has no such part: give test, train or all"
        )
    return images.x_valid, images.y_valid


def _own_part(images: Images, part: str) -> Part:
    if part == "test":
        return images.x_test, images.y_test
    return images.x_train, images.y_train


def _part_set_aside(images: Images, part: str) -> tuple[Part, str]:
    """Of data without a test part the fifth that a training sets aside, or what is left to it."""
    test = held_out_fifth(images.target.strata(images.y_train))
    if part == "test":
        rows, words = test, f"the fifth of {images.name} that is set aside for testing"
    else:
        rows = np.setdiff1d(np.arange(len(images.y_train)), test)
        words = f"{images.name} without that fifth"
    return (images.x_train[rows], images.y_train[rows]), words


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
    # not by their own statistics: the network has learnt the scale of its training data
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
