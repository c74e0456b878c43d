"""Pooling: candidates share a part of their scores with the same candidates on other edges.

Why: what a few hundred steps tell of a candidate on one edge is mostly noise, and what it is worth
is much the same on all edges of a cell. Their mean has less noise; the part that stays the edge's
own lets places differ (docs/signals.md).

E edges, K candidates; scores are (E, K) for each group.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxnas.common.types import Matrices
from proxnas.core.groups import Group


class Pooling:
    """What candidates of an edge have beyond each other, mixed with the mean over the edges."""

    def __init__(self, share: float, groups: Mapping[str, Group]) -> None:
        """`share`: of the mean."""
        self.share = share
        self.pooled = [name for name, group in groups.items() if is_cell(group)]

    def mix(self, scores: Matrices) -> Matrices:
        """The scores of each group, of cells in part those of all edges."""
        mixed = dict(scores)
        for name in self.pooled:
            # what an edge has as a whole stays its own: nodes choose among edges by it
            level = scores[name].mean(1, keepdim=True)
            own = scores[name] - level
            mixed[name] = level + (1 - self.share) * own + self.share * own.mean(0, keepdim=True)
        return mixed


def is_cell(group: Group) -> bool:
    """Whether rows are edges of a cell that is repeated, as blocks at their places in a chain are
    not; nor can connections stand for each other."""
    return not group.wired and any(len(rows) > 1 for rows in group.nodes)
