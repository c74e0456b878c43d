"""Choice: one of several candidates; Node: the sum of the Choices that enter it. Only what A_bar
selects is run.

On request a forward pass leaves a tape: for each node what it read and what it put out (`Call`),
which is all that scoring.py needs.

Shapes: E edges (rows), K candidates; A and A_bar are (E, K) for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, Row


@dataclass(frozen=True)
class Share:
    """Scoring on a part only, rescaled so that the expected score stays: time against noise."""

    batch: float = 1.0
    """Share of the examples that candidates are run on."""
    nodes: float = 1.0
    """Chance of a node to be scored in a step."""
    generator: torch.Generator | None = None
    """Draws the nodes."""


class MisusedChoice(RuntimeError):
    """A Choice, its candidates or what is around it break the rules that its gradient rests on."""


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

    def first(self, n: int) -> Source:
        """The first n examples of the batch."""
        return Source.of(
            tuple(map(_first(n), self.args)),
            {name: _first(n)(x) for name, x in self.kwargs.items()},
        )

    def detached(self) -> Source:
        """The same values without their history."""
        return Source.of(
            tuple(map(_detached, self.args)),
            {name: _detached(x) for name, x in self.kwargs.items()},
        )

    def check(self, candidate: str, row: Row | None) -> None:
        """A source that was changed after the pass would be scored wrongly."""
        if _versions((*self.args, *self.kwargs.values())) != self.versions:
            raise MisusedChoice(
                "the input of a Choice was changed in place (for example by ReLU(inplace=True)),"
                f" seen at candidate {candidate!r}{_of(row)}; use the out-of-place form in the"
                " candidates and around the Choice"
            )


class Call(NamedTuple):
    """One node in one forward pass: x_j = sum over edges and terms."""

    choices: Sequence[Choice]
    sources: Sequence[Source]
    active: frozenset[tuple[int, int]]
    """(edge, k) of each candidate that ran."""
    rest: tuple[int, int] | None
    """The one of them whose score is what the others leave of < g_j , x_j >: it need not run
    again."""
    output: Tensor
    version: int


class OwnCall(Protocol):
    """A module in one forward pass that scores its rows by itself."""

    @property
    def output(self) -> Tensor:
        """What the gradient is taken at."""

    @property
    def version(self) -> int: ...

    def scores(self, g: Tensor, share: Share) -> Iterable[tuple[Row, int, Tensor]]:
        """Parts of < g_j , O_k(x_i) >, to be added up."""

    def run_others(self) -> None:
        """A forward of every candidate that is not selected, nothing kept: what no scoring can do
        without."""


@dataclass
class Route:
    """What the Choices of one network do in a forward pass; one object shared by all of them."""

    active: dict[Row, tuple[int, ...]] = field(default_factory=dict)
    """Row -> the candidates to run; a row that is not listed runs its first."""
    values: dict[Row, tuple[Tensor, ...]] | None = None
    """Row -> the factors of its candidates; None: all 1."""
    factors: Matrices = field(default_factory=dict)
    """The same by group, on the host; empty: all 1."""
    tape: list[Call | OwnCall] | None = None
    """Where nodes note their calls, if somebody asked."""


@runtime_checkable
class Routed(Protocol):
    """A module that follows a Route: a Choice, or one that knows its rows by itself."""

    route: Route


class Choice(nn.Module):
    """One of several candidate modules, ruled by a row of A: output = sum_k a_k O_k(x) over the
    non-zero a_k.

    Choices with the same `share` name (or Row) follow one row. Candidates must not change their
    input in place.
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
        # without a row nobody searches: in a plain module the first candidate stands for the Choice
        chosen = self.route.active.get(self.row, (0,)) if self.row else (0,)
        return tuple(k for k in chosen if self.names[k] != NONE)

    def run(self, k: int, source: Source) -> Tensor:
        """O_k(x_i)."""
        output: Tensor = self.candidates[k](*source.args, **source.kwargs)
        if not isinstance(output, Tensor) or not output.ndim or not output.is_floating_point():
            if not isinstance(output, Tensor):
                kind = f"a {type(output).__name__}"
            else:
                kind = f"{output.ndim}-d {output.dtype}"
            where = f"candidate {self.names[k]!r}{_of(self.row)}"
            raise MisusedChoice(
                f"{where} puts out {kind}: it must be one tensor of floats, not a single number"
            )
        source.check(self.names[k], self.row)
        return output

    def pure_key(self, k: int) -> str | None:
        """What equal outputs of parameter-free candidates on one source have in common; None: not
        parameter-free."""
        key: str | None = getattr(self.candidates[k], "pure_key", None)
        return key

    def zero(self, source: Source) -> Tensor:
        """The output of an edge that is not there, in the right shape."""
        if NONE in self.names:
            return self.run(self.names.index(NONE), source)
        with torch.no_grad():
            # run for the shape of its output alone, which may be another than that of the source
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
    """sum over edges e and candidates k of a[e,k] O_k(x_e), over non-zero entries only (Eq.
    paraours)."""
    route = choices[0].route
    terms = [
        Term(e, k, choice.run(k, source))
        for e, (choice, source) in enumerate(zip(choices, sources, strict=True))
        for k in choice.active()
    ]
    # an edge that selected `none` has no term; a node without any still puts out something
    output = _weighted_sum(choices, terms, route.values) if terms else choices[0].zero(sources[0])
    if route.tape is not None:
        output = _differentiable(output)
        active = frozenset((term.edge, term.k) for term in terms)
        # < g_j , x_j > = sum_k a_k < g_j , O_k >: what is left over is a score where a_k = 1
        rest = None if route.values else _costly(choices, sources, terms)
        route.tape.append(Call(choices, sources, active, rest, output, output._version))
    return output


