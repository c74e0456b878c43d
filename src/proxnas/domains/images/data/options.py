"""How DATA is read, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass

from proxnas.common.errors import InputError, OptionError

SMALLEST_SIDE = 4  # networks halve the image twice
LARGEST_SIDE = 4096


@dataclass(frozen=True)
class LoadOptions:
    """Choices of the reader."""

    skip_broken: bool = False
    """Leave broken images out and name them on stderr; else the first reading that finds some
    stops."""
    image_size: int = 0
    """Side in pixels that images are brought to; 0: as stored where all are of one size, else a
    side by the data."""
    resident_limit: int = 2 * 2**30
    """Bytes; a set of images that would take more is read batch by batch instead of held in
    memory."""
    for_model: tuple[int, int, int] | None = None
    """(C, H, W) that a trained model reads, to be tested on DATA: image files are brought to it, no
    part is set aside, and a class may be missing in any part."""

    def __post_init__(self) -> None:
        if self.image_size != 0 and not SMALLEST_SIDE <= self.image_size <= LARGEST_SIDE:
            sides = f"{SMALLEST_SIDE} to {LARGEST_SIDE}"
            raise OptionError(
                "image_size", self.image_size, f"give a side of {sides} pixels, or auto"
            )
        if self.resident_limit < 0:
            raise InputError(
                f"resident_limit {self.resident_limit}: give a number of bytes, at least 0"
            )


DEFAULTS = LoadOptions()
