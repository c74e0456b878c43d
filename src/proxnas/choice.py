"""Choice and Supernet: run the selected candidates; score all of them by the fast path.

At a discrete A_bar every edge into node j sees the same upstream gradient g_j, so

    dF / da[(i,j),k] = < g_j , O_k(x_i) >

needs no backward through an unselected candidate and no gradient of a weight. A forward pass therefore notes, for each
node, its sources x_i and its output x_j (`Call`); one backward pass gives the g_j; then every candidate is run once
without a graph, and nothing of it is kept.

Shapes: E edges (rows), K candidates; A and A_bar are (E, K) for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from proxnas.types import Batch, Matrices

NONE = "none"
"""The candidate that is no connection: never run, its score is 0."""


class Row(NamedTuple):
    """The row of A that a Choice is ruled by."""

    group: str
    edge: int


@dataclass(frozen=True)
class Group:
    """What a matrix A stands for: its columns, and which rows enter which node."""

    candidates: tuple[str, ...]
    nodes: tuple[tuple[int, ...], ...] = ((0,),)
    max_inputs: int | None = None
    """How many edges a node keeps; None: all of them, and a node may stay empty."""

    @property
    def shape(self) -> tuple[int, int]:
        """(edges, candidates)."""
        return sum(len(rows) for rows in self.nodes), len(self.candidates)


class Term(NamedTuple):
    """One candidate that ran: its output before the factor a_k."""

    edge: int
    k: int
    output: Tensor


class Source(NamedTuple):
    """The arguments of one edge, and the version of each tensor when it was read."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    versions: tuple[int, ...]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Source:
        return cls(args, kwargs, _versions((*args, *kwargs.values())))

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for sources that read the same things in the same places."""
        return tuple(map(id, self.args)), tuple((name, id(x)) for name, x in self.kwargs.items())

    def check(self) -> None:
        """A source that was changed after the pass would be scored wrongly."""
        if _versions((*self.args, *self.kwargs.values())) != self.versions:
            raise RuntimeError(
                "the input of a Choice was changed in place (for example by ReLU(inplace=True)); use the "
                "out-of-place form in the candidates and around the Choice"
            )


class Call(NamedTuple):
    """One node in one forward pass: x_j = sum over edges and terms."""

    choices: Sequence[Choice]
    sources: Sequence[Source]
    terms: Sequence[Term]
    output: Tensor
    version: int


@dataclass
class Route:
    """What the Choices of one network do in a forward pass; one object shared by all of them."""

    active: dict[Row, tuple[int, ...]] = field(default_factory=dict)
    """Row -> the candidates to run; a row that is not listed runs its first."""
    values: dict[Row, tuple[Tensor, ...]] | None = None
    """Row -> the factors of its candidates; None: all 1."""
    tape: list[Call] | None = None
    """Where nodes note their calls, if somebody asked."""


class Choice(nn.Module):
    """One of several candidate modules, ruled by a row of A: output = sum_k a_k O_k(x) over the non-zero a_k.

    Choices with the same `share` name (or Row) follow one row. Candidates must not change their input in place.
    """

    def __init__(self, candidates: Mapping[str, nn.Module], share: str | Row | None = None) -> None:
        super().__init__()
        if not candidates:
            raise ValueError("a Choice needs at least one candidate")
        self.names = tuple(candidates)
        self.candidates = nn.ModuleList(candidates.values())
        self.row = Row(share, 0) if isinstance(share, str) else share
        self.route = Route()

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return combine((self,), (Source.of(args, kwargs),))

    def active(self) -> tuple[int, ...]:
        """The candidates that run; `none` is chosen by running nothing."""
        chosen = self.route.active.get(self.row, (0,)) if self.row else (0,)
        return tuple(k for k in chosen if self.names[k] != NONE)

    def run(self, k: int, source: Source) -> Tensor:
        """O_k(x_i)."""
        output: Tensor = self.candidates[k](*source.args, **source.kwargs)
        source.check()
        return output

    def zero(self, source: Source) -> Tensor:
        """The output of an edge that is not there, in the right shape."""
        if NONE in self.names:
            return self.run(self.names.index(NONE), source)
        with torch.no_grad():
            return torch.zeros_like(self.run(0, source))


class Node(nn.Module):
    """x_j = sum_i Choice_ij(x_i), the sum over the edges that A_bar keeps."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        super().__init__()
        self.choices = nn.ModuleList(choices)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        choices = cast("list[Choice]", list(self.choices))
        return combine(choices, [Source.of((x,), {}) for x in states])


