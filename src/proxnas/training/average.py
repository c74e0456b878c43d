"""An average of a network's weights over the steps: often better than the network itself, and never
trained."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from proxnas.common.types import State

Decay = Callable[[int], float]
"""What the average of the steps before weighs at step t = 1, 2, ..."""


def rising(decay: float) -> Decay:
    """A moving average: d rises to `decay` from 2/11 as (1 + t) / (10 + t), lest the random start
    weigh on it."""
    return lambda t: min(decay, (1 + t) / (10 + t))


def mean(t: int) -> float:
    """The mean over all steps (averaged SGD)."""
    return 1 - 1 / t


class Average:
    """w_avg <- d w_avg + (1 - d) w after each step, batch statistics included."""

    def __init__(self, network: nn.Module, decay: Decay) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.decay = decay
        self.t = 0

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        self.t += 1
        d = self.decay(self.t)
        mine, others = list(self.network.state_dict().values()), list(network.state_dict().values())
        pairs = [(a, w) for a, w in zip(mine, others, strict=True) if a.is_floating_point()]
        torch._foreach_lerp_([a for a, _ in pairs], [w for _, w in pairs], 1 - d)

    def state_dict(self) -> State:
        return {"t": self.t, "weights": self.network.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.t = state["t"]
        self.network.load_state_dict(state["weights"])
