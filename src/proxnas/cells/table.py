"""Look-up of a NAS-Bench-201 cell, or of a chain, in a table of trained networks: csv or csv.gz
with a column `arch`."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import CHAINS
from proxnas.common.errors import InputError

MAX_BYTES, BLANK, RATIO = 64 * 2**20, 8 * 2**20, 20
"""Of the text of a table: no more than the first, nor than the second and so many times its
file."""
MAX_LINES = 1_000_000

Figures = dict[str, float | str]


def look_up(path: Path, genotype: Genotype) -> Figures:
    """The figures of a cell; columns that are numbers come as numbers."""
    arch = _name(genotype)
    for row in _rows(path):
        if row["arch"] == arch:
            return {name: _number(value) for name, value in row.items() if name and name != "arch"}
    raise _missing(path, arch)


def validation(path: Path) -> Callable[[Genotype], float]:
    """Cell -> validation accuracy from 0 to 1, by the first column with `valid` in its name.

    All that a search may see of the table: the test column is for those who report.
    """
    accuracies: dict[str, float] = {}
    for row in _rows(path):
        column = next((name for name in row if name and "valid" in name), None)
        if column is None:
            raise InputError(
                f"{path}: no column with valid in its name: give a table with validation accuracies"
            )
        value = _number(row[column])
        if not isinstance(value, float) or not 0 <= value <= 100:
            raise InputError(
                f"{path}: {column} of {row['arch']} is {value!r}: give percentages from 0 to 100"
            )
        accuracies[row["arch"]] = value / 100

    def accuracy(genotype: Genotype) -> float:
        arch = _name(genotype)
        if arch not in accuracies:
            raise _missing(path, arch)
        return accuracies[arch]

    return accuracy


def _name(genotype: Genotype) -> str:
    """As the column `arch` has it: the benchmark's string, of a chain its blocks with + between."""
    plain = genotype.without_values()  # the table's networks have no factors
    if plain.kind in CHAINS:
        (cell,) = plain.cells.values()
        return "+".join(node[0].op for node in cell.nodes)
    return plain.to_string()


def _rows(path: Path) -> Iterator[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(_text(path), newline=""))
    try:
        if "arch" not in (reader.fieldnames or ()):
            raise InputError(
                f"{path}: no column arch: give a csv or csv.gz table with one cell a row"
            )
        yield from reader
    except csv.Error as error:
        raise InputError(
            f"{path}: line {reader.line_num} is not csv ({error}): give a csv or csv.gz table"
        ) from error


def _missing(path: Path, arch: str) -> InputError:
    return InputError(f"{path}: has no row for {arch}: give a table that holds all cells")


def check_table(path: Path) -> None:
    """Fails now rather than after a search if the table cannot be read."""
    look_up(path, Genotype.from_string("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"))


def _text(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            # a few bytes can unpack to gigabytes: no table of that size has more text than this
            most = min(MAX_BYTES, BLANK + RATIO * path.stat().st_size)
            data = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}): give a csv or csv.gz table") from error
    if len(data) > most or data.count(b"\n") > MAX_LINES:
        raise InputError(
            f"{path}: over {most >> 20} MB or a million lines: give cells and their accuracies only"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text: give a csv or csv.gz table") from error


def _number(value: str | None) -> float | str:
    try:
        number = float(value or "")
    except ValueError:
        return value or ""
    return number if math.isfinite(number) else value or ""  # NaN is no JSON
