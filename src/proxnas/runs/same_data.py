"""A run goes on with the data that it was begun with: their fingerprint stands in config.json."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from proxnas.common.config_file import FINGERPRINT
from proxnas.common.errors import AboutOptions, escape
from proxnas.common.launch import here
from proxnas.common.say import note
from proxnas.report.reading import read_object
from proxnas.runs.fingerprint import Fingerprint, differences
from proxnas.runs.folder import Run

RESTORE = ": restore the data, or use {force} to start anew"


class OnData(Protocol):
    """A search or a training."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Of its data; empty: nobody can tell."""


def check_data(run: Run, found: Fingerprint) -> None:
    """Writes the fingerprint into config.json, or finds that the data are those that the run was
    begun with."""
    path = run / "config.json"
    if not found or not (here().leads or path.exists()):
        return
    stored = run.read_json(path.name)
    # at the first start, or written by a version that kept none
    if FINGERPRINT not in stored:
        if not (run / "checkpoint.pt").exists():
            run.write_json(path.name, stored | {FINGERPRINT: dict(found)})
        elif here().leads:
            note(
                f"{path}: tells nothing of its data: whether they are still the same is not checked"
            )
    elif changed := differences(stored[FINGERPRINT], found):
        line = f"{path}: {_words(stored)} changed since this run was started ({_differ(changed)})"
        raise AboutOptions(escape(line) + RESTORE)


def check_searched(cell: str, data: str, run: Run, found: Fingerprint) -> None:
    """The data of a training against those of the search that found its cell, where both name the
    same DATA.

    Within a fit they must be the same; elsewhere another training may be meant, and one line says
    that they changed.
    """
    for place in (Path(cell), run / cell) if cell else ():
        stored = read_object(place / "config.json")
        if stored.get("command") != "search" or not _same_place(stored.get("data"), data):
            continue
        changed = differences(stored.get(FINGERPRINT), found)
        if not changed:
            return
        line = (
            f"{place / 'config.json'}: {_words(stored)} changed since this search"
            f" ({_differ(changed)})"
        )
        if _in_one_fit(place, run.folder):
            raise AboutOptions(escape(line) + RESTORE)
        if here().leads:
            note(f"warning: {line}: its cell is trained on other data")
        return


def _same_place(one: Any, other: str) -> bool:
    return isinstance(one, str) and (
        one == other or os.path.realpath(one) == os.path.realpath(other)
    )


def _in_one_fit(search: Path, train: Path) -> bool:
    around = train.parent
    return read_object(around / "config.json").get("command") == "fit" and os.path.realpath(
        search
    ) == os.path.realpath(around / "search")


def _words(stored: dict[str, Any]) -> str:
    name = stored.get("data")
    if isinstance(name, str) and name.isprintable():
        return f"the data {name!r} have"
    return "the data have"


def _differ(changed: list[str]) -> str:
    return f"other {' and '.join(changed)}"
