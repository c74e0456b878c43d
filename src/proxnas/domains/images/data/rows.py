"""The rows of a CSV file in the forms that people have: any usual delimiter, with a header or
without, in the encodings and with the decimal commas of spreadsheets."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxnas.common.errors import InputError
from proxnas.common.say import tell
from proxnas.domains.images.data.picture import SUFFIXES

DELIMITERS = ",;\t|"
FILE_COLUMNS = (
    *("file", "filename", "file_name", "filepath", "file_path", "path", "image", "image_path"),
    *("image_name", "img", "image_id", "id"),
)
LABEL_COLUMNS = ("label", "labels", "class", "class_name", "category", "target", "y", "tags", "tag")
PART_COLUMNS = ("part", "split", "subset", "set", "fold")
MOST_BYTES = 2**28
LOOKED_AT = 50
"""Rows that columns are recognised by."""
COMMA_NUMBER = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


@dataclass(frozen=True)
class Table:
    """Rows of one CSV file."""

    path: Path
    columns: tuple[str, ...]
    rows: list[list[str]]
    first: int
    """Line of the first row."""

    def column(self, at: int) -> list[str]:
        return [row[at].strip() for row in self.rows]


def read_table(path: Path) -> Table:
    """The rows of a CSV file; one line says what is wrong with it."""
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: {path.stat().st_size} bytes are too many for names and labels")
    text = _text(path)
    delimiter = _delimiter(text)
    try:
        lines = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(row)]
    except csv.Error as error:
        raise InputError(f"{path}: not a table ({error}): write it again as CSV") from error
    if not lines:
        raise InputError(f"{path}: it is empty: give rows of a file name and a label")
    width = len(lines[0])
    if wrong := [n for n, row in enumerate(lines, 1) if len(row) != width]:
        raise InputError(
            f"{path}: {len(wrong)} of {len(lines)} rows have not {width} columns, the first is row"
            f" {wrong[0]}: mend them"
        )
    if width < 2:
        raise InputError(f"{path}: one column only: give a file name and a label in each row")
    head = [cell.strip() for cell in lines[0]]
    named = _is_header(head, path.parent)
    rows = lines[1:] if named else lines
    if delimiter != ",":
        rows = _with_points(rows)
    columns = head if named else [f"column {k + 1}" for k in range(width)]
    return Table(path, tuple(columns), rows, 2 if named else 1)


def _text(path: Path) -> str:
    """What a table says, in the encoding that it was written in: UTF-8, or what spreadsheets write
    on Windows. A letter that is read wrongly could make one class of two."""
    content = path.read_bytes()
    try:
        if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return content.decode("utf-16")
        # utf-8-sig: without the mark that spreadsheets put at the beginning
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        tell(f"{path}: is not UTF-8, so it is read as Windows-1252")
        return content.decode("cp1252", "replace")


def _with_points(rows: list[list[str]]) -> list[list[str]]:
    """Columns of numbers with a decimal comma (3,5), as spreadsheets write them beside semicolons,
    with a point. Where all of them may be thousands (1,234) nothing is done: nobody can tell."""
    columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
    for k, cells in enumerate(columns):
        fractions = [cell for cell in cells if "," in cell]
        numbers = all(COMMA_NUMBER.fullmatch(cell) for cell in cells if cell)
        if fractions and numbers and not all(map(THOUSANDS.fullmatch, fractions)):
            columns[k] = [cell.replace(",", ".") for cell in cells]
    return [list(row) for row in zip(*columns, strict=True)]


def _delimiter(text: str) -> str:
    """The sign that stands in every one of the first lines, most often."""
    lines = [line for line in text.splitlines()[:LOOKED_AT] if line.strip()]
    return max(DELIMITERS, key=lambda sign: min((line.count(sign) for line in lines), default=0))


def _is_header(cells: Sequence[str], folder: Path) -> bool:
    """Whether the first row names columns: it has usual names, or none of it is an image."""
    # one usual name is enough: no file or label is called so
    known = (*FILE_COLUMNS, *LABEL_COLUMNS, *PART_COLUMNS)
    if any(cell.lower() in known for cell in cells):
        return True
    return not any(looks_like_file(cell) or (folder / cell).is_file() for cell in cells if cell)


def looks_like_file(cell: str) -> bool:
    return os.path.splitext(cell)[1].lower() in SUFFIXES
