"""Labelled images in memory, checked before anything is built on them."""

# N images, H height, W width, C channels, K classes; x is (N, H, W, C), y is (N,)

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from proxnas.common.errors import InputError, OptionError, escape
from proxnas.common.seeds import Array, split, stable_seed
from proxnas.common.telling import listed, tell
from proxnas.domains.images.data.options import SMALLEST_SIDE, LoadOptions
from proxnas.domains.images.targets import CLASSES, Target
from proxnas.runs.fingerprint import Fingerprint, of_arrays

if TYPE_CHECKING:
    from proxnas.domains.images.data.lazy import Lazy

Pixels: TypeAlias = "Array | Lazy"
Part: TypeAlias = "tuple[Pixels, Array]"  # x and y
Form = tuple[tuple[int, ...], np.dtype[Any]]  # shape and dtype
PARTS = ("train", "valid", "test")
SAMPLE = 2048  # images that mean and std are measured on where not all are in memory


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
    labels, y = reindexed(
        {part: arrays[f"y_{part}"] for part in PARTS if f"y_{part}" in arrays}, where, for_model
    )
    parts: dict[str, Part] = {
        part: (_pixels(arrays[f"x_{part}"], f"{where}: x_{part}"), numbers)
        for part, numbers in y.items()
    }
    words = named(labels, arrays.get("classes"), where)
    return build(parts, words, name, where, shift=shift, flip=flip, for_model=for_model)


def named(labels: Array, classes: Array | None, where: str) -> tuple[str, ...]:
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


def reindexed(
    labels: Mapping[str, Array], where: str, for_model: bool = False
) -> tuple[Array, dict[str, Array]]:
    """The labels that occur in train (for a model: anywhere), in order, and every part's labels as
    numbers 0 .. K-1 into them."""
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


