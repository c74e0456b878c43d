"""The options of a search that belong to no method, domain or limit: what is searched, for how
long, and as which runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import tyro

from proxnas import methods
from proxnas.common.errors import OptionError, unknown_value
from proxnas.common.options import COUNT, Options, Range
from proxnas.common.quantities import whole_numbers
from proxnas.runs.options import JobConfig
from proxnas.searching.owners import check_names, domain_options, not_for

BY_ITSELF = -1
"""--refine where it costs no more than the search."""


@dataclass(frozen=True)
class What(Options):
    """What is searched, and how."""

    heading: ClassVar[str] = "what:"

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")] = "digits"
    """digits, a file or folder of images, hf:NAME; for rnn a text. Images: an .npz or .parquet
    file, a CIFAR folder, a folder of class folders. Text: pydocs, a folder with train.txt,
    valid.txt and test.txt, a .txt file."""
    space: str = "darts7"
    """Where to search."""
    method: str = "nasp"
    """By which method; each has options of its own."""
    preset: str = "default"
    """Ours, or as published: paper or official (nasp, pa, lazy-pa). docs/paper.md has where they
    differ."""
    protocol: Literal["auto", "quick", "cifar", "ptb"] = "auto"
    """Sizes: of a laptop, or the paper's. auto: for a folder cifar (of text: ptb), else
    quick."""

    def check(self) -> None:
        """Names that exist, and go together."""
        check_names(self.space, self.method)
        domain_options(self.space).check_protocol(self.protocol, self.space)
        presets = methods.options_of(self.method).presets
        if self.preset not in ("default", *presets):
            owners = [name for name in methods.names() if methods.options_of(name).presets]
            known = {key for name in owners for key in methods.options_of(name).presets}
            if self.preset not in known:
                raise unknown_value("preset", self.preset, ("default", *known))
            raise not_for("preset", self.preset, owners, self.method)


@dataclass(frozen=True)
class Course(Options):
    """How long the search is."""

    heading: ClassVar[str] = "how long:"

    epochs: Annotated[int, COUNT] = 25
    """Passes over the half of the data that trains w."""
    # batch statistics of one image are none
    batch_size: Annotated[int, Range(2, 1_000_000)] = 32
    """Images of a step; of all --processes together."""
    patience: Annotated[int, Range(0)] = 10
    """Stop when no step changed A_bar for so many epochs; 0: never."""
    refine: Annotated[int, Range(BY_ITSELF, 1_000_000)] = 0
    """Train so many neighbours of the found cell too, keep the best. Each by itself in a deeper
    network for a moment, the best of them for longer; for cells of images. -1: 24, unless that
    would take longer than the search."""
    table: str = ""
    """Table of trained nasbench201 cells, to look the found one up."""


@dataclass(frozen=True)
class SearchJob(JobConfig):
    """One run, or one a seed."""

    seeds: str = ""
    """Several searches, for example 0,1,2,3; with --pick the best by validation is kept."""
    pick: bool = False
    """Keep the best of --seeds, its cost counted in full."""

    def check(self) -> None:
        """Something to pick from."""
        super().check()
        if self.pick and len(self.all_seeds()) < 2:
            raise OptionError("pick", self.pick, "give {seeds} with at least two seeds")

    def all_seeds(self) -> list[int]:
        """The seeds to run: those of --seeds, else the one of --seed."""
        return whole_numbers("seeds", self.seeds) if self.seeds else [self.seed]
