"""What a search of image classifiers is told, besides the method. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from proxnas.common.options import Range
from proxnas.domains.images.options import ImageFlags
from proxnas.domains.images.spaces import space_traits
from proxnas.domains.search_options import DomainOptions, Precision

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
    cutout: Annotated[int, Range(0)] = 0
    """Side of the square cut out of the images that train w and move A; 0: none."""
    precision: Precision = "fp32"
    """Of the operations; weights stay fp32. For GPUs: most CPUs are slower in bf16."""

    def check(self) -> None:
        """A side that images can have."""
        super().check()
        self.load_options()

    @classmethod
    def choose_protocol(cls, data: str) -> str:
        """cifar for its folder; what is not searched by a protocol of its own is small data."""
        return "cifar" if auto_protocol(data) == "cifar" else "quick"

    @classmethod
    def sizes(cls, protocol: str, space: str) -> dict[str, Any]:
        """Of the paper, or of small data on a laptop; nasbench201 has its own final network, and
        one cell a stage is enough to search on small data."""
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
    from proxnas.domains.images.data.cifar import find

    if find(folder) is not None:
        return "cifar"
    return "tinyimagenet" if (folder / "val" / "val_annotations.txt").is_file() else "quick"
