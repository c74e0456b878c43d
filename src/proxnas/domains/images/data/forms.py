"""Arrays of images and labels, checked before anything is built on them.

N images, H height, W width, C channels, K classes; x is (N, H, W, C), y is (N,).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.seeds import Array
from proxnas.domains.images.data.options import SMALLEST_SIDE

Form = tuple[tuple[int, ...], np.dtype[Any]]  # shape and dtype


PARTS = ("train", "valid", "test")


def check_forms(forms: Mapping[str, Form], where: str) -> None:
    """Everything that shapes and dtypes alone can tell, so that headers are judged before any array
    is read."""
    for part in PARTS:
        x, y = f"x_{part}", f"y_{part}"
        # only the training part must be there
        if x not in forms and y not in forms and part != "train":
            continue
        if missing := [name for name in (x, y) if name not in forms]:
            found = ", ".join(sorted(forms)[:6]) or "no arrays"
            raise InputError(
                f"{where}: no {missing[0]} (found: {found}): store both {x} and {y} with"
                " numpy.savez"
            )
        _check_form(
            forms[x], (3, 4), "f", "(N, H, W) or (N, H, W, C), uint8 or float", f"{where}: {x}"
        )
        _check_form(forms[y], (1,), "iu", "(N,), integer", f"{where}: {y}")
        _check_together(forms, x, y, where)


def _check_together(forms: Mapping[str, Form], x: str, y: str, where: str) -> None:
    """As many labels as images, which are large enough and like those of train."""
    (images, *sides), dtype = forms[x]
    (labels,), _ = forms[y]
    (_, *like), dtype_train = forms["x_train"]
    if images != labels:
        raise InputError(
            f"{where}: {images} images in {x} but {labels} labels in {y}: give one label an image"
        )
    if min(sides[:2]) < SMALLEST_SIDE:
        # as torch has images: no side is so short, and no image has so many channels
        turned = len(sides) == 3 and min(sides[1:]) >= SMALLEST_SIDE
        raise InputError(
            f"{where}: {x} is {forms[x][0]}: H and W of (N, H, W, C) must be at least"
            f" {SMALLEST_SIDE}"
            + (": of (N, C, H, W) give x.transpose(0, 2, 3, 1)" if turned else "")
        )
    # (H, W) is (H, W, 1)
    if [*sides, 1][:3] != [*like, 1][:3] or dtype.kind != dtype_train.kind:
        raise InputError(
            f"{where}: {x} and x_train differ in image shape or in uint8 / float: make them alike"
        )


def _check_form(form: Form, ndims: tuple[int, ...], kinds: str, wanted: str, where: str) -> None:
    shape, dtype = form
    if dtype.hasobject:
        raise InputError(
            f"{where} is an object array (rows of different sizes?): store one plain array,"
            f" {wanted}"
        )
    if dtype.kind not in kinds and dtype != np.uint8:
        raise InputError(f"{where} has dtype {dtype}: convert it to {wanted}")
    if len(shape) not in ndims:
        raise InputError(f"{where} has shape {shape}: reshape it to {wanted}")
    if math.prod(shape) == 0:
        raise InputError(f"{where} is empty (shape {shape}): give at least one image")


def as_pixels(x: Array, where: str) -> Array:
    """x as (N, H, W, C), uint8 or finite float32."""
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise InputError(
                f"{where} has NaN or infinite pixels (in float32): remove or replace them"
            )
    return np.ascontiguousarray(x if x.ndim == 4 else x[..., None])


def reindex_labels(
    labels: Mapping[str, Array], where: str, for_model: bool = False
) -> tuple[Array, dict[str, Array]]:
    """The labels that occur in train (for a model: anywhere), in order, and every part's labels as
    numbers 0 .. K-1 into them."""
    # sorted, so that the same labels have the same numbers whatever the order of images
    known = np.unique(np.concatenate(list(labels.values())) if for_model else labels["train"])
    if len(known) < 2 and not for_model:
        raise InputError(
            f"{where}: y_train has one class only ({known[0]}): give images of at least two classes"
        )
    for part, y in labels.items():
        if len(unseen := np.setdiff1d(y, known)):
            raise InputError(
                f"{where}: y_{part} has label {unseen[0]}, which y_train has not: remove it or"
                " train on some"
            )
    return known, {part: np.searchsorted(known, y).astype(np.int64) for part, y in labels.items()}


def class_names(labels: Array, classes: Array | None, where: str) -> tuple[str, ...]:
    """What labels are called: the number itself, or the entry of `classes` that it is of."""
    if classes is None:
        return tuple(map(str, labels))
    if classes.dtype.kind != "U" or classes.ndim != 1:
        raise InputError(f"{where}: classes is {classes.dtype}: give a list of names")
    if labels.min() < 0 or labels.max() >= len(classes):
        raise InputError(
            f"{where}: label {labels.max()} has no name in classes, which has {len(classes)}: give"
            " one for each label from 0 on"
        )
    return tuple(str(classes[label]) for label in labels)
