"""The fast path: the gradient of A at a discrete A_bar from one backward pass and a plain forward of each candidate.

At a discrete A_bar every edge into node j sees the same upstream gradient g_j, so

    dF / da[(i,j),k] = < g_j , O_k(x_i) >

needs no backward through an unselected candidate and no gradient of a weight. The candidates are run without a graph
and nothing of them is kept: memory is that of one path, whatever their number.

Shapes: N examples of a batch, E edges (rows), K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from proxnas.choice import NONE, Call, Choice, Group, OwnCall, Row, Source
from proxnas.ops import shared_relu
from proxnas.types import Matrices


@dataclass(frozen=True)
class Share:
    """Scoring on a part only, rescaled so that the expected score stays: time against noise."""

    batch: float = 1.0
    """Share of the examples that candidates are run on."""
    nodes: float = 1.0
    """Chance of a node to be scored in a step."""
    generator: torch.Generator | None = None
    """Draws the nodes."""


class Edge(NamedTuple):
    """One Choice in one call: what it read, the scores of what already ran, and the gradient at its node."""

    choice: Choice
    source: Source
    active: dict[int, Tensor]
    g: Tensor


@torch.no_grad()
def scores(
    tape: Sequence[Call | OwnCall], gradients: Sequence[Tensor | None], groups: Mapping[str, Group], share: Share
) -> Matrices:
    """Sum over calls of < g_j , O_k(x_i) > for each row and candidate; the host reads them once."""
    pairs = [(call, g) for call, g in zip(tape, gradients, strict=True) if g is not None]  # without g a node scores 0
    with shared_relu():
        scored = list(_score_all(_by_source(_drawn(pairs, share)), share))
    scored += [part for call, g in pairs if not isinstance(call, Call) for part in call.scores(g, share)]
    values = torch.stack([value for _, _, value in scored]).tolist() if scored else []
    sums = {name: [[0.0] * group.shape[1] for _ in range(group.shape[0])] for name, group in groups.items()}
    for (row, k, _), value in zip(scored, values, strict=True):
        sums[row.group][row.edge][k] += value / share.nodes
    return {name: torch.tensor(matrix, dtype=torch.float64) for name, matrix in sums.items()}


def _drawn(pairs: Sequence[tuple[Call | OwnCall, Tensor]], share: Share) -> Iterator[tuple[Call, Tensor]]:
    """The nodes to score."""
    luck = torch.rand(len(pairs), generator=share.generator).tolist() if share.nodes < 1 else [0.0] * len(pairs)
    for (call, g), chance in zip(pairs, luck, strict=True):
        if isinstance(call, Call) and chance < share.nodes:
            yield call, g


def _by_source(calls: Iterable[tuple[Call, Tensor]]) -> Iterable[list[Edge]]:
    """The edges of all calls, those that read the same tensors together: they share what has no parameters."""
    edges: dict[tuple[Any, ...], list[Edge]] = {}
    for call, g in calls:
        active = _active_scores(call, g)
        for e, (choice, source) in enumerate(zip(call.choices, call.sources, strict=True)):
            edges.setdefault(source.key, []).append(Edge(choice, source, active.get(e, {}), g))
    return edges.values()


def _active_scores(call: Call, g: Tensor) -> dict[int, dict[int, Tensor]]:
    """Edge -> k -> score of what ran; < g , rest > = < g , x_j > - the others, as x_j is their sum."""
    known = {(term.edge, term.k): inner(g, term.output) for term in call.terms}
    if call.rest:
        known[call.rest] = inner(g, call.output) - sum(known.values())
    scores: dict[int, dict[int, Tensor]] = {}
    for (e, k), value in known.items():
        scores.setdefault(e, {})[k] = value
    return scores


def _score_all(sources: Iterable[list[Edge]], share: Share) -> Iterator[tuple[Row, int, Tensor]]:
    for edges in sources:
        shared: dict[Any, Tensor] = {}
        for edge in edges:
            yield from _score(_part(edge, share.batch) if share.batch < 1 else edge, shared)


def _score(edge: Edge, shared: dict[Any, Tensor]) -> Iterator[tuple[Row, int, Tensor]]:
    choice, source, active, g = edge
    assert choice.row is not None
    for k, name in enumerate(choice.names):
        if name != NONE:
            yield choice.row, k, active[k] if k in active else inner(g, _output(choice, k, source, shared, g.shape))


def _part(edge: Edge, batch: float) -> Edge:
    """The edge on the first examples; g is scaled up to stand for all of them."""
    N = len(edge.g)
    n = math.ceil(batch * N)
    return Edge(edge.choice, edge.source.first(n), edge.active, edge.g[:n] * (N / n))


def _output(choice: Choice, k: int, source: Source, shared: dict[Any, Tensor], shape: torch.Size) -> Tensor:
    """O_k(x_i); a candidate that says it is pure (`pure_key`) is run once for all edges of one source."""
    key = choice.pure_key(k)
    output = shared[key] if key in shared else choice.run(k, source)
    if key is not None:
        shared[key] = output
    if output.shape != shape:  # broadcasting would score it wrongly
        raise RuntimeError(
            f"candidate {choice.names[k]!r} of {choice.row} puts out {tuple(output.shape)}, the selected one "
            f"{tuple(shape)}: all candidates of a Choice must put out one shape"
        )
    return output


def inner(g: Tensor, output: Tensor) -> Tensor:
    """< g , output >, as one dot product where both lie in memory in the same order."""
    if g.dtype != output.dtype or g.dtype in (torch.bfloat16, torch.float16):
        g, output = g.float(), output.float()  # a sum of many small products needs the digits
    if g.stride() == output.stride() and _dense(g):
        n = g.numel()
        return torch.dot(g.as_strided((n,), (1,)), output.as_strided((n,), (1,)))
    return (g * output).sum()


def _dense(x: Tensor) -> bool:
    return x.is_contiguous() or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last))