def combine(choices: Sequence[Choice], sources: Sequence[Source]) -> Tensor:
    """sum over edges e and candidates k of a[e,k] O_k(x_e), over non-zero entries only (Eq. paraours)."""
    route = choices[0].route
    terms = [
        Term(e, k, choice.run(k, source))
        for e, (choice, source) in enumerate(zip(choices, sources, strict=True))
        for k in choice.active()
    ]
    output = _weighted_sum(choices, terms, route.values) if terms else choices[0].zero(sources[0])
    if route.tape is not None:
        output = _differentiable(output)
        route.tape.append(Call(choices, sources, terms, output, output._version))
    return output


def _weighted_sum(
    choices: Sequence[Choice], terms: Sequence[Term], values: Mapping[Row, tuple[Tensor, ...]] | None
) -> Tensor:
    if values is None:
        total = terms[0].output
        for term in terms[1:]:
            total = total + term.output
        return total
    factors = [values[row][term.k] for term in terms if (row := choices[term.edge].row) is not None]
    total = terms[0].output * factors[0]
    for term, factor in zip(terms[1:], factors[1:], strict=True):
        total.addcmul_(term.output, factor)  # the sum itself is saved by nobody: in place is safe
    return total


def _differentiable(output: Tensor) -> Tensor:
    """A tensor of its own to take g_j at: an identity edge returns its source, a constant needs no gradient yet."""
    output = output.view_as(output)
    return output if output.requires_grad else output.requires_grad_()


class Supernet:
    """A module that holds Choices, seen as a function of A_bar.

    `groups` describes cells (which rows enter which node); each Choice that belongs to none gets a group of its own.
    """

    def __init__(
        self,
        module: nn.Module,
        groups: Mapping[str, Group] | None = None,
        criterion: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    ) -> None:
        self.module = module
        self.criterion = criterion
        self.route = Route()
        self.groups: dict[str, Group] = dict(groups or {})
        self.choices: dict[str, Choice] = {n: m for n, m in module.named_modules() if isinstance(m, Choice)}
        if not self.choices:
            raise ValueError("the module holds no Choice: there is nothing to search")
        for name, choice in self.choices.items():
            self._adopt(name, choice)

    def _adopt(self, name: str, choice: Choice) -> None:
        choice.row = choice.row or Row(name, 0)
        choice.route = self.route
        group = self.groups.setdefault(choice.row.group, Group(choice.names))
        if group.candidates != choice.names:
            raise ValueError(
                f"Choice {name!r} shares row {choice.row.group!r} but has the candidates {', '.join(choice.names)} "
                f"instead of {', '.join(group.candidates)}"
            )

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters(), torch.empty(0)).device

    def use(self, A_bar: Matrices, weighted: bool = False) -> None:
        """From now on run the non-zero entries of A_bar; `weighted`: multiplied by them, else by 1."""
        self.route.active = {
            Row(group, e): tuple(k for k, a in enumerate(row) if a)
            for group, matrix in A_bar.items()
            for e, row in enumerate(matrix.tolist())
        }
        self.route.values = self._factors(A_bar) if weighted else None

    def _factors(self, A_bar: Matrices) -> dict[Row, tuple[Tensor, ...]]:
        # unbind, not indexing: its backward is one stack instead of one zero matrix an entry
        like = next(self.module.parameters(), torch.empty(0))
        moved = {group: matrix.to(like.device, like.dtype) for group, matrix in A_bar.items()}
        return {Row(g, e): row.unbind(0) for g, matrix in moved.items() for e, row in enumerate(matrix.unbind(0))}

    def __call__(self, x: Tensor) -> Tensor:
        output: Tensor = self.module(x)
        return output

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss on a batch, and the network's output."""
        output = self(batch.x)
        return self.criterion(output, batch.y), output

    def architecture_gradient(
        self, batch: Batch, weights: Sequence[Tensor] = ()
    ) -> tuple[Matrices, tuple[Tensor | None, ...]]:
        """dF/dA_bar at the architecture in use, for all entries; and dF/dw for the `weights` asked for."""
        with self.taped() as tape:
            loss, _ = self.loss(batch)
        for call in tape:
            if call.output._version != call.version:
                raise RuntimeError("the output of a Choice was changed in place; use the out-of-place form after it")
        gradients = torch.autograd.grad(loss, [c.output for c in tape] + list(weights), allow_unused=True)
        dA = self._scores(tape, gradients[: len(tape)])
        return dA, gradients[len(tape) :]

    @contextmanager
    def taped(self) -> Iterator[list[Call]]:
        """Note what the nodes read and put out in the forward passes within."""
        self.route.tape = []
        try:
            yield self.route.tape
        finally:
            self.route.tape = None

    @torch.no_grad()
    def _scores(self, tape: Sequence[Call], gradients: Sequence[Tensor | None]) -> Matrices:
        """sum over calls of < g_j , O_k(x_i) > for each row and candidate, read by the host once."""
        scored = list(_score_all(_by_source(tape, gradients)))
        values = torch.stack([value for _, _, value in scored]).tolist() if scored else []
        sums = {name: [[0.0] * group.shape[1] for _ in range(group.shape[0])] for name, group in self.groups.items()}
        for (row, k, _), value in zip(scored, values, strict=True):
            sums[row.group][row.edge][k] += value
        return {name: torch.tensor(matrix, dtype=torch.float64) for name, matrix in sums.items()}


