"""What `bench` is told.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from proxnas import methods
from proxnas.common.errors import OptionError, unknown_value
from proxnas.common.options import Range
from proxnas.domains.spaces import SPACES
from proxnas.runs.options import RunConfig
from proxnas.searching.owners import domain_options

COUNT, SHARE = Range(1), Range(0, 1, above=True)


@dataclass(frozen=True)
class BenchConfig(RunConfig):
    """Time and memory of one search iteration: NASP beside DARTS, and the floor."""

    space: str = "darts8"
    """The space to search in."""
    methods: str = "nasp,darts-1st,darts-2nd"
    """Methods to time, with commas between, or all."""
    candidates: Annotated[int, Range(0, 16)] = 0
    """Instead of a space: so many (1 to 16) operations in both cells."""
    cells: Annotated[int, COUNT] = 8
    """Of the search network."""
    channels: Annotated[int, COUNT] = 16
    """Of its first cell."""
    batch_size: Annotated[int, Range(2)] = 0
    """0: 16 images, or 64 pieces of a text."""
    image_size: Annotated[int, Range(8)] = 32
    """Side of the images, of noise."""
    units: Annotated[int, COUNT] = 300
    """Of a recurrent network."""
    bptt: Annotated[int, COUNT] = 35
    """Words that it reads in a step."""
    words: Annotated[int, Range(2)] = 10_000
    """Different ones that it knows."""
    score_batch: Annotated[float, SHARE] = 1.0
    """Share of the batch that unselected candidates are scored on."""
    score_nodes: Annotated[float, SHARE] = 1.0
    """Chance of a node to be scored in a step."""
    rounds: Annotated[int, COUNT] = 5
    """Interleaved rounds whose medians are reported."""
    json: str = ""
    """Write the figures into this file."""

    def __post_init__(self) -> None:
        if not self.batch_size:
            # before the check, which sees no 0
            object.__setattr__(self, "batch_size", 64 if self.on_text else 16)
        super().__post_init__()

    def check(self) -> None:
        """Names that exist, and go together."""
        super().check()
        if self.space not in SPACES:
            raise unknown_value("space", self.space, SPACES)
        for method in self.all_methods():
            if method not in methods.names():
                raise unknown_value("methods", method, methods.names())
        if self.candidates and self.on_text:
            raise OptionError("candidates", self.candidates, f"is not for {{space}} {self.space}")

    @property
    def on_text(self) -> bool:
        """Whether words are read, not images."""
        return domain_options(self.space).weightless

    def all_methods(self) -> list[str]:
        """The methods to time."""
        if self.methods != "all":
            return self.methods.split(",")
        usable = []
        for name in methods.names():
            if not (self.on_text and methods.options_of(name).traits.draws_answers):
                usable.append(name)
        return usable
