"""Look-up of a NAS-Bench-201 cell in a table of trained networks: csv or csv.gz with a column `arch`."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path

from proxnas.errors import InputError
from proxnas.genotype import Genotype

MAX_BYTES = 256 * 2**20

Figures = dict[str, float | str]


def look_up(path: Path, genotype: Genotype) -> Figures:
    """The figures of a cell; columns that are numbers come as numbers."""
    arch = genotype.without_values().to_string()  # the table's networks have no factors
    reader = csv.DictReader(io.StringIO(_text(path)))
    if "arch" not in (reader.fieldnames or ()):
        raise InputError(f"{path}: no column arch: give a csv or csv.gz table with one cell a row")
    for row in reader:
        if row["arch"] == arch:
            return {name: _number(value) for name, value in row.items() if name and name != "arch"}
    raise InputError(f"{path}: has no row for {arch}: give a table that holds all cells")


def check(path: Path) -> None:
    """Fails now rather than after a search if the table cannot be read."""
    look_up(path, Genotype.from_string("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"))


def _text(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}): give a csv or csv.gz table") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: over 256 MB: give a table of cells and their accuracies only")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text: give a csv or csv.gz table") from error


def _number(value: str | None) -> float | str:
    try:
        return float(value or "")
    except ValueError:
        return value or ""
