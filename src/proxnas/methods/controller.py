"""The controller of ENAS and of `reinforce`: an LSTM that makes the decisions of an architecture
one after the other.

For a node that keeps n inputs it chooses n different edges by attention over the states that they
read, then one candidate for each of them (never `none`); for a node that keeps all edges, one
candidate an edge. Row i of a node is taken to read state i; states come into being as nodes with
more rows are reached. Decisions can be drawn, or given to learn how likely they are now; several
architectures are decided side by side, since all take equally many decisions.

N architectures side by side, H hidden units, K candidates, R rows of a node, D decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, Group


@dataclass(frozen=True)
class ControllerOptions:
    """The public micro search; `recurrent()` has the language model's."""

    hidden: int = 64
    spread: float = 0.1
    """Weights start uniformly within +- this."""
    temperature: float = 1.0
    tanh: float | None = 1.10
    """Logits of inputs are squashed to +- this; None: not at all."""
    tanh_candidates: float | None = 1.10 / 2.5
    """Logits of candidates are squashed to +- this; None: not at all."""
    favoured: tuple[str, ...] = ("sep_conv_3x3", "sep_conv_5x5")
    """Candidates whose bias starts at +10, and gets a fixed +0.25 (the others -0.25) in the first
    group."""
    distance: float = 0.0
    """Logits of inputs fall by this times the square of the distance."""


def recurrent() -> ControllerOptions:
    """The corrected ENAS language model."""
    return ControllerOptions(
        temperature=5.0, tanh=2.25, tanh_candidates=2.25, favoured=(), distance=1 / 6
    )


@dataclass
class Trace:
    """One run of the controller over N architectures: its state, and what was decided."""

    h: Tensor
    c: Tensor
    x: Tensor
    selected: Matrices
    """Group -> (N, E, K): what was decided, as A_bar."""
    anchors: list[Tensor] = field(default_factory=list)
    """Of each state: what is fed back when it is chosen (N, H)."""
    keys: list[Tensor] = field(default_factory=list)
    """Of each state: what attention compares with (N, H)."""
    decisions: list[Tensor] = field(default_factory=list)
    """(N,) each."""
    logs: list[Tensor] = field(default_factory=list)
    """Of each decision: the log-probabilities of all that could have been decided."""

    @property
    def A_bar(self) -> Matrices:
        """The first architecture."""
        return {name: A_bar[0] for name, A_bar in self.selected.items()}

    @property
    def log_probabilities(self) -> Tensor:
        """Of each decision that was made (N, D)."""
        made = zip(self.logs, self.decisions, strict=True)
        return torch.stack(
            [log_p.gather(-1, index[:, None]).squeeze(-1) for log_p, index in made], -1
        )

    @property
    def log_probability(self) -> Tensor:
        """Of the first architecture."""
        return self.log_probabilities[0].sum()

    @property
    def entropy(self) -> float:
        """Of the decisions of the first architecture, added up."""
        return float(self.entropies[0].detach().sum())

    @property
    def entropies(self) -> Tensor:
        """(N, D); what cannot be decided (log-probability -inf) counts nothing."""
        # 0 times -inf would be NaN, in the gradient too
        finite = [log_p.masked_fill(log_p == -torch.inf, 0.0) for log_p in self.logs]
        return torch.stack(
            [-(log_p.exp() * at).sum(-1) for log_p, at in zip(self.logs, finite, strict=True)], -1
        )


Decide = Callable[[Tensor], Tensor]
"""From the probabilities of a decision (N, options) to what is decided (N,)."""


def drawn(generator: torch.Generator) -> Decide:
    """Decides by chance."""
    return lambda p: torch.multinomial(p, 1, generator=generator).squeeze(-1)


def given(decisions: Tensor) -> Decide:
    """Decides as it was decided before (N, D)."""
    remaining = iter(decisions.unbind(-1))
    return lambda _: next(remaining)


