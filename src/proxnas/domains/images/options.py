"""Flags of the commands that read images. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from proxnas.domains.images.data.options import LoadOptions

AUTO = "auto"


def _side(words: list[str]) -> int:
    return 0 if words[0] == AUTO else int(words[0])


Side = Annotated[
    int,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT|auto",
        instance_from_str=_side,
        is_instance=lambda side: isinstance(side, int),
        str_from_instance=lambda side: [str(side or AUTO)],
    ),
]
"""A number of pixels; 0 is written auto."""


@dataclass(frozen=True)
class ImageFlags:
    """How files of images become an array."""

    image_size: Side = 0
    """Side in pixels that images are brought to; auto: as they are where all have one size, else by
    the data; for a trained model as it reads them."""
    skip_broken: bool = False
    """Leave out images that cannot be read, and name them; without it they are an error."""

    def load_options(self) -> LoadOptions:
        """How DATA is read."""
        return LoadOptions(skip_broken=self.skip_broken, image_size=self.image_size)
