"""Labelled images in memory, checked before anything is built on them."""

# N images, H height, W width, C channels, K classes; x is (N, H, W, C), y is (N,)

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from proxnas.common.errors import InputError, OptionError, escape
from proxnas.common.say import list_names, tell
from proxnas.common.seeds import Array, split
from proxnas.domains.images.data.forms import (
    PARTS,
    as_pixels,
    check_forms,
    class_names,
    reindex_labels,
)
from proxnas.domains.images.data.options import LoadOptions
from proxnas.domains.images.data.pixels import Pixels, averaged, statistics
from proxnas.domains.images.targets import CLASSES, Target
from proxnas.runs.fingerprint import Fingerprint, of_arrays

Part: TypeAlias = "tuple[Pixels, Array]"  # x and y


@dataclass(frozen=True, eq=False)
class Images:
    """A data set; x is (N, H, W, C), uint8 or float32; y is int64, any integers re-indexed to 0 ..
    K-1, or as `target` has it.

    A set too large for the memory has a `Lazy` in place of each array x: shapes and slices, read
    when asked for.
    """

    name: str
    """A short word, safe as part of a folder's name."""
    x_train: Pixels
    y_train: Array
    x_test: Pixels
    y_test: Array
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """A channel, over x_train: of x / 255 for uint8, of x itself for float32; `std` likewise."""
    std: tuple[float, ...]
    shift: bool
    """Whether a shifted image keeps its class; `flip`: whether a mirrored one does."""
    flip: bool
    x_valid: Pixels | None = None
    y_valid: Array | None = None
    skipped: tuple[str, ...] = ()
    """Broken images that were left out, by name."""
    warnings: tuple[str, ...] = ()
    """What is odd about the data, a line each: it was said when they were read, and belongs into
    results."""
    fingerprint: Fingerprint = field(default_factory=dict)
    """Whether they are still the same data."""
    stored: Mapping[str, Any] = field(default_factory=dict)
    """Of pictures: smallest and largest (width, height), and how many are of which kind."""
    target: Target = CLASSES
    """What y is; where it is not classes, `classes` names the numbers or labels."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        _, height, width, channels = self.x_train.shape
        return channels, height, width

    @property
    def num_classes(self) -> int:
        return len(self.classes)


def from_arrays(
    arrays: Mapping[str, Array],
    name: str,
    where: str,
    shift: bool = True,
    flip: bool = False,
    for_model: bool = False,
) -> Images:
    """Images of x_train, y_train and, if given, x_valid, y_valid, x_test, y_test, and the names of
    the labels 0, 1, ... as classes; errors begin with `where`.

    `for_model`: to be tested by a model, as `LoadOptions` has it.
    """
    check_forms({key: (array.shape, array.dtype) for key, array in arrays.items()}, where)
    labels, y = reindex_labels(
        {part: arrays[f"y_{part}"] for part in PARTS if f"y_{part}" in arrays}, where, for_model
    )
    parts: dict[str, Part] = {
        part: (as_pixels(arrays[f"x_{part}"], f"{where}: x_{part}"), numbers)
        for part, numbers in y.items()
    }
    words = class_names(labels, arrays.get("classes"), where)
    return build_images(parts, words, name, where, shift=shift, flip=flip, for_model=for_model)


def build_images(
    parts: Mapping[str, Part],
    classes: Sequence[str],
    name: str,
    where: str,
    *,
    shift: bool = True,
    flip: bool = False,
    skipped: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
    fingerprint: Fingerprint | None = None,
    for_model: bool = False,
    pictures: Mapping[str, Any] | None = None,
    target: Target = CLASSES,
) -> Images:
    """Images of checked parts: the test part is set aside if there is none, mean and std are
    measured.

    `fingerprint`: of what the parts were made of; None: of their arrays. `for_model`: nothing is
    set aside, a part that is not there is empty, and nothing is measured: the images will be
    normalised as the model's were.
    """
    if fingerprint is None:
        fingerprint = of_arrays(
            {part: (np.asarray(x), y) for part, (x, y) in parts.items()}, classes
        )
    parts = _with_test(parts, where, target, for_model)
    mean, std = _scales(parts["train"][0], for_model)
    if not for_model:
        warnings += _without_test(parts["test"][1], classes, where)
    for line in warnings:
        tell(line)
    # the fields of Images by part: x_train, y_train, ...; x_valid and y_valid may be missing
    stored: dict[str, Any] = {}
    for part, (x, y) in parts.items():
        stored |= {f"x_{part}": x, f"y_{part}": y}
    return Images(
        name,
        **stored,
        classes=tuple(classes),
        mean=mean,
        std=std,
        shift=shift,
        flip=flip,
        skipped=skipped,
        warnings=warnings,
        stored=pictures or {},
        target=target,
        fingerprint=fingerprint,
    )


def _with_test(
    parts: Mapping[str, Part], where: str, target: Target, for_model: bool
) -> Mapping[str, Part]:
    """The parts with one for testing; for a model with empty ones in place of those that are not
    there."""
    if for_model:
        # empty, but of the right form: (0, H, W, C) and (0,), or (0, T)
        x, y = next(iter(parts.values()))
        return {"train": (x[:0], y[:0]), "test": (x[:0], y[:0]), **parts}
    if "test" in parts:
        return parts
    return dict(parts) | _set_aside(*parts["train"], where, target)


def _scales(x: Pixels, for_model: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and spread of each channel. Of images for a model nothing is measured: they will be
    normalised as its own were."""
    if not for_model:
        return statistics(x)
    channels = x.shape[3]
    return (0.0,) * channels, (1.0,) * channels


