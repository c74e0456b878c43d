"""Progressive search (Liu, Zoph, Neumann, Shlens, Hua, Li, Fei-Fei, Yuille, Huang, Murphy,
'Progressive Neural Architecture Search', ECCV 2018).

From simple cells to complex ones, one node more at a level:

    level 1   all cells of one node are evaluated (as many as the level may), the surrogate is
              fitted to their scores
    level b   each of the K best cells of the level before is extended by every node that is
              possible; the surrogate ranks the extensions, the best are evaluated, the surrogate is
              fitted anew to everything seen

A cell of fewer nodes than the space has is one whose other nodes only pass on what there is
(`skip_connect` or `identity` of the first states; where a node keeps all edges, of the state before
it, and `none` besides). Nodes of normal and reduction cells take turns. Every level may evaluate an
equal part of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch

from proxnas.core.groups import NONE, SKIP
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells, NodePicks, Place
from proxnas.methods.options import CELLS, SamplesCells
from proxnas.methods.sampling import Sampling
from proxnas.methods.strategy import InRounds
from proxnas.methods.surrogate import SurrogateOptions, features, fit

Partial = Cell
"""The nodes of a cell so far, in the order of levels."""


@dataclass(frozen=True)
class PnasOptions(SamplesCells):
    """From simple cells to complex ones, ranked by a surrogate."""

    public: ClassVar[str] = "PNAS"

    evaluations: Annotated[int, CELLS] = 24
    """Cells to evaluate, each trained for an equal share of the epochs."""


@dataclass(frozen=True)
class Constants:
    """The paper's, where the evaluations allow."""

    parents: int = 256
    """K: most cells of a level that are extended."""
    ranked: int = 20_000
    """Most extensions that are ranked, drawn from all where there are more."""
    surrogate: SurrogateOptions = field(default_factory=SurrogateOptions)


class Pnas(InRounds):
    """A round is a level: of all cells of as many nodes."""

    def __init__(
        self, cells: Cells, evaluations: int, options: Constants, generator: torch.Generator
    ) -> None:
        super().__init__(evaluations, generator)
        self.cells, self.options = cells, options
        self.order = _levels(cells)
        self.places = [cells.places[n] for n in self.order]
        self.widths = {
            name: (max(map(len, g.nodes)), len(g.candidates)) for name, g in cells.groups.items()
        }

    def ask(self) -> Cell:
        """The next cell of the level; after the last level more of it, and when all are known any
        cell."""
        if not self.waiting:
            self.round = min(self.round + 1, len(self.order))
            self.waiting = self._next_level()
        if not self.waiting:
            drawn = self.cells.draw(self.generator)
            self.asked.append(tuple(drawn[n] for n in self.order))
            return drawn
        self.asked.append(self.waiting.pop(0))
        return self.complete(self.asked[-1])

    def _next_level(self) -> list[Partial]:
        # an equal part of what is left for this level and each one after it
        most = max(1, self.left // (len(self.order) - self.round + 1))
        known = {partial for partial, _ in self.seen}
        extended = [partial for partial in self._extensions() if partial not in known]
        if self.round == 1:
            order = torch.randperm(len(extended), generator=self.generator)
            return [extended[i] for i in order[:most].tolist()]
        return self.ranked(extended)[:most]

    def _extensions(self) -> list[Partial]:
        """Every node after each of the best cells of the level before; a part of them if there are
        very many."""
        options = self.places[self.round - 1].options()
        before = [
            (partial, score) for partial, score in self.seen if len(partial) == self.round - 1
        ]
        best = sorted(before, key=lambda pair: -pair[1])[: self.options.parents]
        parents = [partial for partial, _ in best] or [()]
        # pair i has parent i // len(options) and option i % len(options): none is made in vain
        number = len(parents) * len(options)
        chosen: Sequence[int] = range(number)
        if number > self.options.ranked:
            chosen = torch.randperm(number, generator=self.generator)[
                : self.options.ranked
            ].tolist()
        return [(*parents[i // len(options)], options[i % len(options)]) for i in chosen]

    def ranked(self, partials: list[Partial]) -> list[Partial]:
        """The cells by what the surrogate promises, the best first."""
        if not partials:
            return []
        x = self._described([p for p, _ in self.seen])
        y = torch.tensor([score for _, score in self.seen])
        predicted = fit(x, y, self.options.surrogate, self.generator)(self._described(partials))
        return [partials[i] for i in predicted.argsort(descending=True, stable=True).tolist()]

    def _described(self, partials: list[Partial]) -> torch.Tensor:
        return torch.tensor([features(self.places[: len(p)], p, self.widths) for p in partials])

    def complete(self, partial: Partial) -> Cell:
        """The cell of the space in which all other nodes pass on what there is."""
        # a partial cell is shorter than the order of levels
        nodes = dict(zip(self.order, partial, strict=False))
        return tuple(
            nodes.get(n) or self._passing(place) for n, place in enumerate(self.cells.places)
        )

    def _passing(self, place: Place) -> NodePicks:
        group = self.cells.groups[place.group]
        named = {name: k for k, name in enumerate(group.candidates)}
        passes = next(
            (named[name] for name in (SKIP, "identity") if name in named), place.usable[0]
        )
        if group.max_inputs is not None:
            return tuple((e, passes) for e in place.rows[: place.inputs])
        # all edges are kept: only the last one, from the state just before, has anything on it
        return (*((e, named.get(NONE, passes)) for e in place.rows[:-1]), (place.rows[-1], passes))


def _levels(cells: Cells) -> list[int]:
    """The nodes in the order in which they are added: the first of every group, the second of every
    group, ..."""
    starts: dict[str, int] = {}
    for n, place in enumerate(cells.places):
        starts.setdefault(place.group, n)
    # by the place within the group, then by group
    return sorted(range(len(cells.places)), key=lambda n: (n - starts[cells.places[n].group], n))


class PnasSearch(Sampling):
    """Sampling by that strategy."""

    Options = PnasOptions

    def __init__(self, setup: Setup[PnasOptions]) -> None:
        cells, generator = Cells(setup.net.groups), torch.Generator().manual_seed(setup.seed)
        super().__init__(setup, Pnas(cells, setup.options.evaluations, Constants(), generator))
