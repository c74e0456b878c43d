"""The picture of README.md: the normal cell of a search, epoch by epoch, as an SVG that moves.

    proxnas search digits --threads 1 --run RUN
    python benchmarks/picture.py RUN docs/figures/search.svg

Whoever asks for no motion sees the cell that was found.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from proxnas.cells.genotype import Genotype
from proxnas.report.cell import cell_svgs
from proxnas.report.layout import INK, MARGIN
from proxnas.report.reading import read_run

SECONDS = 1.2  # a frame is seen; the last one for LAST of them
LAST = 3
LINE = 30.0  # height of the words below the cell


class Frame(NamedTuple):
    """A cell and what is said of it."""

    svg: str
    words: str

    def size(self, name: str) -> float:
        """Its width or height."""
        found = re.search(rf'{name}="([\d.]+)"', self.svg)
        assert found
        return float(found[1])


def frames(folder: Path) -> list[Frame]:
    """One for each sequence of epochs that have the same normal cell."""
    rows = read_run(folder).rows
    cells = [cell_svgs(Genotype.from_object(row["genotype"]))[0] for row in rows]
    found = []
    for svg, epochs in groupby(zip(cells, rows, strict=True), key=lambda pair: pair[0]):
        row = list(epochs)[-1][1]
        found.append(
            Frame(
                svg,
                f"after epoch {row['epoch']}: validation accuracy {row['valid_accuracy']:.2f},"
                f" {row['params']:,} parameters",
            )
        )
    return found


def animated(pictures: list[Frame]) -> str:
    """All frames in one SVG, each to be seen in its turn."""
    width = max(picture.size("width") for picture in pictures)
    height = max(picture.size("height") for picture in pictures) + LINE
    turns = len(pictures) - 1 + LAST
    rules, groups = [], []
    for i, picture in enumerate(pictures):
        start, end = 100 * i / turns, 100 * (i + 1) / turns
        before = "0% { opacity: 0; } " if i else ""
        after = f" {end:.2f}% {{ opacity: 0; }}" if i < len(pictures) - 1 else ""
        rules.append(f".f{i} {{ animation-name: k{i}; }}")
        rules.append(f"@keyframes k{i} {{ {before}{start:.2f}% {{ opacity: 1; }}{after} }}")
        place = f'x="{MARGIN:g}" y="{height - LINE / 2:g}" font-size="14" fill="{INK}"'
        words = f"<text {place}>{picture.words}</text>"
        groups.append(f'<g class="frame f{i}">\n{picture.svg}{words}\n</g>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
            f' viewBox="0 0 {width:g} {height:g}" font-family="monospace">',
            "<title>A cell being found</title>",
            "<style>",
            f".frame {{ opacity: 0; animation: {SECONDS * turns:g}s step-end infinite; }}",
            *rules,
            f".f{len(pictures) - 1} {{ opacity: 1; }}",
            "@media (prefers-reduced-motion: reduce) { .frame { animation: none; } }",
            "</style>",
            f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
            *groups,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    run, out = map(Path, sys.argv[1:])
    out.write_text(animated(frames(run)), encoding="utf-8")