class _Edge(NamedTuple):
    choice: Choice
    source: Source
    active: dict[int, Tensor]
    g: Tensor


def _by_source(tape: Sequence[Call], gradients: Sequence[Tensor | None]) -> Iterator[list[_Edge]]:
    """The edges of all calls, those that read the same tensors together: they share what has no parameters."""
    edges: dict[tuple[Any, ...], list[_Edge]] = {}
    for call, g in zip(tape, gradients, strict=True):
        if g is None:  # the loss does not depend on this node: it scores 0
            continue
        for e, (choice, source) in enumerate(zip(call.choices, call.sources, strict=True)):
            active = {term.k: term.output for term in call.terms if term.edge == e}
            edges.setdefault(source.key, []).append(_Edge(choice, source, active, g))
    return iter(edges.values())


def _score_all(sources: Iterator[list[_Edge]]) -> Iterator[tuple[Row, int, Tensor]]:
    for edges in sources:
        shared: dict[Any, Tensor] = {}
        for choice, source, active, g in edges:
            assert choice.row is not None
            for k, name in enumerate(choice.names):
                if name != NONE:
                    output = active[k] if k in active else _output(choice, k, source, shared)
                    if output.shape != g.shape:  # broadcasting would score it wrongly
                        raise RuntimeError(_shapes_differ(choice, k, output, g))
                    yield choice.row, k, inner(g, output)


def _shapes_differ(choice: Choice, k: int, output: Tensor, g: Tensor) -> str:
    return (
        f"candidate {choice.names[k]!r} of {choice.row} puts out {tuple(output.shape)}, the selected one "
        f"{tuple(g.shape)}: all candidates of a Choice must put out one shape"
    )


def _output(choice: Choice, k: int, source: Source, shared: dict[Any, Tensor]) -> Tensor:
    """O_k(x_i); a candidate that says it is pure (`pure_key`) is run once for all edges of one source."""
    key = getattr(choice.candidates[k], "pure_key", None)
    if key is None:
        return choice.run(k, source)
    if key not in shared:
        shared[key] = choice.run(k, source)
    return shared[key]


def inner(g: Tensor, output: Tensor) -> Tensor:
    """< g , output >, as one dot product where both lie in memory in the same order."""
    if g.stride() == output.stride() and _dense(g):
        n = g.numel()
        return torch.dot(g.as_strided((n,), (1,)), output.as_strided((n,), (1,)))
    return (g * output).sum()


def _dense(x: Tensor) -> bool:
    return x.is_contiguous() or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last))


def _versions(args: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(x._version for x in args if isinstance(x, Tensor))