def build(
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
    if for_model:
        x, y = next(iter(parts.values()))
        parts = {"train": (x[:0], y[:0]), "test": (x[:0], y[:0]), **parts}
    elif "test" not in parts:
        parts = dict(parts) | _set_aside(*parts["train"], where, target)
    stored: dict[str, Any] = {
        f"{kind}_{part}": array
        for part, pair in parts.items()
        for kind, array in zip("xy", pair, strict=True)
    }
    channels = parts["train"][0].shape[3]
    mean, std = (
        ((0.0,) * channels, (1.0,) * channels) if for_model else statistics(parts["train"][0])
    )
    fields: dict[str, Any] = {
        "classes": tuple(classes),
        "mean": mean,
        "std": std,
        "shift": shift,
        "flip": flip,
    }
    if not for_model:
        warnings += _without_test(parts["test"][1], classes, where)
    for line in warnings:
        tell(line)
    fields |= {"skipped": skipped, "warnings": warnings, "stored": pictures or {}}
    fields["target"] = target
    return Images(name, **stored, **fields, fingerprint=fingerprint)


def sized(images: Images, options: LoadOptions) -> Images:
    """Arrays are made smaller as asked for, by the mean over areas; never larger, which would add
    nothing."""
    _, height, width = images.shape
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
    mean, std = statistics(x_train)
    return replace(images, x_train=x_train, x_valid=x_valid, x_test=x_test, mean=mean, std=std)


def _side_for(options: LoadOptions, shorter: int) -> int:
    """What the model reads, if arrays can be brought to it; 0: as they are."""
    _, height, width = options.for_model or (0, 0, 0)
    return height if height == width <= shorter else 0


def averaged(x: Array, side: int) -> Array:
    """The middle square of each image as side x side pixels, each the mean over its area: (N, side,
    side, C)."""
    _, height, width, _ = x.shape
    shorter = min(height, width)
    top, left = (height - shorter) // 2, (width - shorter) // 2
    shares = _shares(shorter, side)
    found = np.empty((len(x), side, side, x.shape[3]), x.dtype)
    for begin in range(0, len(x), 256):  # as floats all at once would not fit
        square = x[begin : begin + 256, top : top + shorter, left : left + shorter].astype(
            np.float32
        )
        small = np.einsum("ij,njkc,lk->nilc", shares, square, shares, optimize=True)
        found[begin : begin + 256] = np.rint(small) if x.dtype == np.uint8 else small
    return found


def _shares(many: int, few: int) -> Array:
    """(few, many): which share of each new pixel's length an old one covers; rows add up to 1."""
    edges = np.arange(few + 1) * (many / few)
    old = np.arange(many)
    covered = np.minimum(edges[1:, None], old + 1) - np.maximum(edges[:-1, None], old)
    shares: Array = (covered.clip(min=0) * (few / many)).astype(np.float32)
    return shares


def search_parts(images: Images, seed: int) -> tuple[Part, Part]:
    """The part that trains w and the part that trains A: x_train and x_valid, or two seeded halves
    of x_train."""
    x, y = images.x_train, images.y_train
    if images.x_valid is not None and images.y_valid is not None:
        return (x, y), (images.x_valid, images.y_valid)
    w, A = split(y, 2, seed)
    if not len(A):
        raise InputError(
            f"{images.name}: one image a class is left to search on, which cannot be halved: give"
            " more, or a valid part"
        )
    return (x[w], y[w]), (x[A], y[A])


def statistics(x: Pixels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel; a constant channel gets 1, so that it can be
    divided by."""
    if not isinstance(x, np.ndarray):
        chosen = np.random.RandomState(stable_seed(0, "statistics") % 2**32).permutation(len(x))[
            :SAMPLE
        ]
        x = np.asarray(x[np.sort(chosen)])
    unit = 255.0 if x.dtype == np.uint8 else 1.0
    mean = x.mean(axis=(0, 1, 2), dtype=np.float64)
    chunks = np.array_split(x, math.ceil(len(x) / 256))  # x.std() would hold all of x in float64
    std = np.sqrt(
        sum(np.square(chunk - mean).sum(axis=(0, 1, 2)) for chunk in chunks) / x[..., 0].size
    )
    # else constant up to float32's rounding
    std = np.where(std > np.maximum(1e-6 * np.abs(mean), 1e-30), std, unit)
    return tuple((mean / unit).tolist()), tuple((std / unit).tolist())


def check_forms(forms: Mapping[str, Form], where: str) -> None:
    """Everything that shapes and dtypes alone can tell, so that headers are judged before any array
    is read."""
    for x, y in ((f"x_{part}", f"y_{part}") for part in PARTS):
        if x not in forms and y not in forms and x != "x_train":
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
        ((images, *sides), dtype), ((labels,), _), ((_, *like), dtype_train) = (
            forms[x],
            forms[y],
            forms["x_train"],
        )
        if images != labels:
            raise InputError(
                f"{where}: {images} images in {x} but {labels} labels in {y}: give one label an"
                " image"
            )
        if min(sides[:2]) < SMALLEST_SIDE:
            raise InputError(
                f"{where}: {x} is {forms[x][0]}: H and W of (N, H, W, C) must be at least"
                f" {SMALLEST_SIDE}"
            )
        if [*sides, 1][:3] != [*like, 1][:3] or dtype.kind != dtype_train.kind:
            raise InputError(
                f"{where}: {x} and x_train differ in image shape or in uint8 / float: make them"
                " alike"
            )


def short_name(path: Path) -> str:
    """A word for the data in `path`, safe as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", path.stem)[:40].strip("-") or "data"


def absent(y: Array, classes: Sequence[str]) -> list[str]:
    """Classes that no image is of; none of other targets."""
    if y.ndim > 1:
        return []
    return [classes[k] for k in np.setdiff1d(np.arange(len(classes)), y)]


def _without_test(y: Array, classes: Sequence[str], where: str) -> tuple[str, ...]:
    """What is to be said of classes that no test image is of."""
    missing = absent(y, classes)
    if not missing:
        return ()
    of = f"{len(missing)} of {len(classes)} classes ({listed(missing)})"
    return (
        (
            f"{where}: no test image of {of}: the test says nothing about them, give more images of"
            " each"
        ),
    )


def held_out_fifth(y: Array) -> Array:
    """Which images are set aside for testing: fixed, equal shares of each class, at least one of
    every class of two."""
    test = split(y, 5, seed=0)[-1]
    labels, counts = np.unique(y, return_counts=True)
    rare = np.setdiff1d(labels[counts > 1], y[test])
    last = [np.flatnonzero(y == label)[-1] for label in rare]
    return np.union1d(test, np.array(last, dtype=np.int64))


def _set_aside(x: Pixels, y: Array, where: str, target: Target) -> dict[str, Part]:
    """A fixed, stratified fifth becomes the test part: it must not depend on the seed of a run."""
    test = held_out_fifth(target.strata(y))
    if not len(test):
        raise InputError(
            f"{where}: too few images to set a fifth aside for testing: give more, or x_test and"
            " y_test"
        )
    train = np.setdiff1d(np.arange(len(y)), test)
    return {"train": (x[train], y[train]), "test": (x[test], y[test])}


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


def _pixels(x: Array, where: str) -> Array:
    """x as (N, H, W, C), uint8 or finite float32."""
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise InputError(
                f"{where} has NaN or infinite pixels (in float32): remove or replace them"
            )
    return np.ascontiguousarray(x if x.ndim == 4 else x[..., None])
