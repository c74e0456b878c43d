"""What is known of a search space before it is built. No torch here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpaceTraits:
    """The respects in which a space may be different."""

    kind: str = "cnn"
    """Of its genotypes."""
    parted: bool = True
    """Whether candidates can read a part of the channels."""
    reduces: bool = True
    """Whether it has a reduction cell beside the normal one."""
    few_neighbours: bool = False
    """Whether a found cell has few neighbours, one of which is mostly better (docs/results.md)."""
    has_tables: bool = False
    """Whether there are tables of its trained cells."""
