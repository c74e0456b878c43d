"""`proxnas query ARCH --table FILE`: what a table says of a NAS-Bench-201 cell."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proxnas.cells.reading import read_genotype
from proxnas.cells.table import look_up
from proxnas.common.say import say
from proxnas.common.words import command_line


@dataclass(frozen=True)
class QueryConfig:
    """Look a NAS-Bench-201 cell, or a chain of blocks, up in a table of trained networks."""

    arch: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ARCH")]
    """A cell string, a genotype JSON file or a run folder."""
    table: str
    """csv or csv.gz file with a column arch."""
    json: bool = False
    """Print JSON."""


def main(argv: list[str]) -> None:
    """Prints the cell's row."""
    config = command_line(QueryConfig, "proxnas query", argv)
    figures = look_up(Path(config.table), read_genotype(config.arch))
    if config.json:
        say(json.dumps(figures, indent=2))
    else:
        say("\n".join(f"{name:24} {value}" for name, value in figures.items()))
