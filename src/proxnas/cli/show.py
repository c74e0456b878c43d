"""`proxnas show CELL`: a cell as text or as a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.common.errors import InputError
from proxnas.common.files import write_atomically
from proxnas.common.say import say
from proxnas.common.words import command_line
from proxnas.report.cell import cell_svg, cell_text


@dataclass(frozen=True)
class ShowConfig:
    """Show a cell: a run folder, a genotype JSON file, zoo:NAME, or a NAS-Bench-201 string."""

    cell: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CELL")]
    """A run folder, a genotype JSON file, zoo:NAME, or a NAS-Bench-201 string."""
    svg: str = ""
    """Draw it into this .svg file."""
    png: str = ""
    """Draw it into this .png file."""
    pdf: str = ""
    """Draw it into this .pdf file."""

    def __post_init__(self) -> None:
        for kind in ("svg", "png", "pdf"):
            path = getattr(self, kind)
            if path and Path(path).suffix != f".{kind}":
                raise InputError(f"--{kind} {path}: give a name that ends in .{kind}")


def main(argv: list[str]) -> None:
    """Prints the cell, and draws it if asked."""
    config = command_line(ShowConfig, "proxnas show", argv)
    genotype = read_genotype(config.cell)
    say(cell_text(genotype))
    for path in filter(None, (config.svg, config.png, config.pdf)):
        _draw(genotype, Path(path))
        say(f"drawn in {path}")


def _draw(genotype: Genotype, path: Path) -> None:
    if path.suffix == ".svg":
        write_atomically(path, cell_svg(genotype))
        return
    # matplotlib takes a while, and text needs it not
    from proxnas.report.cell_figure import save_cell

    save_cell(genotype, path)
