"""What `fit` asks of a domain: the options of a fit, and how it sizes a search and a training.

The course of a fit (search, training, test, export, each resumable) is written once over this, in
workflows/fit.py. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import tyro

from proxnas import methods
from proxnas.common.errors import unknown_value
from proxnas.common.options import COUNT_OR_NONE, Options, Range
from proxnas.methods.limit_options import BudgetFlags
from proxnas.runs.options import FolderConfig
from proxnas.training.options import DataArgument

if TYPE_CHECKING:
    from proxnas.domains.exporting import Exported

FitMinutes = Annotated[float, Range(0, 1e7), tyro.conf.arg(aliases=["--budget-minutes"])]
"""--minutes of fit, with the name that it had."""
Say = Callable[[str], None]
Free = Callable[[str], bool]
"""Whether nobody has asked for a value of that option, so that it may be chosen."""


@dataclass(frozen=True)
class FitOptions(BudgetFlags, FolderConfig, Options):
    """What every fit is told; a domain adds its own."""

    heading: ClassVar[str] = ""

    DOMAIN: ClassVar[str] = ""

    data: DataArgument = ""
    minutes: FitMinutes = 0.0
    """Time of everything: the epochs of both are chosen such that it is enough, and it is kept by
    the clock; 0: any time, and the epochs of the protocol."""
    space: str = ""
    method: str = "nasp"
    """As in `proxnas search`."""
    search_epochs: Annotated[int, COUNT_OR_NONE] = 0
    """Epochs of the search; 0: as the protocol or the budget says."""
    epochs: Annotated[int, COUNT_OR_NONE] = 0
    """Epochs of the training; 0: as the protocol or the budget says."""
    batch_size: Annotated[int, COUNT_OR_NONE] = 0
    """Of both; 0: as the protocol says, smaller where that would make few steps."""
    search_config: str = ""
    """JSON file with more flags of the search."""
    train_config: str = ""
    """JSON file with more flags of the training."""

    def check(self) -> None:
        """A method that exists."""
        super().check()
        if self.method not in methods.names():
            raise unknown_value("method", self.method, methods.names())

    def same_values(self) -> dict[str, Any]:
        """What search and training have alike."""
        names = ("data", "seed", "device", "threads", "deterministic", "quiet")
        return {name: getattr(self, name) for name in names}


class Fitting(Protocol):
    """How a domain is fitted. `config` is of its own class of options, `training` and `search` are
    the options of the two parts."""

    @property
    def options(self) -> type[FitOptions]:
        """What a fit is told."""

    @property
    def auto_space(self) -> str:
        """Where `auto` searches."""

    @property
    def needed(self) -> tuple[str, ...]:
        """What the result of a finished fit has, besides what all have."""

    def train_values(
        self, config: Any, architecture: Any, file: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Its own values of the training: by protocol, from the file of train_config, by
        option."""

    def search_values(self, config: Any, training: Any) -> dict[str, Any]:
        """Its own values of the search before such a training; an InputError if there can be
        none."""

    def size_search(self, config: Any, search: Any, data: Any, free: Free) -> tuple[Any, Any]:
        """The options of the search, and its data, fitted to how much there is of them."""

    def size_training(self, training: Any, data: Any, free: Free, most: int) -> Any:
        """The options of the training, fitted likewise; at most so many times its epochs."""

    def reads_alike(self, search: Any, training: Any) -> bool:
        """Whether both read the same data in the same way."""

    def smaller(self, training: Any, data: Any, free: Free) -> Iterator[tuple[Any, Any]]:
        """The training, then smaller and smaller ones with their data: what to give up for speed,
        each besides the one before."""

    def size_batches(self, training: Any, data: Any, usual: int, epochs: int, free: Free) -> Any:
        """The options with larger batches, up to the usual, where so many epochs have steps
        enough."""

    def size_line(self, training: Any) -> str:
        """The size of a training for people; empty: nothing to say."""

    def deliver(
        self,
        config: Any,
        training: Any,
        model: Any,
        folder: Path,
        found: Mapping[str, Any],
        say: Say,
    ) -> dict[str, Any]:
        """Writes the exported network, checked, the model card and what else the domain has into a
        folder; what result.json says of it, and a `warning` if there is one.
        `found`: the result of the search."""


def names_of(exported: Exported) -> dict[str, Any]:
    """What result.json says of exported files."""
    names = {kind: path.name for kind, path in exported.files.items()}
    return {
        "onnx": names.get("onnx"),
        "exported": names.get("onnx") or names["torch"],
        "model_card": names["card"],
    }
