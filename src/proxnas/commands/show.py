"""`proxnas show CELL`: a cell as text or as a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proxnas.genotype import read
from proxnas.report.cell import cell_svg, cell_text
from proxnas.settings import command_line


@dataclass(frozen=True)
class ShowConfig:
    """Show a cell: a run folder, a genotype JSON file, zoo:NAME, or a NAS-Bench-201 string."""

    cell: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CELL")]
    """A run folder, a genotype JSON file, zoo:NAME, or a NAS-Bench-201 string."""
    svg: str = ""
    """Write a drawing into this file."""


def main(argv: list[str]) -> None:
    """Prints the cell, or draws it."""
    config = command_line(ShowConfig, "proxnas show", argv)
    genotype = read(config.cell)
    print(cell_text(genotype))
    if config.svg:
        Path(config.svg).write_text(cell_svg(genotype), encoding="utf-8")
        print(f"drawn in {config.svg}")
