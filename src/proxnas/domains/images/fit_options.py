"""What a fit on images is told. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from proxnas.common.options import Range, unknown_value
from proxnas.domains.fitting import FitMinutes, FitOptions
from proxnas.domains.images.options import ImageFlags
from proxnas.domains.images.spaces import SPACES
from proxnas.training.options import DataArgument


@dataclass(frozen=True)
class FitConfig(ImageFlags, FitOptions):
    """Search a cell on DATA, train its network, test it and export it.

    For text there are flags of their own: proxnas fit pydocs --help
    """

    DOMAIN: ClassVar[str] = "images"

    data: DataArgument = ""
    """digits, an .npz file, a CIFAR folder, a folder of class folders, a .csv of files
    and labels, or hf:NAME."""
    minutes: FitMinutes = 0.0
    """Time of everything, kept by the clock; 0: as the data ask for, a minute to ten (in spaces of
    cells the epochs of the protocol, in any time)."""
    space: str = "auto"
    """Where to search: as in `proxnas search`, and so are --method and --eta. auto: resnet, where
    the search is the training; darts7 if a method, --cost or epochs are asked for."""
    eta: Annotated[float, Range(0, 1e9)] = 0.0
    protocol: Literal["auto", "quick", "cifar", "imagenet", "tinyimagenet"] = "auto"
    """Sizes and training; auto: cifar for a CIFAR folder, tinyimagenet for its folder, else
    quick."""
    cells: Annotated[int, Range(0, 200)] = 0
    """Cells of the trained network; 0: as the protocol says, fewer where --minutes are few.
    Likewise --channels."""
    channels: Annotated[int, Range(0, 4096)] = 0
    flip: Literal["auto", "yes", "no"] = "auto"
    """Mirror training images; auto: photos, as their colours tell (for --space auto and resnet)."""
    flip_test: bool = False
    """Answer by the mean over an image and its mirror image, in model.onnx too: more accurate on
    photos, and twice as slow (for --space auto and resnet)."""
    finish: bool = False
    """Make of a stopped run a tested, exported model now (for --space auto and resnet)."""

    def check(self) -> None:
        """A space of images."""
        super().check()
        if self.space not in ("auto", *SPACES):
            raise unknown_value("space", self.space, ("auto", *SPACES))
