"""What a search on text is told, besides the method.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from proxnas.common.options import Range
from proxnas.domains.search_options import DomainOptions
from proxnas.domains.text.options import LITTLE_DROPPED, Regularised, TokenFlags, text_options

UNITS = Range(1, 16384)


@dataclass(frozen=True)
class TextSearchOptions(Regularised, TokenFlags, DomainOptions):
    """Text, and recurrent cells for it."""

    protocols: ClassVar[tuple[str, ...]] = ("quick", "ptb")
    weightless: ClassVar[bool] = True
    own_rates: ClassVar[bool] = True
    or_smaller: ClassVar[str] = ", or fewer {final_units}"

    units: Annotated[int, UNITS] = 300
    """Units of the embedding and of every node in the search."""
    final_units: Annotated[int, UNITS] = 850
    """Units of the final network that params and flops refer to."""
    bptt: Annotated[int, Range(1, 100_000)] = 35
    """Mean length of a window; its gradient goes no further back."""
    lengths: Literal["random", "fixed"] = "random"
    """Windows for w: as DARTS, or all as long as --bptt."""
    norm: Literal["batch", "none"] = "batch"
    """Nodes normalised over the batch, as DARTS does, or not."""

    def check(self) -> None:
        """What cannot be made tokens of is refused by their reader."""
        super().check()
        text_options(self)

    @classmethod
    def choose_protocol(cls, data: str) -> str:
        """A folder is a corpus such as PTB."""
        return "ptb" if Path(data).is_dir() else "quick"

    @classmethod
    def sizes(cls, protocol: str, space: str) -> dict[str, Any]:
        """Of DARTS' recurrent search, or of a small text on a laptop."""
        return recurrent(protocol)


def recurrent(protocol: str) -> dict[str, Any]:
    """DARTS' recurrent search: plain SGD with a constant, large rate and short clipped steps."""
    sizes = {"epochs": 50, "batch_size": 256} if protocol == "ptb" else quick()
    return {
        "learning_rate": 20.0,
        "learning_rate_min": 20.0,
        "momentum": 0.0,
        "weight_decay": 5e-7,
        "clip": 0.25,
        # not studied on text: what nasp adds for images stays off (activations have no weights to
        # look ahead at)
        "arch_optimizer": "adam",
        "explore": 0.0,
        "look_ahead": 0,
        "arch_learning_rate": 3e-3,
        "arch_beta1": 0.9,
        "arch_beta2": 0.999,
    } | sizes


def quick() -> dict[str, Any]:
    """A small text on a laptop."""
    return {
        "epochs": 10,
        "batch_size": 64,
        "units": 64,
        "final_units": 128,
        "norm": "none",  # normalised, the first choices stay: docs/recurrent.md
    } | LITTLE_DROPPED
