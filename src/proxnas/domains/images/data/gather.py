"""Pictures of unlike kinds and sizes -> one data set: looked at, brought to one form, kept in
memory or read later."""

# N images, H height, W width, C channels

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from proxnas.common.errors import AboutOptions, InputError, escape
from proxnas.common.say import list_names, tell
from proxnas.common.seeds import Array
from proxnas.domains.images.data.arrays import Images, Part, absent, build_images
from proxnas.domains.images.data.lazy import REMEDY, Lazy, Pictures, run_in_threads
from proxnas.domains.images.data.options import SMALLEST_SIDE, LoadOptions
from proxnas.domains.images.data.picture import BrokenImage, Head, head, quiet
from proxnas.domains.images.targets import CLASSES, Target
from proxnas.runs.fingerprint import of_pictures

SIDES = (64, 48, 32)
"""That pictures of different sizes are brought to by themselves, the largest that suits them."""
LARGE = 256
"""A side beyond which a network takes so long that it is said."""
NAMED = 20  # broken images that an error names


class Broken:
    """Pictures that could not be read."""

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.reasons: dict[str, str] = {}

    def settle(self, of: int) -> None:
        """Stops unless they are to be skipped or there are none."""
        if self.reasons and not self.skip:
            # the first with its reason, the others by name
            first, why = next(iter(self.reasons.items()))
            names = list(self.reasons)[1:]
            broken = f"{first}: broken image ({why})"
            if names:
                broken += f"; {len(names)} more of {of} images: {list_names(names, NAMED)}"
            raise AboutOptions(f"{escape(broken)}: {REMEDY}")

    def tell(self, of: int) -> None:
        """One line for people about what was left out."""
        if self.reasons:
            broken = list_names(list(self.reasons))
            tell(f"skipped {len(self.reasons)} broken of {of} images: {broken}")


def gather(
    parts: Mapping[str, tuple[Pictures, Array]],
    classes: Sequence[str],
    name: str,
    where: str,
    options: LoadOptions,
    shift: bool = True,
    flip: bool = False,
    warnings: tuple[str, ...] = (),
    target: Target = CLASSES,
) -> Images:
    """Images of parts of pictures with labels 0 .. K-1, or what `target` has; errors begin with the
    name of a picture, or with `where`."""
    total, broken = sum(len(y) for _, y in parts.values()), Broken(options.skip_broken)
    # heads first, pixels later: what is wrong with a large set is said before it is decoded
    with quiet():
        form, lazy, known = _looked_at(parts, broken, where, options)
        found: dict[str, Part] = dict(lazy)
        if total * prod(form) <= options.resident_limit:
            _tell_size(total, form, where, options)
            found = {part: _resident(x, y, broken) for part, (x, y) in lazy.items()}
            broken.settle(total)  # one round: of broken heads and of broken pixels alike
        else:
            broken.settle(total)
            _tell_size(total, form, where, options)
        if not options.for_model:
            _check_readable(found, classes, where)
        broken.tell(total)
        return build_images(
            found,
            classes,
            name,
            where,
            shift=shift,
            flip=flip,
            skipped=tuple(broken.reasons),
            warnings=warnings,
            fingerprint=of_pictures(parts, classes),
            for_model=bool(options.for_model),
            pictures=_picture_facts(known),
            target=target,
        )


def _check_readable(found: Mapping[str, Part], classes: Sequence[str], where: str) -> None:
    """An InputError if so many images are broken that a class or a part has none left."""
    missing = absent(found["train"][1], classes) if "train" in found else []
    if missing:
        raise InputError(f"{where}: no readable image of class {missing[0]} in train: give some")
    for part, (_, y) in found.items():
        if not len(y):
            raise InputError(f"{where}: no readable image in {part}: give some")


def _picture_facts(known: Sequence[Head]) -> dict[str, Any]:
    """Sizes and kinds of pictures as they are in their files."""
    smallest, largest = (choose(known, key=_pixels) for choose in (min, max))
    grey = sum(found.grey for found in known)
    return {
        "smallest": [smallest.width, smallest.height],
        "largest": [largest.width, largest.height],
        "kinds": {"grey": grey, "colour": len(known) - grey},
    }