def bring_to_size(images: Images, options: LoadOptions) -> Images:
    """Arrays are made smaller as asked for, by the mean over areas; never larger, which would add
    nothing."""
    _, height, width = images.shape
    # asked for, or what the model reads; else arrays stay as they are
    side = options.image_size or _side_for(options, min(height, width))
    if not side or (height, width) == (side, side):
        return images
    if side > min(height, width):
        raise OptionError(
            "image_size",
            side,
            f"{escape(images.name)} is stored as {height} x {width} pixels: give at most"
            f" {min(height, width)}, or auto",
        )
    x_train, x_test = (averaged(np.asarray(x), side) for x in (images.x_train, images.x_test))
    x_valid = None if images.x_valid is None else averaged(np.asarray(images.x_valid), side)
    if options.for_model:
        tell(
            f"{images.name}: images of {width} x {height} are brought to the {side} x {side} that"
            " the model reads"
        )
        return replace(images, x_train=x_train, x_valid=x_valid, x_test=x_test)
    # anew: averaging over areas makes the spread smaller
    mean, std = statistics(x_train)
    return replace(images, x_train=x_train, x_valid=x_valid, x_test=x_test, mean=mean, std=std)


def _side_for(options: LoadOptions, shorter: int) -> int:
    """What the model reads, if arrays can be brought to it; 0: as they are."""
    _, height, width = options.for_model or (0, 0, 0)
    return height if height == width <= shorter else 0


def short_name(path: Path) -> str:
    """A word for the data in `path`, safe as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", path.stem)[:40].strip("-") or "data"


def _without_test(y: Array, classes: Sequence[str], where: str) -> tuple[str, ...]:
    """What is to be said of classes that no test image is of."""
    missing = absent(y, classes)
    if not missing:
        return ()
    of = f"{len(missing)} of {len(classes)} classes ({list_names(missing)})"
    return (
        (
            f"{where}: no test image of {of}: the test says nothing about them, give more images of"
            " each"
        ),
    )


def held_out_fifth(y: Array) -> Array:
    """Which images are set aside for testing: fixed, equal shares of each class, at least one of
    every class of two."""
    # the last of five equal shares; of a class with fewer than five images it may have none
    test = split(y, 5, seed=0)[-1]
    labels, counts = np.unique(y, return_counts=True)
    # classes of two images and more that no test image is of: each gives its last one
    rare = np.setdiff1d(labels[counts > 1], y[test])
    last = [np.flatnonzero(y == label)[-1] for label in rare]
    return np.union1d(test, np.array(last, dtype=np.int64))


def _set_aside(x: Pixels, y: Array, where: str, target: Target) -> dict[str, Part]:
    """A fixed, stratified fifth becomes the test part: it must not depend on the seed of a run."""
    test = held_out_fifth(target.strata(y))
    if not len(test):
        raise InputError(
            f"{where}: too few images to set a fifth aside for testing: give more, or a test part"
            " (x_test and y_test, or a folder test)"
        )
    train = np.setdiff1d(np.arange(len(y)), test)
    return {"train": (x[train], y[train]), "test": (x[test], y[test])}


def absent(y: Array, classes: Sequence[str]) -> list[str]:
    """Classes that no image is of; none of other targets."""
    if y.ndim > 1:
        return []
    return [classes[k] for k in np.setdiff1d(np.arange(len(classes)), y)]
