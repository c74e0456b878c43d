"""Single path one-shot (Guo, Zhang, Mu, Heng, Liu, Wei, Sun, 'Single Path One-Shot Neural
Architecture Search with Uniform Sampling', ECCV 2020), with the strict fairness of FairNAS (Chu,
Zhang, Xu, ICCV 2021) as an option.

Training, every step:

    uniform   one uniformly random cell a;  w <- w - dL(N(a, w))/dw
    fair      for every row a random order of its K candidates; K cells, the j-th of which has the
              j-th candidate of every order;  w <- w - sum_j dL(N(a_j, w))/dw: every candidate of a
              row is trained once in every step

Search, after the last step, by the trained w (Algorithm 1 of the paper):

    P_0 = P random cells
    for T generations:  evaluate the cells of P_i;  Top = the k best of all so far;
                        P_(i+1) = P/2 crossovers of two of Top, and P/2 mutations of one of Top
    return the best

A crossover takes every decision from either parent; a mutation redraws every decision with chance
0.1. No cell is evaluated twice. The search is part of the last step, so its time is counted.

Here nodes of a cell choose their inputs too: in a fair step they are drawn once for all K cells, so
that of these rows every candidate is trained once. Cells beyond a limit are brought within it
(theirs are drawn again). As in the paper the limit rules the search and not the training, which
sees all of the space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from proxnas.common.options import COUNT
from proxnas.common.types import Batch, Matrices
from proxnas.core.selection import changed as changes_between
from proxnas.methods.base import Setup, random_cell, weight_step
from proxnas.methods.cells import Cell, Cells, NodePicks, Place, uniform
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import CountsSkips, TrainsPartly, Traits
from proxnas.methods.random_ws import DrawsCells
from proxnas.runs.metrics import Metrics, Validation


@dataclass(frozen=True)
class SposOptions(TrainsPartly, CountsSkips):
    """Uniformly random paths train the shared weights; evolution on them chooses at the end."""

    public: ClassVar[str] = "SPOS"
    traits: ClassVar[Traits] = Traits(comes_to_rest=False)
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0}

    paths: Literal["uniform", "fair"] = "uniform"
    """One random cell a step, or as many as a row has candidates, each of which is in one of them
    (FairNAS)."""
    population: Annotated[int, COUNT] = 20
    """Cells of a generation, judged by the shared weights at the end (published: 50)."""
    generations: Annotated[int, COUNT] = 5
    """Generations (published: 20)."""


@dataclass(frozen=True)
class Constants:
    """The paper's; how cells are judged is as for random search with shared weights."""

    top: int = 10
    """k: best cells that parents are drawn from."""
    mutation: float = 0.1
    """Chance of a decision to be redrawn."""
    tries: int = 10
    """Children that are drawn to find one that was not evaluated yet."""
    batches: int = 10
    """Batches of the half for A that all cells are judged on."""
    finalists: int = 10
    """Best cells that are judged on the whole half for A."""


class Member(NamedTuple):
    """A cell and how good it was by the shared weights."""

    cell: Cell
    score: float
    loss: float


class Breeding:
    """Crossover and mutation of cells."""

    def __init__(self, cells: Cells, mutation: float, generator: torch.Generator) -> None:
        self.cells, self.mutation, self.generator = cells, mutation, generator

    def crossed(self, one: Cell, other: Cell) -> Cell:
        """Every decision of either parent: a candidate where a node keeps all edges, else a
        node."""
        nodes = []
        for place, a, b in zip(self.cells.places, one, other, strict=True):
            if place.inputs == len(place.rows):
                pairs = zip(a, b, strict=True)
                nodes.append(tuple(x if self._chance(0.5) else y for x, y in pairs))
            else:
                # the inputs of a node must differ, so its picks stay together
                nodes.append(a if self._chance(0.5) else b)
        return tuple(nodes)

    def mutated(self, cell: Cell) -> Cell:
        """Every decision redrawn by chance."""
        pairs = zip(self.cells.places, cell, strict=True)
        return tuple(self._mutated_node(place, picks) for place, picks in pairs)

    def _mutated_node(self, place: Place, picks: NodePicks) -> NodePicks:
        """Candidates and, where there are others, inputs."""
        found: dict[int, int] = {}
        taken = {e for e, _ in picks}
        for e, k in picks:
            # its own edge is among them: a redrawn decision may come out as it was
            free = [row for row in place.rows if row == e or row not in taken]
            if self._chance(self.mutation):
                taken.discard(e)
                e = free[uniform(len(free), self.generator)]
                taken.add(e)
            if self._chance(self.mutation):
                k = place.usable[uniform(len(place.usable), self.generator)]
            found[e] = k
        return tuple(sorted(found.items()))

    def _chance(self, p: float) -> bool:
        return float(torch.rand((), generator=self.generator)) < p


