"""What the parts of a data set are called, in folders, files and splits of the hub."""

from __future__ import annotations

from collections.abc import Iterable

from proxnas.common.errors import InputError

NAMES = {
    "train": ("train", "training"),
    "valid": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
"""Part -> its usual names; upper and lower case are alike."""


def part_of(name: str) -> str | None:
    """The part that a name stands for; None: it is no name of a part."""
    return next((part for part, names in NAMES.items() if name.casefold() in names), None)


def by_part(names: Iterable[str], where: str) -> dict[str, str]:
    """Part -> the one of the names that stands for it; two names for one part are refused."""
    found: dict[str, str] = {}
    for name in names:
        if (part := part_of(name)) is None:
            continue
        if part in found:
            raise InputError(
                f"{where}: both {found[part]} and {name} are in it, two names for one part: keep"
                " one of them"
            )
        found[part] = name
    # in the order train, valid, test
    return {part: found[part] for part in NAMES if part in found}
