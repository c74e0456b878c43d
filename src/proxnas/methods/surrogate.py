"""The surrogate of PNAS: an ensemble of small networks that predicts how good a cell is from what
it is made of.

What the mean of learned embeddings is in the paper is here a linear map of the mean of one-hot
vectors, which is the same: a cell is described, group by group, by how often each candidate occurs
and how often each candidate on each state, both as a share of its edges. Shares do not depend on
the number of nodes, so that what was learned of small cells says something of larger ones.

N cells, D features, M members of the ensemble, H hidden units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proxnas.methods.cells import NodePicks, Place

Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class SurrogateOptions:
    """The ensemble of the paper, with full-batch steps."""

    members: int = 5
    hidden: int = 64
    steps: int = 200
    learning_rate: float = 0.01
    share: float = 0.8
    """Of the cells, drawn for each member by itself."""


def features(
    places: Sequence[Place], nodes: Sequence[NodePicks], widths: dict[str, tuple[int, int]]
) -> list[float]:
    """A partial cell, nodes[i] at places[i], as D shares; widths: group -> (most states of a node,
    candidates)."""
    # K for candidates anywhere, then K for each of S states
    counts = {name: [0.0] * (K + S * K) for name, (S, K) in widths.items()}
    edges = dict.fromkeys(widths, 0)
    for place, picks in zip(places, nodes, strict=True):
        K = widths[place.group][1]
        for e, k in picks:
            counts[place.group][k] += 1
            counts[place.group][K + place.rows.index(e) * K + k] += 1
            edges[place.group] += 1
    return [x / max(1, edges[name]) for name, row in counts.items() for x in row]


def fit(x: Tensor, y: Tensor, options: SurrogateOptions, generator: torch.Generator) -> Predict:
    """A function from features (N, D) to predictions (N,), fitted by the L1 loss of standardised
    scores y (N,)."""
    M, H, (N, D) = options.members, options.hidden, x.shape
    mean, std = y.mean(), y.std(correction=0).clamp_min(1e-6)
    target = (y - mean) / std
    weights = [
        _normal((M, D, H), D, generator),
        torch.zeros(M, 1, H),
        _normal((M, H, 1), H, generator),
    ]
    weights = [w.requires_grad_() for w in (*weights, torch.zeros(M, 1, 1))]
    # each member sees its own part of the cells, all of them if there are few
    mask = (
        # a random rank for each cell: exactly so many are below the share
        torch.rand(M, N, generator=generator).argsort(-1) < max(1, round(options.share * N))
    ).float()
    adam = torch.optim.Adam(weights, options.learning_rate)
    for _ in range(options.steps):
        adam.zero_grad()
        # members do not meet: the sum of their losses trains each by its own
        ((_members(x, weights) - target).abs() * mask).sum().div(mask.sum()).backward()
        adam.step()
    return lambda z: _ensemble(z, [w.detach() for w in weights]) * std + mean


def _members(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """(M, N): what each member says."""
    first, bias, second, last = weights
    return (nn.functional.relu(x @ first + bias) @ second + last).squeeze(-1)


def _ensemble(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    return torch.cat([_members(part, weights).mean(0) for part in x.split(4096)])


def _normal(shape: tuple[int, int, int], fan_in: int, generator: torch.Generator) -> Tensor:
    # He et al. 2015: what goes through a ReLU keeps its size
    return torch.randn(shape, generator=generator) * math.sqrt(2 / fan_in)
