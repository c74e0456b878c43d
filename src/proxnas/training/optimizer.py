"""The update of the weights: SGD or AdamW, clipped, on a schedule over all steps; and an average of
them over the steps, which is often better than the network itself and never trained."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from proxnas.common.types import State
from proxnas.runs.consensus import mean_gradients
from proxnas.runs.divergence import Guard, step_if_sound
from proxnas.training.options import LONGEST_WARMUP, ScheduledOptions

FUSED = ("cpu", "cuda", "mps")


def factor(config: ScheduledOptions, t: int, steps_per_epoch: int) -> float:
    """What the learning rate is multiplied by in step t.

    At the start of an epoch it is where the published schedules by epochs are, and it falls on
    within, so that a training of one epoch is annealed too.
    """
    # in steps
    warmup = min(config.warmup, LONGEST_WARMUP * config.epochs) * steps_per_epoch
    rising = min(1.0, (t + 1) / warmup) if warmup else 1.0
    epoch = t / steps_per_epoch
    if config.schedule == "exponential":
        return rising * float(config.gamma**epoch)
    low = config.learning_rate_min / config.learning_rate if config.learning_rate else 0.0
    # low + (1 - low) (1 + cos(pi t / T)) / 2
    return rising * (low + (1 - low) * (1 + math.cos(math.pi * epoch / config.epochs)) / 2)


class Optimizer:
    """Owns the weights' update; `t` counts the steps done, `guard` watches over them."""

    def __init__(self, network: nn.Module, config: ScheduledOptions, steps_per_epoch: int) -> None:
        self.config, self.steps_per_epoch, self.t, self.guard = config, steps_per_epoch, 0, Guard()
        self.weights = [w for w in network.parameters() if w.requires_grad]
        self.buffers = [x for x in network.buffers() if x.is_floating_point()]
        device = self.weights[0].device.type
        self.inner = self._make(device in FUSED)
        # float16 loses small gradients: the loss is scaled up, and steps with an overflow are left
        # out
        self.scaler = torch.amp.GradScaler(device, enabled=config.precision == "fp16")

    def _make(self, fused: bool) -> torch.optim.Optimizer:
        c = self.config
        if c.optimizer == "adamw":
            return torch.optim.AdamW(
                self.weights, lr=c.learning_rate, weight_decay=c.weight_decay, fused=fused
            )
        return torch.optim.SGD(
            self.weights,
            lr=c.learning_rate,
            momentum=c.momentum,
            weight_decay=c.weight_decay,
            fused=fused,
        )

    def backward(self, loss: Tensor) -> None:
        """Adds the gradient of a loss."""
        self.scaler.scale(loss).backward()

    def step(self, loss: Tensor, examples: int = 1) -> None:
        """One update by the gradients added up since the last, unless they or their `loss` are not
        finite.

        `examples`: how many they are of, to weigh them among those of other processes.
        """
        # still scaled up: every process has the same scale, and the mean keeps it
        loss = mean_gradients(self.weights, self.buffers, loss, examples)
        self.scaler.unscale_(self.inner)
        rate = self.config.learning_rate * factor(self.config, self.t, self.steps_per_epoch)
        norm = self._clipped()
        for group in self.inner.param_groups:
            group["lr"] = self.guard.factor * rate
        # a gradient beyond float16 is no fault of the network: the scaler sees to it
        if self.scaler.is_enabled():
            self.guard.judge(loss)
            self.scaler.step(self.inner)
            self.scaler.update()
        else:
            step_if_sound(self.inner, self.guard.judge(loss, norm))
        self.inner.zero_grad()
        self.t += 1

    def _clipped(self) -> Tensor:
        """The norm of the gradient, which is cut down to --clip."""
        if self.config.clip:
            return nn.utils.clip_grad_norm_(self.weights, self.config.clip, foreach=True)
        return nn.utils.get_total_norm(
            [w.grad for w in self.weights if w.grad is not None], foreach=True
        )

    def state_dict(self) -> State:
        return {"t": self.t, "inner": self.inner.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.t = state["t"]
        self.inner.load_state_dict(state["inner"])
        self.scaler.load_state_dict(state["scaler"])


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
        # counters of batches are whole numbers and have no average
        pairs = [(a, w) for a, w in zip(mine, others, strict=True) if a.is_floating_point()]
        # a + (1 - d) (w - a) = d a + (1 - d) w
        torch._foreach_lerp_([a for a, _ in pairs], [w for _, w in pairs], 1 - d)

    def state_dict(self) -> State:
        return {"t": self.t, "weights": self.network.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.t = state["t"]
        self.network.load_state_dict(state["weights"])
