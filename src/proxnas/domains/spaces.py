"""The search spaces of all domains by name, resolved late so that listing them needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from proxnas.cells.genotype import CUSTOM
from proxnas.common.errors import InputError, unknown
from proxnas.domains.domain import every_space

if TYPE_CHECKING:
    from proxnas.core.space import Space

SPACES: dict[str, str] = every_space()
"""Name -> 'module:what makes it'."""


def find(name: str) -> Space[Any]:
    """The space of that name."""
    if name == CUSTOM:
        raise InputError(
            f"--space {name}: is a module of your own, which is searched in Python by"
            " proxnas.search"
        )
    if name not in SPACES:
        raise unknown("space", name, SPACES)
    module, factory = SPACES[name].split(":")
    space: Space[Any] = getattr(import_module(module), factory)()
    return space
