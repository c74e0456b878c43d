"""Flags of the commands that read images. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass

from proxnas.data.options import LoadOptions


@dataclass(frozen=True)
class ImageFlags:
    """How files of images become an array."""

    image_size: int = 0
    """Side in pixels that images are brought to; 0: as they are, or as the model wants them."""
    skip_broken: bool = False
    """Leave out images that cannot be read, and name them; without it they are an error."""

    def load_options(self) -> LoadOptions:
        """How DATA is read."""
        return LoadOptions(skip_broken=self.skip_broken, image_size=self.image_size)
