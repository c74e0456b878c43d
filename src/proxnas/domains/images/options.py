"""What commands are told about images: how they are read, how their classifiers are trained and
tested. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from proxnas.common.errors import OptionError
from proxnas.common.options import Options, Range
from proxnas.domains.images.data.options import LoadOptions
from proxnas.training.options import Chance, DataArgument, ScheduledOptions, TestOptions

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
class ImageFlags(Options):
    """How files of images become an array."""

    image_size: Side = 0
    """Side in pixels that images are brought to; auto: as they are where all have one size, else by
    the data; for a trained model as it reads them."""
    skip_broken: bool = False
    """Leave out images that cannot be read, and name them; without it they are an error."""

    def load_options(self) -> LoadOptions:
        """How DATA is read."""
        return load_options(self)


def load_options(options: Any) -> LoadOptions:
    """How DATA is read, by the options of a search, a training, a test or a fit."""
    return LoadOptions(skip_broken=options.skip_broken, image_size=options.image_size)


@dataclass(frozen=True)
class ImageTrainOptions(ImageFlags, ScheduledOptions):
    """Train the network of a cell on DATA from scratch, and test it.

    A recurrent cell is trained on text and has flags of its own: proxnas train zoo:LSTM --help
    """

    DOMAIN: ClassVar[str] = "images"

    cell: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CELL")] = ""
    """A run folder, a genotype JSON file, a NAS-Bench-201 string or zoo:NAME, which may be a
    network made by hand."""
    data: DataArgument = ""
    """digits, an .npz file, a CIFAR folder, a folder of class folders, a .csv of files
    and labels, or hf:NAME."""
    protocol: Literal["auto", "quick", "cifar", "imagenet", "tinyimagenet"] = "auto"
    """Defaults of all the following; auto: cifar for a CIFAR folder, tinyimagenet for its folder,
    else quick."""
    batch_size: Annotated[int, Range(2, 1_000_000)] = 64
    """Images of an update."""
    valid_share: Annotated[float, Range(0, 0.5)] = 0.1
    """Held out of the training images to choose the best weights by (a valid part of DATA comes
    first); 0: none."""

    cells: Annotated[int, Range(1, 200)] = 8
    """Cells of the network (nasbench201, resnet: a stage)."""
    channels: Annotated[int, Range(1, 4096)] = 16
    """Channels of its first cell."""
    stem: Literal["cifar", "imagenet", "tinyimagenet"] = "cifar"
    """What stands before the cells."""
    label_smoothing: Chance = 0.0
    auxiliary: Annotated[float, Range(0, 100)] = 0.0
    """Weight of the auxiliary tower's loss; 0: no tower."""
    drop_path: Chance = 0.0
    """Path dropout at the last epoch, to which it rises from 0."""

    shift: Literal["auto", "yes", "no"] = "auto"
    """Move training images by up to an eighth; auto: as suits the data. Likewise --flip."""
    flip: Literal["auto", "yes", "no"] = "auto"
    cutout: int = 0
    """Side of the square that is hidden in training images."""
    rotation: float = 0.0
    """Turn training images by up to so many degrees."""
    colour: float = 0.0
    """Vary their brightness, contrast, saturation and hue by up to this share."""
    resized_crop: bool = False
    """Stretch a random part of them to the whole image."""

    def check(self) -> None:
        super().check()
        if self.accumulate > self.batch_size // 2:
            raise OptionError(
                "accumulate", self.accumulate, "parts of a batch need two images each: give fewer"
            )
        self.load_options()

    def over_all_epochs(self) -> str:
        if self.drop_path:
            return f"its {{drop_path}} rises over {self.epochs} epochs"
        return super().over_all_epochs()


@dataclass(frozen=True)
class ImageTestOptions(ImageFlags, TestOptions):
    """Test a trained model on DATA: accuracy, accuracy of each class, confusion matrix."""

    data: DataArgument = ""
    """digits, an .npz file, a CIFAR folder, a folder of class folders, a .csv of files
    and labels, or hf:NAME."""
    part: Literal["auto", "test", "valid", "train", "all"] = "auto"
    """Which part of DATA; auto: its test part; without one all of it, but of the data that the
    model was trained on the fifth that was set aside then, as with test."""
