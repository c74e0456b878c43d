"""What fit is told, on images and on text: frozen dataclasses, checked at birth, each error naming
its flag.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from proxnas.common.options import COUNT, COUNT_OR_NONE, OptionError, Options, Range, unknown_value
from proxnas.domains.images.options import ImageFlags
from proxnas.domains.spaces import SPACES
from proxnas.domains.text.domain import TEXT
from proxnas.domains.text.options import TokenFlags
from proxnas.methods import METHODS
from proxnas.runs.options import FolderConfig
from proxnas.searching.limit_options import BudgetFlags
from proxnas.training.options import DataArgument

FitMinutes = Annotated[float, Range(0, 1e7), tyro.conf.arg(aliases=["--budget-minutes"])]
"""--minutes of fit, with the name that it had."""


@dataclass(frozen=True)
class FitConfig(ImageFlags, BudgetFlags, FolderConfig, Options):
    """Search a cell on DATA, train its network, test it and export it.

    For text there are flags of their own: proxnas fit pydocs --help
    """

    data: DataArgument = ""
    """digits, an .npz file, a CIFAR folder, a folder of class folders, a .csv of files
    and labels, or hf:NAME."""
    minutes: FitMinutes = 0.0
    """Time of everything, kept by the clock; 0: as the data ask for, a minute to ten (in spaces of
    cells the epochs of the protocol, in any time)."""
    space: str = "auto"
    """Where to search: as in `proxnas search`, and so are --method and --eta. auto: resnet, where
    the search is the training; darts7 if a limit, a method or epochs are asked for."""
    method: str = "nasp"
    eta: Annotated[float, Range(0, 1e9)] = 0.0
    protocol: Literal["auto", "quick", "cifar", "imagenet", "tinyimagenet"] = "auto"
    """Sizes and training; auto: cifar for a CIFAR folder, tinyimagenet for its folder, else
    quick."""
    search_epochs: Annotated[int, COUNT_OR_NONE] = 0
    """Epochs of the search; 0: as the protocol or the budget says."""
    epochs: Annotated[int, COUNT_OR_NONE] = 0
    """Epochs of the training; 0: as the protocol or the budget says."""
    batch_size: Annotated[int, COUNT_OR_NONE] = 0
    """Of both; 0: as the protocol says, smaller where that would make few steps."""
    cells: Annotated[int, Range(0, 200)] = 0
    """Cells of the trained network; 0: as the protocol says, fewer where --minutes are few.
    Likewise --channels."""
    channels: Annotated[int, Range(0, 4096)] = 0
    flip: Literal["auto", "yes", "no"] = "auto"
    """Mirror training images; auto: photos, as their colours tell (for --space auto and resnet)."""
    finish: bool = False
    """Make of a stopped run a tested, exported model now (for --space auto and resnet)."""
    search_config: str = ""
    """JSON file with more flags of the search."""
    train_config: str = ""
    """JSON file with more flags of the training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space not in ("auto", *SPACES):
            raise unknown_value("space", self.space, ("auto", *SPACES))
        if self.method not in METHODS:
            raise unknown_value("method", self.method, METHODS)
        Options.__post_init__(self)


@dataclass(frozen=True)
class TextFitConfig(TokenFlags, BudgetFlags, FolderConfig, Options):
    """Search a recurrent cell on a text, train its language model, test it, export it and let it
    write."""

    data: DataArgument = ""
    """pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME (with
    --space rnn)."""
    space: str = next(iter(TEXT.spaces))
    method: str = "nasp"
    """As in `proxnas search`."""
    protocol: Literal["quick", "ptb", "wt2"] = "quick"
    """Sizes and training."""
    minutes: FitMinutes = 0.0
    """Time of everything: the epochs of both are chosen such that it is enough, and it is kept by
    the clock; 0: any time, and the epochs of the protocol."""
    search_epochs: Annotated[int, COUNT_OR_NONE] = 0
    """Epochs of the search; 0: as the protocol or the budget says."""
    epochs: Annotated[int, COUNT_OR_NONE] = 0
    """Epochs of the training; 0: as the protocol or the budget says."""
    batch_size: Annotated[int, COUNT_OR_NONE] = 0
    """Of both; 0: as the protocol says, smaller for a short text. Likewise --bptt."""
    bptt: Annotated[int, Range(0, 100_000)] = 0
    units: Annotated[int, Range(0, 16384)] = 0
    """Of the trained network; 0: as the protocol says."""
    search_config: str = ""
    """JSON file with more flags of the search."""
    train_config: str = ""
    """JSON file with more flags of the training."""
    prompt: str = ""
    """How the text begins that the model writes at the end; --words and --temperature are as in
    generate."""
    words: Annotated[int, COUNT] = 60
    temperature: Annotated[float, Range(0, 1000)] = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space not in TEXT.spaces:
            advice = f"is for images: give {' or '.join(TEXT.spaces)} for text"
            raise OptionError("space", self.space, advice)
        if self.method not in METHODS:
            raise unknown_value("method", self.method, METHODS)
        Options.__post_init__(self)
