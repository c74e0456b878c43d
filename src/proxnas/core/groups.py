"""What the matrices A stand for: groups of rows (edges) over the same candidates.

Shapes: E edges (rows), K candidates; A and A_bar are (E, K) for each group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NONE = "none"
"""The candidate that is no connection: never run, its score is 0."""
SKIP = "skip_connect"
"""The candidate that is its source."""


class Row(NamedTuple):
    """The row of A that a Choice is ruled by."""

    group: str
    edge: int


class Holder(NamedTuple):
    """A candidate that other Choices stand inside of."""

    group: str
    k: int


@dataclass(frozen=True)
class Group:
    """What a matrix A stands for: its columns, and which rows enter which node."""

    candidates: tuple[str, ...]
    nodes: tuple[tuple[int, ...], ...] = ((0,),)
    max_inputs: int | None = None
    """How many edges a node keeps; None: all of them, and a node may stay empty."""
    max_skip: int | None = None
    """How many skip connections a cell may have; None: any number."""
    wired: bool = False
    """Whether rows are connections, of node n + 1 to each before it, and what has a size are the
    nodes that have any connection."""
    inside: Holder | None = None
    """The candidate, of a Choice in another group, that this is decided inside of; None: none, or
    several."""

    @property
    def shape(self) -> tuple[int, int]:
        """(edges, candidates)."""
        # every row enters exactly one node
        return sum(len(rows) for rows in self.nodes), len(self.candidates)