class Controller(nn.Module):
    """Draws architectures; small, and kept on the host like A."""

    def __init__(
        self, groups: Mapping[str, Group], options: ControllerOptions, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.groups, self.options = dict(groups), options
        H = options.hidden
        self.lstm = nn.LSTMCell(H, H, bias=False)
        self.start = nn.Parameter(torch.empty(H))
        self.key, self.query = nn.Linear(H, H, bias=False), nn.Linear(H, H, bias=False)
        self.attention = nn.Linear(H, 1, bias=False)
        kinds = dict.fromkeys(group.candidates for group in self.groups.values())
        # cells with the same candidates share what is known of them
        self.kind = {
            name: list(kinds).index(group.candidates) for name, group in self.groups.items()
        }
        self.embeddings = nn.ModuleList(nn.Embedding(len(names), H) for names in kinds)
        heads = [nn.Linear(H, len(names)) for names in kinds]
        self.heads = nn.ModuleList(heads)
        with torch.no_grad():
            for w in self.parameters():
                w.uniform_(-options.spread, options.spread, generator=generator)
            for head, names in zip(heads, kinds, strict=True):
                head.bias.copy_(
                    torch.tensor([10.0 if name in options.favoured else 0.0 for name in names])
                )

    def forward(self, generator: torch.Generator) -> Trace:
        """One architecture, drawn."""
        return self.decide(drawn(generator))

    def decide(self, decide: Decide, N: int = 1) -> Trace:
        """N architectures by the decisions of `decide`."""
        zero, start = torch.zeros(N, self.options.hidden), self.start.expand(N, -1)
        selected = {
            name: torch.zeros(N, *group.shape, dtype=torch.float64)
            for name, group in self.groups.items()
        }
        trace = Trace(zero, zero, start, selected)
        each = torch.arange(N)
        for i, (name, group) in enumerate(self.groups.items()):
            # states belong to one cell; h and c go on: what was decided for one tells of the next
            trace.anchors, trace.keys, trace.x = [], [], start
            for rows in group.nodes:
                if group.max_inputs is not None:
                    self._states(trace, start, len(rows), first=rows is group.nodes[0])
                for e in self._inputs(trace, rows, group.max_inputs, decide):
                    k = self._candidate(trace, name, biased=i == 0, decide=decide)
                    # an entry in each of the N architectures
                    selected[name][each, e, k] = 1.0
        return trace

    def _states(self, trace: Trace, start: Tensor, number: int, first: bool) -> None:
        """Anchors for all states that the next node can read; those of the inputs of a cell are
        zero."""
        while len(trace.keys) < number:
            self._advance(trace)
            trace.anchors.append(torch.zeros_like(trace.h) if first else trace.h)
            trace.keys.append(self.key(trace.h))
            trace.x = start

    def _inputs(
        self, trace: Trace, rows: tuple[int, ...], most: int | None, decide: Decide
    ) -> list[Tensor]:
        """The rows that the node keeps, each (N,)."""
        N, R = len(trace.h), len(rows)
        if most is None:
            return [torch.full((N,), e) for e in rows]
        taken, chosen = torch.zeros(N, R, dtype=torch.bool), []
        # (R,): the next node is R - i states after state i
        far = torch.arange(R, 0, -1.0).square() * self.options.distance
        for _ in range(min(most, R)):
            self._advance(trace)
            # additive attention, v . tanh(W1 a_i + W2 h): (N, R, H)
            compared = torch.stack(trace.keys[:R], 1) + self.query(trace.h)[:, None]
            logits = (
                self._squashed(self.attention(compared.tanh()).squeeze(-1), self.options.tanh) - far
            )
            index = self._choose(trace, logits.masked_fill(taken, -torch.inf), decide)
            taken = taken.scatter(1, index[:, None], True)
            chosen.append(torch.tensor(rows)[index])
            trace.x = torch.stack(trace.anchors, 1)[torch.arange(N), index]
        return chosen

    def _candidate(self, trace: Trace, name: str, biased: bool, decide: Decide) -> Tensor:
        group, kind = self.groups[name], self.kind[name]
        self._advance(trace)
        logits = self._squashed(self.heads[kind](trace.h), self.options.tanh_candidates)
        favoured = torch.tensor(
            [candidate in self.options.favoured for candidate in group.candidates]
        )
        if biased and favoured.any():
            logits = logits + torch.where(favoured, 0.25, -0.25)
        if group.max_inputs is not None and NONE in group.candidates and len(group.candidates) > 1:
            logits = logits.masked_fill(
                torch.tensor([c == NONE for c in group.candidates]), -torch.inf
            )
        k = self._choose(trace, logits, decide)
        trace.x = self.embeddings[kind](k)
        return k

    def _advance(self, trace: Trace) -> None:
        trace.h, trace.c = self.lstm(trace.x, (trace.h, trace.c))

    def _squashed(self, logits: Tensor, limit: float | None) -> Tensor:
        cooled = logits / self.options.temperature
        return cooled if limit is None else limit * cooled.tanh()

    @staticmethod
    def _choose(trace: Trace, logits: Tensor, decide: Decide) -> Tensor:
        # deciding takes no gradient: REINFORCE and PPO ask for that of the log-probability
        index = decide(logits.detach().softmax(-1))
        trace.decisions.append(index)
        trace.logs.append(logits.log_softmax(-1))
        return index
