"""What commands are told about images: how they are read, how their classifiers are searched,
trained and tested. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from proxnas.common.errors import OptionError
from proxnas.common.options import Options, Range
from proxnas.domains.images.data.options import LoadOptions
from proxnas.domains.images.spaces import space_traits
from proxnas.domains.search_options import DomainOptions, Precision, WeightOptimizers, Wiring
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

    heading: ClassVar[str] = "data and networks:"

    image_size: Side = 0
    """Side in pixels that images are brought to; auto: as they are where all have one size, else by
    the data; for a trained model as it reads them."""
    skip_broken: bool = False
    """Leave out images that cannot be read, and name them; without it they are an error."""

    def check(self) -> None:
        """A side that images can have."""
        super().check()
        self.load_options()

    def load_options(self) -> LoadOptions:
        """How DATA is read, by what a search, a training, a test or a fit is told."""
        return LoadOptions(skip_broken=self.skip_broken, image_size=self.image_size)


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
    """Share of each label that is spread over all classes."""
    auxiliary: Annotated[float, Range(0, 100)] = 0.0
    """Weight of the auxiliary tower's loss; 0: no tower."""
    drop_path: Chance = 0.0
    """Path dropout at the last epoch, to which it rises from 0."""

    shift: Literal["auto", "yes", "no"] = "auto"
    """Move training images by up to an eighth; auto: as suits the data."""
    flip: Literal["auto", "yes", "no"] = "auto"
    """Mirror every other training image; auto: as suits the data."""
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


# beyond these a slip of the finger would fill the memory before anybody can say so
CELLS, CHANNELS = Range(1, 200), Range(1, 4096)


@dataclass(frozen=True)
class ImageSearchOptions(ImageFlags, DomainOptions):
    """Images, and the networks for them."""

    protocols: ClassVar[tuple[str, ...]] = ("quick", "cifar")
    cells_of_images: ClassVar[bool] = True
    or_smaller: ClassVar[str] = ", or fewer {final_cells} or {final_channels}"

    cells: Annotated[int, CELLS] = 5
    """Cells of the search network; nasbench201 and resnet: of a stage; mobile: 1; genet:
    convolutions of a node."""
    channels: Annotated[int, CHANNELS] = 16
    """Channels of its first cell."""
    final_cells: Annotated[int, CELLS] = 8
    """Cells of the final network that params and flops refer to."""
    final_channels: Annotated[int, CHANNELS] = 16
    channel_part: Annotated[int, Range(1, 64)] = 1
    """Candidates read one in so many channels during the search, the others pass by (PC-DARTS);
    as far as it divides them."""
    wiring: Wiring = "free"
    """What nodes of a cell read; free: any state before them; inputs: the cell's inputs only; auto:
    what short trainings of random cells find better, before a search that is longer than they."""
    weight_optimizer: WeightOptimizers = "sgd"
    """What trains w, at --learning-rate; muon: that for convolutions and Nesterov descent for the
    rest, which learn more in a few hundred steps."""
    cutout: Annotated[int, Range(0)] = 0
    """Side of the square cut out of the images that train w and move A; 0: none."""
    precision: Precision = "fp32"
    """Of the operations; weights stay fp32. For GPUs: most CPUs are slower in bf16."""

    @classmethod
    def choose_protocol(cls, data: str) -> str:
        """cifar for its folder; what is not searched by a protocol of its own is small data."""
        return "cifar" if auto_protocol(data) == "cifar" else "quick"

    @classmethod
    def sizes(cls, protocol: str, space: str) -> dict[str, Any]:
        """Of the paper, or of small data on a laptop; nasbench201 has its own final network, and
        one cell a stage is enough to search on small data."""
        # a space has sizes of its own where those of cells make no sense
        values = dict(CIFAR if protocol == "cifar" else QUICK)
        return values | OF_SPACE.get(space, {}).get(protocol, {})

    @classmethod
    def fixed(cls, space: str) -> dict[str, Any]:
        """Blocks of a chain change their channels: they read all of them."""
        return {} if space_traits(space).parted else {"channel_part": 1}


QUICK = {
    "epochs": 15,
    "batch_size": 32,
    "cells": 5,
    "channels": 16,
    "final_cells": 8,
    "final_channels": 16,
}
"""Small data on a laptop."""
CIFAR = {
    "epochs": 50,
    "batch_size": 64,
    "cells": 8,
    "channels": 16,
    "final_cells": 20,
    "final_channels": 36,
}
"""The paper's search on CIFAR-10 and the network it trains."""

CHAIN = {"cells": 1, "channels": 32, "final_cells": 1, "final_channels": 32}
MOBILE = {"cells": 1, "final_cells": 1}
OF_SPACE: dict[str, dict[str, dict[str, int]]] = {
    "nasbench201": {
        "quick": {"cells": 1, "final_cells": 5, "final_channels": 16},
        "cifar": {"cells": 5, "final_cells": 5, "final_channels": 16},
    },
    # the network that is searched is the one that is trained, in width and in depth
    "resnet": {"quick": CHAIN, "cifar": CHAIN},
    "genet": {
        "quick": MOBILE | {"channels": 16, "final_channels": 32},
        "cifar": MOBILE | {"channels": 16, "final_channels": 32},
    },
    "mobile": {
        "quick": MOBILE | {"channels": 8, "final_channels": 8},
        "cifar": MOBILE | {"channels": 16, "final_channels": 16},
    },
}
"""Space -> protocol -> sizes of its own."""


def auto_protocol(data: str) -> str:
    """The protocol of a training that suits DATA: cifar, tinyimagenet or quick."""
    folder = Path(data).expanduser()
    if not folder.is_dir():
        return "quick"
    # numpy takes a while, and --help needs it not
    from proxnas.domains.images.data.cifar import find_cifar

    if find_cifar(folder) is not None:
        return "cifar"
    return "tinyimagenet" if (folder / "val" / "val_annotations.txt").is_file() else "quick"
