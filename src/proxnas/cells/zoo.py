"""The zoo: published cells, cells found with proxnas, and networks made by hand, as data.

zoo.json holds an object each: `params` of the network that `train --protocol cifar` would build for
ten classes (36 channels, 20 cells, no auxiliary tower; recurrent: 850 units, 10,000 words),
`published` (where the cell and its figures come from; errors and accuracies in percent, params as
numbers), `notes`, and `genotype` as a run's genotype.json has it: the cells, or the name of a
network made by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from proxnas.cells.designs import Architecture, Design, from_json
from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError, unknown

PREFIX = "zoo:"
"""Before a name it says that a cell of the zoo is meant, where a file could be given too."""
LSTM = "LSTM"
"""zoo:LSTM is no cell of a genotype: an LSTM of the same size, which `train` takes as the design by
hand to beat."""


@dataclass(frozen=True)
class ZooEntry:
    """A cell or network of the zoo and what is known of it."""

    name: str
    genotype: Architecture
    params: int | None
    published: Mapping[str, Any]
    notes: str = ""

    def summary(self) -> dict[str, Any]:
        """The entry as JSON, without its genotype."""
        head = {"name": self.name, "kind": self.genotype.kind, "params": self.params}
        return {**head, "published": dict(self.published), "notes": self.notes}


@cache
def entries() -> Mapping[str, ZooEntry]:
    """All of them by name."""
    table = json.loads(files("proxnas.cells").joinpath("zoo.json").read_text(encoding="utf-8"))
    return {name: _entry(name, **fields) for name, fields in table.items()}


def _entry(
    name: str,
    genotype: dict[str, Any],
    params: int | None,
    published: dict[str, Any],
    notes: str = "",
) -> ZooEntry:
    return ZooEntry(name, from_json(json.dumps(genotype)), params, published, notes)


def zoo_entry(name: str) -> ZooEntry:
    """The entry of that name, with or without `zoo:`; upper and lower case are alike."""
    short = name.removeprefix(PREFIX)
    if short.casefold() == LSTM.casefold():
        raise InputError(
            f"{PREFIX}{LSTM} is a network but has no cell to show or search: train it on a text "
            f"(proxnas train {PREFIX}{LSTM} DATA)"
        )
    names = {known.casefold(): known for known in entries()}
    if short.casefold() not in names:
        raise unknown("cell of the zoo", short, entries())
    return entries()[names[short.casefold()]]


def find_cell(name: str) -> Genotype:
    """The cell of that name."""
    found = zoo_entry(name).genotype
    if isinstance(found, Design):
        raise InputError(
            f"{PREFIX}{found.name} is a network made by hand, it has no cell to show or search:"
            f" train it (proxnas train {PREFIX}{found.name} DATA)"
        )
    return found
