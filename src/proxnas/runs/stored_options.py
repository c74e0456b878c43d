"""The options of a run in its folder: config.json, and whether a call asks for the same run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from proxnas import __version__
from proxnas.common.config_file import check_values
from proxnas.common.errors import AboutOptions, escape
from proxnas.common.options import Options, flatten
from proxnas.common.stored import read_json, unreadable
from proxnas.runs.options import MAY_CHANGE, NOT_STORED

AnyOptions = TypeVar("AnyOptions", bound=Options)


def storable(options: Options) -> dict[str, Any]:
    """What config.json keeps: everything needed to repeat the run."""
    return {name: value for name, value in flatten(options).items() if name not in NOT_STORED}


def read_stored(folder: Path, command: str, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The values in a run folder: of that command, and of a version that does the same."""
    path = folder / "config.json"
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, "use {force} to run anew") from error
    if not isinstance(found, dict) or "proxnas" not in found:
        raise AboutOptions(f"{escape(path)}: not written by proxnas: choose another {{run}}")
    writer, version = str(found.get("command"))[:40], str(found.get("proxnas"))[:40]
    if writer != command:
        line = f"{folder}: holds a run of `proxnas {writer}`, not of {command}"
        raise AboutOptions(escape(line) + ": choose another {run}")
    if _release(version) != _release(__version__):
        line = (
            f"{path}: written by proxnas {version}, which may do otherwise than this one"
            f" ({__version__}): go on with that version, "
        )
        raise AboutOptions(escape(line) + "or use {force} to run anew")
    return check_values(path, found, hints)


def check_complete(folder: Path, values: Mapping[str, Any], options: Options) -> None:
    """An InputError unless every value is there: a default in place of one that is missing would go
    on with another run."""
    for name in storable(options):
        if name not in values:
            raise AboutOptions(
                f"{escape(folder / 'config.json')}: {name} is missing, with which the run was"
                " begun: restore the file, or use {force} to run anew"
            )


def stored(folder: Path, command: str, cls: type[AnyOptions]) -> AnyOptions:
    """The options in a run folder."""
    values = read_stored(folder, command, cls.all_hints())
    options = cls.from_values(values)
    check_complete(folder, values, options)
    return options


def _release(version: str) -> str:
    """The part of a version within which a run goes on as it began."""
    return ".".join(version.split(".")[:2])


def check_same(given: Options, known: Options, where: Path) -> None:
    """An InputError unless both would be the same run."""
    new, old = flatten(given), flatten(known)
    for name in ("space", "method"):  # which others there are depends on them
        if new.get(name) != old.get(name):
            raise contradiction(name, new.get(name), old.get(name), where)
    for name, value in old.items():
        if name not in NOT_STORED | MAY_CHANGE and new[name] != value:
            raise contradiction(name, new[name], value, where)


def contradiction(name: str, new: object, old: object, where: Path) -> AboutOptions:
    """The error for an option that a run was begun with otherwise."""
    return AboutOptions(
        f"{{{name}}} {escape(new)}: the run in {escape(where)} was started with {escape(old)};"
        " leave the flag out to resume, or choose another {run}"
    )
