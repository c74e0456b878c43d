"""A CSV of file names and labels beside the images: labels.csv, or train.csv and test.csv.

Delimiter, header and columns are found by what is usual; what is behind a `?` of DATA decides where
that is not clear: file=COLUMN, label=COLUMN,COLUMN, part=COLUMN, kind=numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from proxnas.common.errors import InputError
from proxnas.common.say import list_names, tell
from proxnas.domains.images.data.arrays import Images, short_name
from proxnas.domains.images.data.columns import SIGNS, reads_as_number, targets_of
from proxnas.domains.images.data.gather import gather
from proxnas.domains.images.data.lazy import Files
from proxnas.domains.images.data.options import LoadOptions
from proxnas.domains.images.data.picture import SUFFIXES
from proxnas.domains.images.data.rows import (
    FILE_COLUMNS,
    LABEL_COLUMNS,
    LOOKED_AT,
    PART_COLUMNS,
    Table,
    looks_like_file,
    read_table,
)
from proxnas.domains.parts import by_part, part_of

ALONE = ("labels.csv", "metadata.csv", "annotations.csv", "labels.tsv")
"""What the file is called that stands for all parts, or has a column for them."""
ENDINGS = (".csv", ".tsv")
UNUSED = ("", "index", "unnamed: 0")
"""Columns that tables have of themselves."""
WORDS = ("file", "label", "part", "kind")
"""What may stand behind the ?."""


class NoFiles(InputError):
    """A table that names no image files, and so may be about something else."""


def split_words(spec: str) -> tuple[str, dict[str, str]]:
    """(path, what stands behind its ?)."""
    path, _, words = spec.partition("?")
    asked = dict(parse_qsl(words, keep_blank_values=True))
    if unknown := [word for word in asked if word not in WORDS]:
        raise InputError(
            f"{path}: ?{unknown[0]}= is not known: give {', '.join(f'{w}=' for w in WORDS)}"
        )
    return path, asked


def is_table(path: str) -> bool:
    """Whether a path is called like a table."""
    return split_words(path)[0].lower().endswith(ENDINGS) if "?" in path else _ends(path)


def _ends(path: str) -> bool:
    return path.lower().endswith(ENDINGS)


def beside(folder: Path) -> dict[str, Path]:
    """Part -> the table of it in a folder; a table of all parts is that of train."""
    # sorted: what a folder lists first must not decide
    names = sorted(entry.name for entry in os.scandir(folder) if _ends(entry.name))
    # a table of all parts comes before tables of one each
    alone = [name for name in names if name.lower() in ALONE]
    if alone:
        return {"train": folder / alone[0]}
    parts = by_part([Path(name).stem for name in names], str(folder))
    found = {part: stem for part, stem in parts.items()}
    if "train" not in found:
        return {}
    files = {Path(name).stem: folder / name for name in names}
    return {part: files[stem] for part, stem in found.items()}


def read_tables(
    paths: Mapping[str, Path], asked: Mapping[str, str], options: LoadOptions
) -> Images:
    """The images that tables name, with their labels."""
    where = paths["train"]
    entries: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    columns: tuple[str, ...] = ()
    # a table of train may have a column that gives its rows to other parts
    for part, path in paths.items():
        table = read_table(path)
        try:
            columns = _label_names(table, asked)
            for own, file, cells in _entries(table, part, asked):
                entries.setdefault(own, []).append((file, cells))
        except InputError:
            if part != "test":  # as contests publish them
                raise
            tell(f"{path}: has no column of labels, so it is not used")
    if "train" not in entries and not options.for_model:
        raise InputError(f"{where}: no row of the part train: name some so")
    names, y, target = targets_of(
        columns,
        {part: [cells for _, cells in rows] for part, rows in entries.items()},
        asked.get("kind", ""),
        str(where),
        bool(options.for_model),
    )
    parts = {}
    for part, rows in entries.items():
        parts[part] = Files(tuple(file for file, _ in rows), str(where.parent)), y[part]
    name = short_name(where.parent.resolve() if where.name.lower() in ALONE else where)
    return gather(parts, names, name, str(where), options, target=target)


def _entries(
    table: Table, part: str, asked: Mapping[str, str]
) -> list[tuple[str, str, tuple[str, ...]]]:
    """(part, file, cells of its labels) of each row."""
    at_part = _find_column(table, asked.get("part", ""), PART_COLUMNS)
    parts = [part] * len(table.rows) if at_part is None else _parts(table, at_part, part)
    columns = [table.column(at) for at in _label_columns(table, asked)]
    cells = list(zip(*columns, strict=True))
    may_lack = asked.get("kind") == "labels"  # an image of none of them
    if missing := [n for n, row in enumerate(cells) if not (all(row) or may_lack)]:
        several = any(sign in cell for row in cells for cell in row for sign in SIGNS)
        raise InputError(
            f"{table.path}: {len(missing)} of {len(cells)} rows have no"
            f" {list_names(_label_names(table, asked))}, the first in line"
            f" {table.first + missing[0]}: fill them in or remove them"
            + (", or give ?kind=labels behind the name if they have none" if several else "")
        )
    files = map(_Finder(table.path), table.column(_file_column(table, asked.get("file", ""))))
    return list(zip(parts, files, cells, strict=True))


def _label_names(table: Table, asked: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(table.columns[at] for at in _label_columns(table, asked))


def _find_column(table: Table, asked: str, usual: Sequence[str]) -> int | None:
    """The column that is asked for, or the first of the usual names."""
    names = [name.lower() for name in table.columns]
    if asked:
        if asked.lower() not in names:
            known = list_names(table.columns, 20)
            raise InputError(f"{table.path}: no column {asked!r}: its columns are {known}")
        return names.index(asked.lower())
    return next((names.index(name) for name in usual if name in names), None)


def _file_column(table: Table, asked: str) -> int:
    """The column of file names: as it is called, or the first whose cells look like such."""
    if (found := _find_column(table, asked, FILE_COLUMNS)) is not None:
        return found
    # no usual name: by what stands in the cells, mostly files
    rows = table.rows[:LOOKED_AT]
    for at in range(len(table.columns)):
        if rows and sum(looks_like_file(row[at].strip()) for row in rows) > len(rows) / 2:
            return at
    known = list_names(table.columns, 20)
    raise NoFiles(
        f"{table.path}: no column of image files among {known}: call one file, or give ?file=COLUMN"
        " behind the name"
    )


def _label_columns(table: Table, asked: Mapping[str, str]) -> list[int]:
    """The columns that are asked for, one of a usual name, the only one, or all if they are
    numbers."""
    if words := asked.get("label", ""):
        named = [_find_column(table, word.strip(), ()) for word in words.split(",")]
        return [at for at in named if at is not None]
    file = _file_column(table, asked.get("file", ""))
    # columns that cannot be labels
    taken = {file, _find_column(table, asked.get("part", ""), PART_COLUMNS)}
    if (found := _find_column(table, "", LABEL_COLUMNS)) is not None and found not in taken:
        return [found]
    rest = [
        k for k, name in enumerate(table.columns) if k not in taken and name.lower() not in UNUSED
    ]
    if len(rest) == 1 or (
        rest and all(reads_as_number(row[k]) for row in table.rows for k in rest)
    ):
        return rest
    names = [table.columns[k] for k in rest]
    raise InputError(
        f"{table.path}: no column of labels"
        + (f", or one of {list_names(names, 20)}: give ?label=COLUMN" if names else ": add one")
    )


def _parts(table: Table, at: int, usual: str) -> list[str]:
    """The part of each row; an empty cell is of the usual one."""
    cells = table.column(at)
    found = [part_of(cell) if cell else usual for cell in cells]
    if unknown := sorted({cell for cell, part in zip(cells, found, strict=True) if not part}):
        raise InputError(
            f"{table.path}: {table.columns[at]} says {list_names(unknown)}: give train, valid or"
            " test, or ?part= to ignore another column"
        )
    return [part or usual for part in found]


class _Finder:
    """Where the files of a table are: beside it, in a folder called images, or like the table; and
    with which ending, where names have none."""

    def __init__(self, table: Path) -> None:
        root, stem = table.parent, table.stem
        folders = (root, root / "images", root / stem, root / f"{stem}_images", root / "train")
        self.folders = [folder for folder in folders if folder.is_dir()]
        self.last = (root, "")

    def __call__(self, name: str) -> str:
        """The path of a file; where there is none, as it would be beside the table."""
        # names without an ending are tried with each, in a fixed order
        endings = ("",) if looks_like_file(name) else ("", *sorted(SUFFIXES))
        for folder, ending in (self.last, *((f, e) for f in self.folders for e in endings)):
            path = os.path.join(folder, name + ending)
            if name and os.path.isfile(path):
                self.last = (folder, ending)  # the next one is most likely there too
                return path
        return os.path.join(self.folders[0], name) if self.folders else name
