"""Any map-style torch Dataset of (image, label) -> a data set of ours; torchvision's are such, but
it is not needed."""

# N images, H height, W width, C channels

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from PIL import Image

from proxnas.common.errors import InputError, in_one_line
from proxnas.common.seeds import Array
from proxnas.domains.images.data.arrays import Images, bring_to_size, from_arrays
from proxnas.domains.images.data.forms import reindex_labels
from proxnas.domains.images.data.gather import gather
from proxnas.domains.images.data.options import DEFAULTS, LoadOptions
from proxnas.domains.images.data.picture import BrokenImage


def from_dataset(
    train: Any,
    test: Any = None,
    valid: Any = None,
    *,
    name: str = "dataset",
    classes: Sequence[str] = (),
    shift: bool = True,
    flip: bool = False,
    options: LoadOptions = DEFAULTS,
) -> Images:
    """Images of datasets whose items are (image, label), the image a PIL image, an array (H, W) or
    (H, W, C), or a tensor (H, W) or (C, H, W); the label a whole number. Every item is read once:
    leave random changes to `Augment`.

    `classes` names the labels 0, 1, ...; else the dataset's own `classes` do.
    """
    given = {"train": train, "valid": valid, "test": test}
    items = {
        part: _items(dataset, part, options)
        for part, dataset in given.items()
        if dataset is not None
    }
    known, y = reindex_labels({part: _labels(these) for part, these in items.items()}, name)
    words = _names(known, classes or getattr(train, "classes", ()))
    # floats are taken as they are; bytes and pictures go the way of image files
    if _array(items["train"].item(0)[0], "train[0]").dtype.kind != "f":
        parts = {part: (these, y[part]) for part, these in items.items()}
        return gather(parts, words, name, name, options, shift=shift, flip=flip)
    arrays = {f"x_{part}": _stack_floats(these, options) for part, these in items.items()}
    arrays |= {f"y_{part}": numbers for part, numbers in y.items()}
    images = bring_to_size(from_arrays(arrays, name, name, shift=shift, flip=flip), options)
    return replace(images, classes=words)


def _names(labels: Array, names: Sequence[str]) -> tuple[str, ...]:
    """What labels are called: by their place among the names; those beyond it, by themselves."""
    words = []
    for label in labels.tolist():
        words.append(str(names[label] if 0 <= label < len(names) else label))
    return tuple(words)


@dataclass(frozen=True)
class Items:
    """The images of a dataset as pictures, remembered where they are few."""

    dataset: Any
    part: str
    remember: bool
    known: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, number: int) -> str:
        return f"{self.part}[{number}]"

    def open(self, number: int) -> Image.Image:
        image = self.item(number)[0]
        if isinstance(image, Image.Image):
            return image.copy()  # whoever opens it closes it
        array = _array(image, self.name(number))
        if array.ndim == 3 and array.shape[2] == 1:
            array = array[..., 0]
        try:
            return Image.fromarray(array)
        except (TypeError, ValueError) as error:
            kind = f"{array.dtype} of shape {array.shape}"
            raise BrokenImage(
                f"{kind}: give uint8 with 1, 3 or 4 channels, or floats in all images"
            ) from error

    def trace(self, number: int, content: bool) -> bytes:
        return b""  # a dataset may change its images at random

    def item(self, number: int) -> tuple[Any, Any]:
        """(image, label), or a BrokenImage where the dataset raises anything."""
        if number in self.known:
            return self.known[number]
        try:
            image, label, *_ = self.dataset[number]
            if isinstance(image, Image.Image):
                image.load()  # else every remembered one would keep its file open
        except Exception as error:
            raise BrokenImage(in_one_line(error)) from error
        if self.remember:
            self.known[number] = image, label
        return image, label


def _items(dataset: Any, part: str, options: LoadOptions) -> Items:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InputError(
            f"{part}: {type(dataset).__name__} has no length or no items by number: give such a"
            " Dataset"
        )
    if not len(dataset):
        raise InputError(
            f"{part}: {type(dataset).__name__} has no items: give at least one image a class"
        )
    # one sound item tells the size of all, and that there are labels
    for number in range(len(dataset)):
        try:
            image, _ = Items(dataset, part, False).item(number)
        except BrokenImage as error:
            if not options.skip_broken:
                raise InputError(
                    f"{part}[{number}]: not an image and a label ({error}): mend the dataset"
                ) from error
            continue
        if isinstance(image, Image.Image):
            # the first one that can be read stands for all of them
            size = np.asarray(image).nbytes
        else:
            size = _array(image, f"{part}[{number}]").nbytes
        return Items(dataset, part, remember=size * len(dataset) <= options.resident_limit)
    raise InputError(f"{part}: no item of {type(dataset).__name__} can be read: mend the dataset")


def _labels(items: Items) -> Array:
    """(N,); what torchvision calls `targets` saves reading all images where they are too many to be
    remembered."""
    targets = getattr(items.dataset, "targets", None)
    untouched = getattr(items.dataset, "target_transform", None) is None
    if not items.remember and untouched and targets is not None and len(targets) == len(items):
        return np.array([_label(label, items.name(number)) for number, label in enumerate(targets)])
    found: list[int | None] = []
    for number in range(len(items)):
        try:
            found.append(_label(items.item(number)[1], items.name(number)))
        except BrokenImage:
            found.append(None)  # left out, or refused, when the images are looked at
    first = next(label for label in found if label is not None)
    return np.array([first if label is None else label for label in found])


def _label(label: Any, name: str) -> int:
    try:
        return operator.index(label)
    except TypeError as error:
        raise InputError(
            f"{name}: its label is {str(label)[:40]!r}: give a whole number"
        ) from error


def _array(image: Any, name: str) -> Array:
    """(H, W) or (H, W, C) of a PIL image, an array or a tensor."""
    if hasattr(image, "detach"):  # a tensor, which has its channels first
        array = image.detach().cpu().numpy()
        return np.moveaxis(array, 0, -1) if array.ndim == 3 else array
    if not isinstance(image, np.ndarray | Image.Image):
        raise InputError(
            f"{name}: its image is a {type(image).__name__}: give a PIL image, an array or a tensor"
        )
    return np.asarray(image)


def _stack_floats(items: Items, options: LoadOptions) -> Array:
    """Images of floats as one array: they are taken as they are."""
    if not items.remember:
        raise InputError(
            f"{items.part}: floats beyond {options.resident_limit} bytes: give images of uint8"
            " instead"
        )
    first = _array(items.item(0)[0], items.name(0))
    # filled one by one: a list of all and its stack would take twice the memory
    found = np.empty((len(items), *first.shape), np.float32)
    for number in range(len(items)):
        try:
            array = _array(items.item(number)[0], items.name(number))
        except BrokenImage as error:
            raise InputError(
                f"{items.name(number)}: cannot be read ({error}): mend the dataset"
            ) from error
        if array.shape != first.shape or array.dtype.kind != "f":
            raise InputError(
                f"{items.name(number)}: {array.dtype} of shape {array.shape}, but {items.name(0)} "
                f"{first.dtype} of {first.shape}: make them alike"
            )
        found[number] = array
    return found