def _costly(
    choices: Sequence[Choice], sources: Sequence[Source], terms: list[Term]
) -> tuple[int, int] | None:
    """The first candidate that takes time to run: not an identity, not one that runs for other
    edges anyway."""
    for edge, k, output in terms:
        if choices[edge].pure_key(k) is None and not any(output is x for x in sources[edge].args):
            return edge, k
    return None


def _weighted_sum(
    choices: Sequence[Choice],
    terms: Sequence[Term],
    values: Mapping[Row, tuple[Tensor, ...]] | None,
) -> Tensor:
    if values is None:
        total = terms[0].output
        for term in terms[1:]:
            # never in place: the first output may be its own source, as an identity's is
            total = total + term.output
        return total
    # scalars on the device, in the order of the terms; gradients reach A through them
    factors = []
    for term in terms:
        row = choices[term.edge].row
        if row is not None:
            factors.append(values[row][term.k])
    total = terms[0].output * factors[0]
    for term, factor in zip(terms[1:], factors[1:], strict=True):
        total.addcmul_(term.output, factor)  # the sum itself is saved by nobody: in place is safe
    return total


def _differentiable(output: Tensor) -> Tensor:
    """A tensor of its own to take g_j at: an identity edge returns its source, a constant needs no
    gradient yet."""
    # a view has the version of what it shows: a change of either in place is noticed
    output = output.view_as(output)
    return output if output.requires_grad else output.requires_grad_()


def _of(row: Row | None) -> str:
    return f" of {row.group!r}" if row else ""


def _versions(args: tuple[Any, ...]) -> tuple[int, ...]:
    # torch counts the writes to a tensor in `_version`
    tensors = [x for x in args if isinstance(x, Tensor)]
    # those of inference mode have none
    return tuple(0 if x.is_inference() else x._version for x in tensors)


def _first(n: int) -> Callable[[Any], Any]:
    # a tensor with dimensions has the examples in the first of them; a number is the same for all
    return lambda x: x[:n] if isinstance(x, Tensor) and x.ndim else x


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x
