"""The recurrent space of DARTS and of the paper: a first state and eight nodes, each a highway from
one earlier state.

A node has one weight, whatever it reads, so the candidates of a row are the activation functions; a
row is an earlier state. At a discrete A_bar the recurrence runs through the selected ones only.
Scoring then has no recurrence at all:

    dF / da[(i,j),k] = < g_j , s_i + sigmoid(c) * (f_k(h) - s_i) >,    (c, h) = s_i W_j

for all time steps at once, g_j taken before the node's batch norm.

Shapes: T time steps, B sequences of a batch, H units, J nodes with the first; E rows, K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import RECURRENT
from proxnas.cells.parts import Cell
from proxnas.common.types import Matrices
from proxnas.core.choice import Call, OwnCall, Route, Share
from proxnas.core.groups import Group, Row
from proxnas.core.scoring import inner
from proxnas.core.space import selected_edges
from proxnas.domains.text.language import NOTHING, Dropouts, Hidden, LanguageModel, LanguageSize
from proxnas.domains.text.network import FIRST, CellWeights, recurrent_network
from proxnas.domains.text.recurrence import (
    ACTIVATIONS,
    CellPlan,
    Highway,
    Trace,
    normalise_batch,
    unroll,
)
from proxnas.domains.text.spaces import SPACES

NODES = 8
SOURCES = [i for n in range(NODES) for i in range(n + 1)]
"""The state that each of the 36 rows reads: 0 | 0, 1 | 0, 1, 2 | ..."""
NAME = "recurrent"
ROWS_AT_ONCE = 512
"""Of states while scoring: small enough for a cache, large enough for a product."""


@dataclass(frozen=True)
class RecurrentSpace:
    """One predecessor and one activation a node."""

    name: str = next(iter(SPACES))
    candidates: tuple[str, ...] = ("tanh", "relu", "sigmoid", "identity")

    @property
    def groups(self) -> Mapping[str, Group]:
        first = [n * (n + 1) // 2 for n in range(NODES + 1)]
        nodes = tuple(tuple(range(first[n], first[n + 1])) for n in range(NODES))
        return {NAME: Group(self.candidates, nodes, max_inputs=1)}

    def search_network(
        self, size: LanguageSize, dropouts: Dropouts = NOTHING, norm: bool = True
    ) -> LanguageModel:
        return LanguageModel(size, SearchCell(self.groups[NAME], size, norm), dropouts)

    def choice_network(self, size: LanguageSize) -> None:
        """A node has one weight whatever it reads and whichever activation it has: there are no
        modules to count."""

    def genotype(self, A_bar: Matrices) -> Genotype:
        edges = selected_edges(self.groups[NAME], A_bar[NAME].tolist(), SOURCES)
        cell = Cell(tuple(map(tuple, edges)), tuple(range(1, NODES + 1)))
        return Genotype(RECURRENT, {NAME: cell}, space=self.name)

    def network(
        self, genotype: Genotype, size: LanguageSize, searched: bool = False
    ) -> LanguageModel:
        return recurrent_network(genotype, size, searched=searched)


class SearchCell(nn.Module):
    """The core of a search network; what it computes is ruled by a Route."""

    def __init__(self, group: Group, size: LanguageSize, norm: bool) -> None:
        super().__init__()
        self.group, self.norm = group, norm
        self.weights = CellWeights(size.units, len(group.nodes))
        self.widths, self.inner = (size.units,), size.units
        self.route = Route()

    def forward(
        self, x: Tensor, hidden: Hidden, mask: Tensor | None = None
    ) -> tuple[Tensor, Hidden]:
        xz, weights = self.weights.split(x)
        plan = self.plan()
        if plan is None:
            output = self._mixture(xz, hidden[0], weights, mask)
        elif self.route.tape is None:
            output, _ = unroll(plan, xz, hidden[0], weights, mask)
        else:
            output = self._taped(self.route.tape, plan, xz, hidden[0], weights, mask)
        return output, (output[-1],)

    def plan(self) -> CellPlan | None:
        """The discrete cell in use; None if a node has several terms, or if the factors are to be
        differentiated."""
        factors = self.route.factors.get(NAME)
        # DARTS: A itself is differentiated, so the mixture must be computed
        if factors is not None and factors.requires_grad:
            return None
        nodes = [FIRST]
        for rows in self.group.nodes:
            terms = [(e, k) for e in rows for k in self._active(e)]
            if len(terms) != 1:
                return None
            e, k = terms[0]
            value = 1.0 if factors is None else float(factors[e, k])
            nodes.append(Highway(SOURCES[e] + 1, self.group.candidates[k], value))
        return CellPlan(tuple(nodes), tuple(range(1, len(nodes))), self.norm)

    def _active(self, e: int) -> tuple[int, ...]:
        chosen = self.route.active.get(Row(NAME, e))
        if chosen is None:  # nobody chose yet: each node's first row and candidate
            return (0,) if any(rows[0] == e for rows in self.group.nodes) else ()
        return chosen

    def _taped(
        self,
        tape: list[Call | OwnCall],
        plan: CellPlan,
        xz: Tensor,
        h: Tensor,
        weights: Sequence[Tensor],
        mask: Tensor | None,
    ) -> Tensor:
        T, (B, H) = len(xz), h.shape
        # a zero without memory, as if added to each node: its gradient is g
        probe = h.new_zeros(()).expand(len(plan.nodes) - 1, T, B, H).requires_grad_()
        output, trace = unroll(plan, xz, h, weights, mask, probe)
        assert trace is not None, "a tape needs gradients"
        tape.append(
            RecurrentCall(self.group, plan, weights[1:], mask, trace, probe, probe._version)
        )
        return output

    def _mixture(
        self, xz: Tensor, h: Tensor, weights: Sequence[Tensor], mask: Tensor | None
    ) -> Tensor:
        """s_j = sum over rows and candidates of a[(i,j),k] (s_i + sigmoid(c) * (f_k(h) - s_i)), by
        plain autograd."""
        if self.route.tape is not None:
            raise RuntimeError(
                "scoring needs a discrete architecture: one row and candidate a node"
            )
        terms = self._terms(h)
        outputs = []
        for x in xz.unbind(0):
            # the first state is never searched: always tanh
            c, y = torch.addmm(x, h if mask is None else h * mask, weights[0]).chunk(2, -1)
            states = [self._normalised(torch.lerp(h, y.tanh(), c.sigmoid()))]
            for w, (sources, factors) in zip(weights[1:], terms, strict=True):
                states.append(
                    self._normalised(_mixed([states[i] for i in sources], w, factors, mask, h))
                )
            h = torch.stack(states[1:]).mean(0)
            outputs.append(h)
        return torch.stack(outputs)

    def _terms(self, like: Tensor) -> list[tuple[list[int], dict[str, Tensor]]]:
        """Node by node: the states it reads, and the factors (rows, 1, 1) of each activation in
        use."""
        E, K = self.group.shape
        active = torch.zeros(E, K, dtype=torch.float64)
        for e in range(E):
            # 1 where a candidate runs; factors of others must not get in
            active[e, list(self._active(e))] = 1.0
        factors = self.route.factors.get(NAME)
        A = (active if factors is None else factors * active).to(like.device, like.dtype)
        terms = []
        for rows in self.group.nodes:
            used = [e for e in rows if self._active(e)]
            columns = {k for e in used for k in self._active(e)}
            terms.append(
                (
                    [SOURCES[e] for e in used],
                    {self.group.candidates[k]: A[used, k, None, None] for k in sorted(columns)},
                )
            )
        return terms

    def _normalised(self, s: Tensor) -> Tensor:
        return normalise_batch(s) if self.norm else s


def _mixed(
    states: Sequence[Tensor],
    w: Tensor,
    factors: Mapping[str, Tensor],
    mask: Tensor | None,
    like: Tensor,
) -> Tensor:
    """sum_i lerp(P_i s_i, sum_k a_ik f_k(h_i), sigmoid(c_i)) with P_i = sum_k a_ik: the sum over k
    drawn inside."""
    if not states:
        return torch.zeros_like(like)
    s = torch.stack(list(states))  # (rows, B, H)
    c, h = ((s if mask is None else s * mask) @ w).chunk(2, -1)
    terms = [(a, ACTIVATIONS[name](h)) for name, a in factors.items()]
    mixed = terms[0][0] * terms[0][1]
    for a, y in terms[1:]:
        mixed = torch.addcmul(mixed, a, y)
    P = torch.stack([a for a, _ in terms]).sum(0)
    return torch.lerp(P * s, mixed, c.sigmoid()).sum(0)


class RecurrentCall(NamedTuple):
    """One pass of a discrete cell on the tape: it scores all rows by itself."""

    group: Group
    plan: CellPlan
    weights: Sequence[Tensor]
    mask: Tensor | None
    trace: Trace
    output: Tensor
    """The probe, whose gradient is g of all choice nodes, (J - 1, T, B, H)."""
    version: int

    def scores(self, g: Tensor, share: Share) -> Iterator[tuple[Row, int, Tensor]]:
        """< g_j , O_k(s_i) > in parts of the sequence."""
        B = g.shape[2]
        # the first n sequences stand for all B
        n = math.ceil(share.batch * B)
        if share.nodes < 1:
            luck = torch.rand(len(g), generator=share.generator).tolist()
        else:
            luck = [0.0] * len(g)
        # so many time steps that their rows are about ROWS_AT_ONCE
        steps = max(1, ROWS_AT_ONCE // n)
        for start in range(0, g.shape[1], steps):
            part = _Part(self, slice(start, start + steps), n)
            for j, rows in enumerate(self.group.nodes):
                if luck[j] < share.nodes:
                    g_j = part.rows(g[j])
                    # scaled to the whole batch
                    yield from part.scores(j, rows, g_j if n == B else g_j * (B / n))

    def run_others(self) -> None:
        """A forward of all candidates that are not selected, nothing kept: what no scoring can do
        without."""
        part = _Part(self, slice(None), self.output.shape[2])
        for j, rows in enumerate(self.group.nodes):
            for e in rows:
                s, gate, h = part.edge(j, SOURCES[e])
                for name in self.group.candidates:
                    torch.lerp(s, ACTIVATIONS[name](h), gate)


class _Part:
    """Some time steps of the first n sequences of a call, as rows (time and sequence, H)."""

    def __init__(self, call: RecurrentCall, time: slice, n: int) -> None:
        self.call, self.time, self.n = call, time, n
        states = call.trace.states[:-1]
        self.states = [self.rows(s) for s in states]
        if call.mask is None:
            self.read = self.states
        else:
            self.read = [(s[time, :n] * call.mask[:n]).flatten(0, 1) for s in states]

    def rows(self, x: Tensor) -> Tensor:
        return x[self.time, : self.n].flatten(0, 1)

    def edge(self, j: int, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """(s_i, sigmoid(c), h) of node j reading state i; those of the selected edge are known from
        the pass."""
        if self.call.plan.nodes[j + 1].source == i + 1:
            gate, h = (self.rows(x) for x in self.call.trace.gates[j + 1].chunk(2, -1))
        else:
            for_c, for_h = self.call.weights[j].chunk(2, -1)
            gate, h = (self.read[i] @ for_c).sigmoid_(), self.read[i] @ for_h
        return self.states[i], gate, h

    def scores(self, j: int, rows: Sequence[int], g: Tensor) -> Iterator[tuple[Row, int, Tensor]]:
        for e in rows:
            s, gate, h = self.edge(j, SOURCES[e])
            # < g, s + gate (f - s) > = < g - g gate, s > + < g gate, f >
            gated = g * gate
            passed = inner(g - gated, s)  # < g , (1 - sigmoid(c)) s > is common to all candidates
            for k, name in enumerate(self.call.group.candidates):
                yield Row(NAME, e), k, passed + inner(gated, ACTIVATIONS[name](h))
