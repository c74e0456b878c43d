"""The search spaces of all domains by name, resolved late so that listing them needs no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from proxnas.cells.kinds import CUSTOM
from proxnas.common.errors import OptionError, unknown
from proxnas.common.plugins import resolve
from proxnas.domains.domain import every_space, of_space

if TYPE_CHECKING:
    from proxnas.core.space import Space
    from proxnas.domains.search_options import SpaceTraits

SPACES: dict[str, str] = every_space()
"""Name -> 'module:what makes it'."""


def traits_of(name: str) -> SpaceTraits:
    """What is known of a space before it is built."""
    return of_space(name).traits(name)


def find(name: str) -> Space[Any]:
    """The space of that name."""
    if name == CUSTOM:
        advice = "is a module of your own, which is searched in Python by proxnas.search"
        raise OptionError("space", name, advice)
    if name not in SPACES:
        raise unknown("space", name, SPACES)
    space: Space[Any] = resolve("space", name, SPACES[name])()
    return space


def wired_as(space: Space[Any], wiring: str) -> Space[Any]:
    """The space in which nodes read what `wiring` says; auto: as long as nobody knows better, any
    state before them."""
    if wiring != "inputs":
        return space
    wired: Any = space
    found: Space[Any] = replace(wired, inputs_only=True)
    return found
