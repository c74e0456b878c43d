"""What a fit on text is told. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from proxnas.common.options import COUNT, COUNT_OR_NONE, OptionError, Range
from proxnas.domains.fitting import FitOptions
from proxnas.domains.text.options import TokenFlags
from proxnas.domains.text.spaces import SPACES
from proxnas.training.options import DataArgument


@dataclass(frozen=True)
class TextFitConfig(TokenFlags, FitOptions):
    """Search a recurrent cell on a text, train its language model, test it, export it and let it
    write."""

    DOMAIN: ClassVar[str] = "text"

    data: DataArgument = ""
    """pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME (with
    --space rnn)."""
    space: str = next(iter(SPACES))
    protocol: Literal["quick", "ptb", "wt2"] = "quick"
    """Sizes and training."""
    batch_size: Annotated[int, COUNT_OR_NONE] = 0
    """Of both; 0: as the protocol says, smaller for a short text. Likewise --bptt."""
    bptt: Annotated[int, Range(0, 100_000)] = 0
    units: Annotated[int, Range(0, 16384)] = 0
    """Of the trained network; 0: as the protocol says."""
    prompt: str = ""
    """How the text begins that the model writes at the end; --words and --temperature are as in
    generate."""
    words: Annotated[int, COUNT] = 60
    temperature: Annotated[float, Range(0, 1000)] = 0.7

    def check(self) -> None:
        """A space of text."""
        super().check()
        if self.space not in SPACES:
            raise OptionError("space", self.space, f"is for images: give {' or '.join(SPACES)}")

    def token_values(self) -> dict[str, Any]:
        """How the text becomes tokens, for search and training alike."""
        return {name: getattr(self, name) for name in TOKENS}


TOKENS = tuple(TokenFlags.__dataclass_fields__)
