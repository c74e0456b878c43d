"""Pictures of unlike kinds and sizes -> one data set: looked at, brought to one form, kept in memory or read later."""

# N images, H height, W width, C channels

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from proxnas.data.arrays import Images, Part, build
from proxnas.data.fingerprint import of_pictures
from proxnas.data.lazy import REMEDY, Lazy, Pictures, threaded
from proxnas.data.options import SMALLEST_SIDE, LoadOptions
from proxnas.data.picture import BrokenImage, Head, head, quiet
from proxnas.data.split import Array
from proxnas.data.telling import listed, tell
from proxnas.errors import InputError

NAMED = 20  # broken images that an error names


class Broken:
    """Pictures that could not be read."""

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.reasons: dict[str, str] = {}

    def settle(self, of: int) -> None:
        """Stops unless they are to be skipped or there are none."""
        if self.reasons and not self.skip:
            first, why = next(iter(self.reasons.items()))
            names = list(self.reasons)[1:]
            others = f" and {len(names)} more: {listed(names, NAMED)}" if names else ""
            raise InputError(f"{first}: broken image ({why}), 1 of {of}{others}: {REMEDY}")

    def tell(self, of: int) -> None:
        """One line for people about what was left out."""
        if self.reasons:
            tell(f"skipped {len(self.reasons)} broken of {of} images: {listed(list(self.reasons))}")


def gather(
    parts: Mapping[str, tuple[Pictures, Array]],
    classes: Sequence[str],
    name: str,
    where: str,
    options: LoadOptions,
    shift: bool = True,
    flip: bool = False,
    warnings: tuple[str, ...] = (),
) -> Images:
    """Images of parts of pictures with labels 0 .. K-1; errors begin with the name of a picture, or with `where`."""
    total, broken = sum(len(y) for _, y in parts.values()), Broken(options.skip_broken)
    with quiet():
        form, lazy = _looked_at(parts, broken, options)
        found: dict[str, Part] = dict(lazy)
        if total * prod(form) <= options.resident_limit:
            found = {part: _resident(x, y, broken) for part, (x, y) in lazy.items()}
        broken.settle(total)  # one round: of broken heads and of broken pixels alike
        if len(missing := np.setdiff1d(np.arange(len(classes)), found["train"][1])):
            raise InputError(f"{where}: no readable image of class {classes[missing[0]]} in train: give some")
        if empty := [part for part, (_, y) in found.items() if not len(y)]:
            raise InputError(f"{where}: no readable image in {empty[0]}: give some")
        broken.tell(total)
        return build(
            found,
            classes,
            name,
            where,
            shift=shift,
            flip=flip,
            skipped=tuple(broken.reasons),
            warnings=warnings,
            fingerprint=of_pictures(parts, classes),
        )


def _looked_at(
    parts: Mapping[str, tuple[Pictures, Array]], broken: Broken, options: LoadOptions
) -> tuple[tuple[int, int, int], dict[str, tuple[Lazy, Array]]]:
    """The form that all can take, and the parts without the pictures whose heads are broken."""
    heads = {
        part: [_head(pictures, number, broken) for number in range(len(y))] for part, (pictures, y) in parts.items()
    }
    known = [found for row in heads.values() for found in row if found]
    if not known:
        broken.settle(len(broken.reasons))
        raise InputError(f"{next(iter(broken.reasons), 'data')}: broken image, and so are all others: mend the data")
    side = options.image_size
    if not side:
        _check_one_size(parts, heads)
    form = (side or known[0].height, side or known[0].width, 1 if all(found.grey for found in known) else 3)
    lazy = {}
    for part, (pictures, y) in parts.items():
        rows = np.flatnonzero(np.array([found is not None for found in heads[part]], dtype=bool))
        lazy[part] = Lazy(pictures, rows, form, bool(side), options.skip_broken), y[rows].astype(np.int64)
    return form, lazy


def _head(pictures: Pictures, number: int, broken: Broken) -> Head | None:
    try:
        with pictures.open(number) as image:
            return head(image)
    except BrokenImage as error:
        broken.reasons[pictures.name(number)] = str(error)
        return None


def _check_one_size(parts: Mapping[str, tuple[Pictures, Array]], heads: Mapping[str, list[Head | None]]) -> None:
    """Without --image-size all pictures must be alike."""
    first: tuple[str, int, int] | None = None
    for part, (pictures, _) in parts.items():
        for number, found in enumerate(heads[part]):
            if found is None:
                continue
            if first is None:
                first = pictures.name(number), found.width, found.height
                if min(first[1:]) < SMALLEST_SIDE:
                    sizes = f"{first[0]} is {first[1]} x {first[2]} pixels"
                    raise InputError(f"{sizes}, less than {SMALLEST_SIDE}: give larger images, or --image-size N")
            if (found.width, found.height) != first[1:]:
                other = f"{pictures.name(number)} {found.width} x {found.height}"
                sizes = f"{first[0]} is {first[1]} x {first[2]} pixels, {other}"
                raise InputError(f"{sizes}: give --image-size N to bring all to N x N")


def _resident(x: Lazy, y: Array, broken: Broken) -> Part:
    """The part as one array, without the pictures that turn out to be broken."""
    array, sound = np.empty(x.shape, np.uint8), np.ones(len(x), dtype=bool)

    def read(number: int) -> BrokenImage | None:
        try:
            array[number] = x.read(number)
        except BrokenImage as error:
            return error
        return None

    for number, error in enumerate(threaded(read, range(len(x)))):
        if error is not None:
            sound[number] = False
            broken.reasons[x.name(number)] = str(error)
    return (array, y) if sound.all() else (array[sound], y[sound])
