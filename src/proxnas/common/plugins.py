"""What packages of others add: entry points, by group and name, resolved when they are used.

    [project.entry-points."proxnas.spaces"]
    mine = "my_package:my_space"

The groups are proxnas.methods, .spaces, .operations, .data, .loggers and .domains.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from proxnas.common.errors import InputError, in_one_line


@cache
def of_others(group: str) -> dict[str, str]:
    """Name -> 'module:attribute' of all that is installed for a group."""
    # asked once a process: it reads the metadata of all that is installed
    return {point.name: point.value for point in entry_points(group=f"proxnas.{group}")}


def resolve(what: str, name: str, target: str) -> Any:
    """The object at 'module:attribute'; an InputError that names what it is for if it cannot be
    had."""
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        reason = in_one_line(error)
        raise InputError(f"{what} {name}: {target} cannot be loaded: {reason}") from error