class Spos(DrawsCells):
    """Shared weights trained on random paths; the choice falls at the end."""

    Options = SposOptions

    def __init__(self, setup: Setup[SposOptions], constants: Constants | None = None) -> None:
        self.constants, self.options = constants or Constants(), setup.options
        self.net, self.train, self.clock = setup.net, setup.train, setup.clock
        self.evaluate, self.score, self.budget = setup.evaluate, setup.score, setup.budget
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.cells = Cells(self.net.groups)
        self.breeding = Breeding(self.cells, self.constants.mutation, self.generator)
        self.w_optimizer = WeightOptimizer(self.net, setup.weights, len(self.train))
        self.steps = setup.weights.epochs * len(self.train)
        self.drawn = random_cell(self.net, self.generator, None)
        self.best = self.cells.A_bar(self._within(self.cells.of(self.drawn)))

    def step(self) -> Metrics:
        """One weight step on a random cell, or on those of a fair step; after the last one the
        search."""
        batch, before = self.train.next(), self.drawn
        paths = self._fair_paths() if self.options.paths == "fair" else [self._draw()]
        loss, right = self.train_paths(paths, batch)
        self.drawn = paths[-1]
        if self.w_optimizer.t == self.steps:
            self.choose_now()
        return Metrics(loss, right, len(batch.y), changes_between(before, self.drawn))

    def train_paths(self, paths: list[Matrices], batch: Batch) -> tuple[Tensor, Tensor]:
        """(mean loss, mean right answers) of the cells on a batch; w moves once, by the sum of
        their gradients."""
        figures = []
        for path in paths:
            self.net.use(path)
            last = path is paths[-1]
            # gradients add up, and w moves with the last: by a sum, not by a mean
            figures.append(weight_step(self.net, batch, self.w_optimizer, self.clock, last=last))
        losses, rights = zip(*figures, strict=True)
        right = torch.stack(rights).to(losses[0].dtype).mean()
        return torch.stack(losses).mean(), right

    def _draw(self) -> Matrices:
        return random_cell(self.net, self.generator, None)

    def _fair_paths(self) -> list[Matrices]:
        """As many cells as the row with most candidates has; shorter rows begin another order when
        they are through."""
        number = max(len(place.usable) for place in self.cells.places)
        nodes: list[list[NodePicks]] = []
        for place in self.cells.places:
            rows = self._permuted(place.rows)[: place.inputs]
            # sorted, because a cell has its picks in the order of rows
            orders = {e: self._order(place, number) for e in sorted(rows)}
            # of the node the picks of all K cells: in the j-th the j-th candidate of each order
            nodes.append([tuple((e, orders[e][j]) for e in orders) for j in range(number)])
        return [self.cells.A_bar(tuple(node[j] for node in nodes)) for j in range(number)]

    def _order(self, place: Place, number: int) -> list[int]:
        order: list[int] = []
        while len(order) < number:
            order += self._permuted(place.usable)
        return order[:number]

    def _permuted(self, items: tuple[int, ...]) -> list[int]:
        order = torch.randperm(len(items), generator=self.generator).tolist()
        return [items[i] for i in order]

    def choose_now(self) -> None:
        with self.clock("arch"):
            self.best = self.cells.A_bar(self.evolve())

    def evolve(self) -> Cell:
        """Algorithm 1 of the paper on the first batches of the half for A; then the best few of all
        that it saw on the whole half."""
        members: dict[Cell, Member] = {}
        # where nothing that was drawn is allowed, at least the cell that is there
        children = self._children([], members) or [self.cells.of(self.best)]
        for _ in range(self.options.generations):
            for cell in children:
                members[cell] = self.judge(cell, self.constants.batches)
            ranked = sorted(members.values(), key=_rank)
            children = self._children(ranked[: self.constants.top], members)
        finalists = sorted(members.values(), key=_rank)[: self.constants.finalists]
        return min((self.judge(member.cell, None) for member in finalists), key=_rank).cell

    def judge(self, cell: Cell, batches: int | None) -> Member:
        """A cell by the shared weights."""
        self.net.use(self.cells.A_bar(cell))
        measured: Validation = self.evaluate(batches)
        return Member(cell, self.score(measured), measured.loss)

    def _children(self, top: list[Member], known: Mapping[Cell, Member]) -> list[Cell]:
        """The next generation, half of it crossovers and half mutations; of nobody: random cells.
        Fewer where no others are found."""
        P = self.options.population
        children: dict[Cell, None] = {}
        for n in range(P):
            for _ in range(self.constants.tries):
                cell = self._within(self._child(top, crossing=n < P // 2))
                if cell not in known and cell not in children and self.cells.allows(cell):
                    children[cell] = None
                    break
        return list(children)

    def _child(self, top: list[Member], crossing: bool) -> Cell:
        if not top:
            return self.cells.draw(self.generator)
        if crossing:
            return self.breeding.crossed(self._parent(top), self._parent(top))
        return self.breeding.mutated(self._parent(top))

    def _parent(self, top: list[Member]) -> Cell:
        return top[uniform(len(top), self.generator)].cell

    def _within(self, cell: Cell) -> Cell:
        return self.cells.within(self.budget, cell)

    def occasional(self, steps: int, epochs: int) -> tuple[Callable[[], object], float]:
        """Judging one cell on a batch, and how often that falls to a step; the finalists are not
        counted."""
        judged = self.options.population * self.options.generations
        return (
            lambda: self.judge(self._within(self.cells.draw(self.generator)), 1),
            judged * self.constants.batches / steps / epochs,
        )


def _rank(member: Member) -> tuple[float, float]:
    """The best first; of equal scores that of the smaller loss."""
    return -member.score, member.loss
