"""What is known of a search space before it is built. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SpaceTraits:
    """The respects in which a space may be different."""

    kind: str = "cnn"
    """Of its genotypes."""
    parted: bool = True
    """Whether candidates can read a part of the channels."""
    reduces: bool = True
    """Whether it has a reduction cell beside the normal one."""
    refined_by: Literal["", "neighbours", "wirings"] = ""
    """What short trainings after a search compare with the found cell by themselves: its
    neighbours, where they are few and one is mostly better (docs/results.md), or the cell wired
    otherwise, where nodes choose their inputs (docs/signals.md)."""
    has_tables: bool = False
    """Whether there are tables of its trained cells."""
