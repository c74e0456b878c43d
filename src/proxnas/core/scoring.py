"""The fast path: the gradient of A at a discrete A_bar from one backward pass and a plain forward
of each candidate.

At a discrete A_bar every edge into node j sees the same upstream gradient g_j, so

    dF / da[(i,j),k] = < g_j , O_k(x_i) >

needs no backward through an unselected candidate and no gradient of a weight. The candidates are
run without a graph and nothing of them is kept: memory is that of one path, whatever their number.

Shapes: N examples of a batch, E edges (rows), K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from proxnas.common.types import Matrices
from proxnas.core.choice import Call, Choice, MisusedChoice, OwnCall, Share, Source
from proxnas.core.groups import NONE, Group
from proxnas.core.sharing import shared_relu


class Edge(NamedTuple):
    """One Choice in one call: what it read, and the gradient at its node."""

    call: int
    """Its place on the tape."""
    e: int
    """Its place among the edges of its node."""
    choice: Choice
    source: Source
    g: Tensor


class Scored(NamedTuple):
    """< g_j , O_k(x_e) >, still on the device; with e = WHOLE: < g_j , x_j >."""

    call: int
    e: int
    k: int
    value: Tensor


# no edge: stands for the sum over all edges of a node
WHOLE = -1


@torch.no_grad()
def scores(
    tape: Sequence[Call | OwnCall],
    gradients: Sequence[Tensor | None],
    groups: Mapping[str, Group],
    share: Share,
) -> Matrices:
    """Sum over calls of < g_j , O_k(x_i) > for each row and candidate; the host reads them once."""
    pairs = list(zip(tape, gradients, strict=True))
    calls = [(call, g) for call, g in pairs if isinstance(call, Call)]
    dA = _scores([call for call, _ in calls], [g for _, g in calls], groups, share)
    # modules that know their rows by themselves, such as the recurrent cell, draw their own nodes
    own = [
        part
        for call, g in pairs
        if g is not None and not isinstance(call, Call)
        for part in call.scores(g, share)
    ]
    values = torch.stack([value for _, _, value in own]).tolist() if own else []
    for (row, k, _), value in zip(own, values, strict=True):
        # a node is scored with chance p: divided by p its score keeps its mean
        dA[row.group][row.edge, k] += value / share.nodes
    return dA


def _scores(
    tape: Sequence[Call],
    gradients: Sequence[Tensor | None],
    groups: Mapping[str, Group],
    share: Share,
) -> Matrices:
    drawn = _drawn(tape, gradients, share)
    scored = [*_score_nodes(tape, drawn, share), *_score_all(tape, _by_source(tape, drawn), share)]
    # the one look at the device: everything before only queues work there
    values = torch.stack([item.value for item in scored]).tolist() if scored else []
    known = {(call, e, k): value for (call, e, k, _), value in zip(scored, values, strict=True)}
    sums = {
        name: [[0.0] * group.shape[1] for _ in range(group.shape[0])]
        for name, group in groups.items()
    }
    for (call, e, k), value in _with_rest(tape, known).items():
        # cells that share a row add up: dF/da is a sum over all places that a stands at
        row = tape[call].choices[e].row
        assert row is not None
        sums[row.group][row.edge][k] += value / share.nodes
    return {name: torch.tensor(matrix, dtype=torch.float64) for name, matrix in sums.items()}


def _drawn(
    tape: Sequence[Call], gradients: Sequence[Tensor | None], share: Share
) -> dict[int, Tensor]:
    """Call -> g_j for the calls to score; a node that the loss does not depend on scores 0."""
    if share.nodes < 1:
        # a number for every node, also for those without a gradient: what follows draws the same
        luck = torch.rand(len(tape), generator=share.generator).tolist()
    else:
        luck = [0.0] * len(tape)
    return {
        call: g
        for call, (g, chance) in enumerate(zip(gradients, luck, strict=True))
        if g is not None and chance < share.nodes
    }


def _score_nodes(
    tape: Sequence[Call], drawn: Mapping[int, Tensor], share: Share
) -> Iterator[Scored]:
    """< g_j , x_j > of each node with a candidate that is not run again."""
    for call, g in drawn.items():
        if tape[call].rest:
            n = math.ceil(share.batch * len(g))
            # scaled up, the first n examples stand for all of them
            part = g[:n] * (len(g) / n) if n < len(g) else g
            yield Scored(call, WHOLE, 0, inner(part, tape[call].output[:n]))


def _with_rest(
    tape: Sequence[Call], known: Mapping[tuple[int, int, int], float]
) -> dict[tuple[int, int, int], float]:
    """Of a node's candidates that ran, the one that did not run again scores < g_j , x_j > minus
    the others."""
    found = {place: value for place, value in known.items() if place[1] != WHOLE}
    for (call, e, _), whole in known.items():
        rest = tape[call].rest
        if e == WHOLE and rest:
            # x_j = sum of what ran, with factors 1, and < g , . > is linear
            found[call, *rest] = whole - sum(
                found[call, *place] for place in tape[call].active - {rest}
            )
    return found


def _by_source(tape: Sequence[Call], drawn: Mapping[int, Tensor]) -> Iterable[list[Edge]]:
    """The edges of all calls, those that read the same tensors together: they share what has no
    parameters."""
    edges: dict[tuple[Any, ...], list[Edge]] = {}
    for call, g in drawn.items():
        for e, (choice, source) in enumerate(
            zip(tape[call].choices, tape[call].sources, strict=True)
        ):
            # ids stay unique here: the tape keeps every tensor that they are of
            edges.setdefault(source.key, []).append(Edge(call, e, choice, source, g))
    return edges.values()


def _score_all(
    tape: Sequence[Call], sources: Iterable[list[Edge]], share: Share
) -> Iterator[Scored]:
    for edges in sources:
        shared: dict[Any, Tensor] = {}
        # one source at a time: what its edges share is forgotten before the next
        with shared_relu():
            for edge in _part(edges, share.batch):
                yield from _score(edge, tape[edge.call].rest, shared)


def _score(edge: Edge, rest: tuple[int, int] | None, shared: dict[Any, Tensor]) -> Iterator[Scored]:
    g = _packed(edge.g)
    for k, name in enumerate(edge.choice.names):
        # O_none = 0, and so is its score
        if name != NONE and (edge.e, k) != rest:
            output = _output(edge.choice, k, edge.source, shared, g.shape)
            yield Scored(edge.call, edge.e, k, inner(g, output))


def _part(edges: list[Edge], batch: float) -> list[Edge]:
    """The edges of one source on the first examples; g is scaled up to stand for all of them."""
    if batch == 1:
        return edges
    N = len(edges[0].g)
    n = math.ceil(batch * N)
    # cut once: the edges go on sharing one source
    source = edges[0].source.first(n)
    return [edge._replace(source=source, g=edge.g[:n] * (N / n)) for edge in edges]


def _output(
    choice: Choice, k: int, source: Source, shared: dict[Any, Tensor], shape: torch.Size
) -> Tensor:
    """O_k(x_i); a candidate that says it is pure (`pure_key`) is run once for all edges of one
    source."""
    key = choice.pure_key(k)
    output = shared[key] if key in shared else choice.run(k, source)
    if key is not None:
        shared[key] = output
    if output.shape != shape:  # broadcasting would score it wrongly
        raise MisusedChoice(
            f"candidate {choice.names[k]!r} of {choice.row} puts out {tuple(output.shape)}, the"
            f" selected one {tuple(shape)}: all candidates of a Choice must put out one shape"
        )
    return output


def inner(g: Tensor, output: Tensor) -> Tensor:
    """< g , output >, as one dot product where both lie in memory in the same order."""
    if g.dtype != output.dtype or g.dtype in (torch.bfloat16, torch.float16):
        g, output = g.float(), output.float()  # a sum of many small products needs the digits
    # then both can be read as vectors, whatever the order of their dimensions
    if g.stride() == output.stride() and _dense(g):
        n = g.numel()
        return torch.dot(g.as_strided((n,), (1,)), output.as_strided((n,), (1,)))
    return (g * output).sum()


def _packed(g: Tensor) -> Tensor:
    """The same values without gaps; the gradient of a concatenated node is a slice, which no dot
    product can take."""
    return g if _dense(g) or g.ndim != 4 else g.contiguous(memory_format=torch.channels_last)


def _dense(x: Tensor) -> bool:
    return x.is_contiguous() or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last))
