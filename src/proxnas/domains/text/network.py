"""Recurrent language models: the cell of a Genotype, and an LSTM of the same size as the design by
hand to beat.

H units, the same everywhere; n nodes.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell
from proxnas.domains.text.language import (
    NOTHING,
    Dropouts,
    Hidden,
    LanguageModel,
    LanguageSize,
    uniform,
)
from proxnas.domains.text.recurrence import CellPlan, Highway, unroll

FIRST = Highway(0, "tanh")
"""The first state: s_0 = h + sigmoid(c) * (tanh(.) - h), from the input and the output h of the
time step before."""


def plan_of(cell: Cell, norm: bool = False) -> CellPlan:
    """The nodes of a cell in order; a `none` is a state of zeros."""
    nodes = [FIRST]
    for node in cell.nodes:
        edge = node[0]
        op, value = ("identity", 0.0) if edge.op == "none" else (edge.op, edge.value)
        # state 0 of a plan is the output before: the nodes of a cell count from 1
        nodes.append(Highway(edge.input + 1, op, value))
    return CellPlan(tuple(nodes), cell.concat, norm)


class CellWeights(nn.Module):
    """The weights of a recurrent cell: one product a node, whatever it reads; the first also reads
    the input."""

    def __init__(self, units: int, nodes: int) -> None:
        super().__init__()
        self.first = nn.Parameter(uniform(2 * units, 2 * units))
        self.nodes = nn.Parameter(uniform(nodes, units, 2 * units))

    def split(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(the input's share of the first node at all times, a weight (H, 2H) a node with the
        first)."""
        from_input, from_state = self.first.chunk(2)
        return x @ from_input, [from_state, *self.nodes.unbind(0)]


class RecurrentCell(nn.Module):
    """The cell of a Genotype as the core of a language model; `searched`: normalised as in a search
    network."""

    def __init__(self, cell: Cell, size: LanguageSize, searched: bool = False) -> None:
        super().__init__()
        self.plan = plan_of(cell, searched)
        self.weights = CellWeights(size.units, len(cell.nodes))
        self.widths, self.inner = (size.units,), size.units

    def forward(
        self, x: Tensor, hidden: Hidden, mask: Tensor | None = None
    ) -> tuple[Tensor, Hidden]:
        xz, weights = self.weights.split(x)
        output, _ = unroll(self.plan, xz, hidden[0], weights, mask)
        return output, (output[-1],)


class LSTM(nn.Module):
    """Two layers, H -> M -> H, with M such that they have as many weights as a cell of eight nodes.

    Such a cell has 4 H^2 + 8 * 2 H^2 = 20 H^2 weights, the two layers 4 (H + M)^2.
    """

    def __init__(self, size: LanguageSize) -> None:
        super().__init__()
        # 4 (H + M)^2 = 20 H^2
        H, M = size.units, round((math.sqrt(5) - 1) * size.units)
        self.below, self.above = nn.LSTM(H, M), nn.LSTM(M, H)
        self.widths, self.inner = (M, M, H, H), M

    def forward(
        self, x: Tensor, hidden: Hidden, mask: Tensor | None = None
    ) -> tuple[Tensor, Hidden]:
        h, c, h_above, c_above = (s[None].contiguous() for s in hidden)
        between, (h, c) = self.below(x, (h, c))
        output, (h_above, c_above) = self.above(
            between if mask is None else between * mask, (h_above, c_above)
        )
        return output, (h[0], c[0], h_above[0], c_above[0])


def recurrent_network(
    genotype: Genotype, size: LanguageSize, dropouts: Dropouts = NOTHING, searched: bool = False
) -> LanguageModel:
    """The language model of a recurrent genotype."""
    return LanguageModel(size, RecurrentCell(genotype.cells["recurrent"], size, searched), dropouts)


def lstm_network(size: LanguageSize, dropouts: Dropouts = NOTHING) -> LanguageModel:
    """The LSTM under the same embedding, decoder and interface."""
    return LanguageModel(size, LSTM(size), dropouts)