def _looked_at(
    parts: Mapping[str, tuple[Pictures, Array]], broken: Broken, where: str, options: LoadOptions
) -> tuple[tuple[int, int, int], dict[str, tuple[Lazy, Array]], list[Head]]:
    """The form that all can take, the parts without the pictures whose heads are broken, and the
    heads of the others."""
    heads: dict[str, list[Head | None]] = {}
    known: list[Head] = []
    for part, (pictures, y) in parts.items():
        heads[part] = [_head(pictures, number, broken) for number in range(len(y))]
        known += filter(None, heads[part])
    if not known:
        broken.settle(len(broken.reasons))
        raise InputError(
            f"{next(iter(broken.reasons), 'data')}: broken image, and so are all others: mend the"
            " data"
        )
    height, width, resize = _size(known, where, options)
    form = height, width, _channels(known, options)
    lazy = {}
    for part, (pictures, y) in parts.items():
        # numbers of the pictures that have a sound head
        rows = np.flatnonzero(np.array([found is not None for found in heads[part]], dtype=bool))
        kind = np.float32 if y.dtype.kind == "f" else np.int64
        images = Lazy(pictures, rows, form, resize, options.skip_broken)
        lazy[part] = (images, y[rows].astype(kind))
    return form, lazy, known


def _channels(known: Sequence[Head], options: LoadOptions) -> int:
    """As the model reads them; else grey only if all pictures are."""
    if options.for_model:
        return options.for_model[0]
    return 1 if all(found.grey for found in known) else 3


def _head(pictures: Pictures, number: int, broken: Broken) -> Head | None:
    try:
        with pictures.open(number) as image:
            return head(image)
    except BrokenImage as error:
        broken.reasons[pictures.name(number)] = str(error)
        return None


def _size(known: Sequence[Head], where: str, options: LoadOptions) -> tuple[int, int, bool]:
    """(H, W, whether pictures are brought to it): as asked for, as they all have it, or a side by
    the data."""
    if options.for_model:
        return _size_for(options.for_model, known, where)
    if options.image_size:
        return options.image_size, options.image_size, True
    smallest, largest = (choose(known, key=_pixels) for choose in (min, max))
    if len({(found.height, found.width) for found in known}) == 1:
        if min(smallest.height, smallest.width) < SMALLEST_SIDE:
            sizes = f"{where}: images of {smallest.width} x {smallest.height} pixels"
            raise AboutOptions(
                f"{escape(sizes)}, less than {SMALLEST_SIDE}: give larger images, or"
                " {image_size} N"
            )
        return smallest.height, smallest.width, False
    side = auto_side([min(found.height, found.width) for found in known])
    tell(
        f"{where}: {len(known)} images from {smallest.width} x {smallest.height} to {largest.width}"
        f" x {largest.height} pixels: the middle square of each is brought to {side} x {side}"
        " (--image-size N: another size)"
    )
    return side, side, True


def _size_for(
    shape: tuple[int, int, int], known: Sequence[Head], where: str
) -> tuple[int, int, bool]:
    """The size that a model reads; what the pictures lose by it is said."""
    channels, height, width = shape
    other = sum((found.height, found.width) != (height, width) for found in known)
    if other and height == width:
        tell(
            f"{where}: {other} of {len(known)} images are brought to the {width} x {height} pixels"
            " that the model reads"
        )
    if channels == 1 and (coloured := sum(not found.grey for found in known)):
        tell(
            f"{where}: {coloured} of {len(known)} images lose their colours: the model reads grey"
            " images"
        )
    return height, width, height == width


def auto_side(shorter: Sequence[int]) -> int:
    """A side for pictures of many sizes, by the median of their shorter sides: few of them are
    enlarged, and what large ones lose costs little beside the time that it saves."""
    middle = int(np.median(np.asarray(shorter)))
    return next((side for side in SIDES if side <= middle), max(SMALLEST_SIDE, middle // 4 * 4))


def _pixels(found: Head) -> int:
    return found.height * found.width


def _tell_size(total: int, form: tuple[int, int, int], where: str, options: LoadOptions) -> None:
    """Said before anything is decoded: what is too large for the memory, or for a search."""
    # bytes, of one byte a value
    size = total * prod(form)
    wide = max(form[:2]) > LARGE and not options.image_size and not options.for_model
    if size <= options.resident_limit and not wide:
        return
    how = ", read batch by batch" if size > options.resident_limit else ""
    smaller = ": --image-size N makes them smaller, and everything faster" if wide else ""
    held = f"{size / 2**30:.1f} GiB" if size >= 2**29 else f"{size / 2**20:.1f} MiB"
    tell(f"{where}: {total} images of {form[1]} x {form[0]} are {held} of pixels{how}{smaller}")


def _resident(x: Lazy, y: Array, broken: Broken) -> Part:
    """The part as one array, without the pictures that turn out to be broken."""
    # threads write into their own rows of one array: no copy of all images at the end
    array, sound = np.empty(x.shape, np.uint8), np.ones(len(x), dtype=bool)

    def read(number: int) -> BrokenImage | None:
        try:
            array[number] = x.read(number)
        except BrokenImage as error:
            return error
        return None

    for number, error in enumerate(run_in_threads(read, range(len(x)))):
        if error is not None:
            sound[number] = False
            broken.reasons[x.name(number)] = str(error)
    return (array, y) if sound.all() else (array[sound], y[sound])
