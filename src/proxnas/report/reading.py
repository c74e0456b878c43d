"""Run folders as they are found: finished, under way, stopped or damaged; read_genotype, never
written.

Nothing here raises because of what a file holds: a report of half a run is worth more than none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.common.errors import InputError
from proxnas.common.stored import (
    CONFIG,
    MOST_LINES_BYTES,
    RESULT,
    ROW,
    open_regular,
    parse_json,
    read_bytes,
    read_json,
    sound,
)

TAIL = 65_536
DEPTH = 2  # a comparison holds runs, a run of `fit` holds search and train

StoredRow = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """What a run folder holds; what is missing is empty."""

    folder: Path
    name: str
    config: dict[str, Any]
    environment: dict[str, Any]
    space: dict[str, Any]
    """What the rows and columns of A stand for."""
    rows: list[StoredRow]
    """One an epoch."""
    genotype: Genotype | None
    result: dict[str, Any]
    running: bool
    test: dict[str, Any] = field(default_factory=dict)
    """What a test tells besides its figure: test.json."""

    @property
    def status(self) -> str:
        """finished, running or stopped."""
        return status(bool(self.result), self.running)

    @property
    def command(self) -> str:
        """search, train, fit, ...; empty if nobody has said."""
        return str(self.config.get("command", ""))


def status(finished: bool, running: bool) -> str:
    """One word on how far a run is."""
    if finished:
        return "finished"
    return "running" if running else "stopped"


def read_run(folder: Path, name: str = "") -> Record:
    """The run in a folder, as it stands now."""
    return Record(
        folder=folder,
        name=name or folder.resolve().name,
        config=read_config(folder),
        environment=read_object(folder / "environment.json"),
        space=read_object(folder / "space.json"),
        rows=read_rows(folder / "metrics.jsonl"),
        genotype=_genotype(folder),
        result=read_result(folder),
        running=in_use(folder),
        test=read_object(folder / "test.json"),
    )


def run_folders(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """The run folders at and below a folder, each before its parts."""
    if (folder / "config.json").is_file():
        yield folder
    if depth:
        for child in children(folder):
            if child.name == "evaluations" and (folder / "config.json").is_file():
                continue  # parts of the search, perhaps thousands
            yield from run_folders(child, depth - 1)


def children(folder: Path) -> list[Path]:
    """The folders inside, seed-2 before seed-10; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
            ]
    except OSError:
        return []
    return [folder / name for name in sorted(names, key=_natural)]


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]{1,9})", name)
    ]


def find_runs(folder: str | Path) -> list[Record]:
    """The runs at and below a folder; an InputError that says what to give if there is none."""
    top = Path(folder)
    if not top.is_dir():
        raise InputError(
            f"{folder}: no such folder: give the folder of a run (proxnas runs lists them)"
        )
    found = list(run_folders(top))
    if not found:
        raise InputError(
            f"{folder}: holds no run (no config.json): give the folder of a run (proxnas runs lists"
            " them)"
        )
    return [
        read_run(path, "/".join([top.resolve().name, *path.relative_to(top).parts]))
        for path in found
    ]


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json says, as far as it can be."""
    return sound(read_object(folder / "config.json"), CONFIG)


def read_result(folder: Path) -> dict[str, Any]:
    """What result.json says, as far as it can be."""
    return sound(read_object(folder / "result.json"), RESULT)


def read_rows(path: Path) -> list[StoredRow]:
    """The whole lines of metrics.jsonl in order; a torn line, or one that is no row, is left
    out."""
    try:
        lines = read_bytes(path, MOST_LINES_BYTES).splitlines(keepends=True)
    except OSError:
        return []
    # a line without its end was being written, or was torn by a crash
    return [row for line in lines if line.endswith(b"\n") and (row := _row(line))]


def last_row(path: Path) -> StoredRow:
    """The last whole line of metrics.jsonl, without reading what comes before it; empty if there is
    none."""
    size = TAIL
    try:
        with open_regular(path) as file:
            end = file.seek(0, os.SEEK_END)
            while True:
                file.seek(max(0, end - size))
                lines = file.read(size).splitlines(keepends=True)
                if size < end:
                    lines = lines[1:]  # may have begun before
                row = _last_whole(lines)
                if row or size >= min(end, MOST_LINES_BYTES):
                    return row
                # rows may be long: A of a large space is in them
                size *= 4
    except OSError:
        return {}


def _last_whole(lines: list[bytes]) -> StoredRow:
    for line in reversed(lines):
        if line.endswith(b"\n") and (row := _row(line)):
            return row
    return {}


def _row(line: bytes) -> StoredRow:
    try:
        row = parse_json(line)
    except ValueError:
        return {}
    row = sound(row, ROW) if isinstance(row, dict) else {}
    return row if "epoch" in row else {}


def _genotype(folder: Path) -> Genotype | None:
    try:
        return read_genotype(folder)
    except InputError:
        return None


def in_use(folder: Path) -> bool:
    """Whether a process holds the folder's lock; looking takes a shared lock for an instant, and
    never waits."""
    import fcntl  # not on every system, and most of a report needs it not

    try:
        with open_regular(folder / ".lock") as file:
            # shared, so that two reports do not take each other for a run
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # none, or a file system without locks
        return False
    return False
