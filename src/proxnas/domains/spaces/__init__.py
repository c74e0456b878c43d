"""The search spaces by name, resolved late so that listing them needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from proxnas.cells.genotype import CUSTOM
from proxnas.common.errors import InputError, unknown

if TYPE_CHECKING:
    from proxnas.core.space import Space

SPACES: dict[str, str] = {
    "darts7": "proxnas.domains.images.spaces.cnn:darts7",
    "darts8": "proxnas.domains.images.spaces.cnn:darts8",
    "nasp12": "proxnas.domains.images.spaces.cnn:nasp12",
    "nasp12-full": "proxnas.domains.images.spaces.cnn:nasp12_full",
    "nasbench201": "proxnas.domains.images.spaces.nasbench201:NasBench201",
    "resnet": "proxnas.domains.images.spaces.resnet:ResNet",
    "enas5": "proxnas.domains.images.spaces.enas5:Enas5",
    "rnn": "proxnas.domains.text.space:RecurrentSpace",
}


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
