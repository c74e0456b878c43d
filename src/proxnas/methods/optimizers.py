"""What trains w: SGD, or an optimizer of the user's, on a cosine. What moves A is in
architecture.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from proxnas.common.types import State
from proxnas.core.supernet import Supernet
from proxnas.methods.options import RatesOfW
from proxnas.runs.consensus import mean_gradients
from proxnas.runs.divergence import Guard, step_if_sound

Factory = Callable[[list[Tensor]], torch.optim.Optimizer]
"""The weights -> what trains them."""


@dataclass(frozen=True)
class WeightOptions(RatesOfW):
    """How w is trained in one search: its rates, and what the method and the data make of them."""

    clip_unrolled: bool = False
    """Clip the gradients of DARTS' unrolled step too, as its recurrent search does."""
    epochs: int = 50
    cycles: int = 1
    """Cosines one after the other within the search, each twice as long as the one before."""
    nesterov: bool = False
    drift: bool = False
    """Let weights of unselected candidates drift by momentum and decay, as the public NASP code
    does."""
    guard: Guard = field(default_factory=Guard, compare=False)
    """Watches loss and gradient, and lowers the learning rate of a search that had to go back."""
    factory: Factory | None = None
    """Another optimizer than SGD; its own rates fall by the same cosine."""

    def of(self, factory: Factory) -> WeightOptions:
        """The same with another optimizer, whose rate, momentum and decay are read off it."""
        # a weight of nobody's, only to read the rates off
        group = factory([torch.zeros(1, requires_grad=True)]).param_groups[0]
        rate = float(group["lr"])
        known = {name: group.get(name, 0.0) for name in ("momentum", "weight_decay")}
        # the cosine falls to the same share of its start as it would for SGD
        shape = self.learning_rate_min / self.learning_rate if self.learning_rate else 1.0
        return replace(
            self, factory=factory, learning_rate=rate, learning_rate_min=shape * rate, **known
        )


PACE_EVERY = 10
"""Steps between two measurements of how far an optimizer of the user's moves w."""


class WeightOptimizer:
    """Line 6 of Alg. 2: one SGD step on w with a clipped gradient, the learning rate on a cosine
    over all steps."""

    def __init__(self, net: Supernet, options: WeightOptions, steps_per_epoch: int) -> None:
        self.options = options
        self.steps_per_epoch = steps_per_epoch
        self.weights: list[Tensor] = [w for w in net.module.parameters() if w.requires_grad]
        self.buffers = [x for x in net.module.buffers() if x.is_floating_point()]
        self.sgd = options.factory(self.weights) if options.factory else self._sgd(net)
        # of each group as a multiple of the first rate: one cosine moves all of them
        self.rates = [
            group["lr"] / (options.learning_rate or 1.0) for group in self.sgd.param_groups
        ]
        self.measured_pace: float | None = None
        # float16 loses small gradients: the loss is scaled up, and steps with an overflow are left
        # out
        self.scaler = torch.amp.GradScaler(net.device.type, enabled=net.precision == torch.float16)
        self.restart()

    def _sgd(self, net: Supernet) -> torch.optim.Optimizer:
        o = self.options
        return torch.optim.SGD(
            self.weights,
            lr=o.learning_rate,
            momentum=o.momentum,
            weight_decay=o.weight_decay,
            nesterov=o.nesterov and o.momentum > 0,
            fused=net.device.type in ("cpu", "cuda", "mps"),
        )

    @property
    def steps(self) -> int:
        """Of the whole search."""
        return self.steps_per_epoch * self.options.epochs

    @property
    def progress(self) -> float:
        """The share of all steps that is done, which every schedule of a search goes by: at the
        start of an epoch it is where a schedule by epochs would be, and a search of one epoch has
        all of the schedule too."""
        return min(1.0, self.t / self.steps)

    @property
    def learning_rate(self) -> float:
        """The rate of the step that comes next."""
        o = self.options
        # min + (max - min) (1 + cos(pi progress)) / 2
        cosine = (1 + math.cos(math.pi * cycled(self.t, self.steps, o.cycles))) / 2
        return o.guard.factor * (
            o.learning_rate_min + (o.learning_rate - o.learning_rate_min) * cosine
        )

    @property
    def _first_rate(self) -> float:
        return self.options.guard.factor * self.options.learning_rate

    def step(self, loss: Tensor, share: float = 1.0, examples: int = 1) -> None:
        """`share`: how large a step the batch stands for; `examples`: how many it has, to weigh it
        among the parts that other processes have."""
        self.accumulate(loss)
        # still scaled up: every process has the same scale, and the mean keeps it
        loss = mean_gradients(self.weights, self.buffers, loss, examples)
        # the norm to clip at is that of the gradient itself
        self.scaler.unscale_(self.sgd)
        norm = nn.utils.clip_grad_norm_(self.weights, self.options.clip)
        for group, rate in zip(self.sgd.param_groups, self.rates, strict=True):
            group["lr"] = share * self.learning_rate * rate
        before = self._before_measuring()
        # a gradient beyond float16 is no fault of the search: the scaler sees to it
        if self.scaler.is_enabled():
            self.options.guard.judge(loss)
            self.scaler.step(self.sgd)
            self.scaler.update()
        else:
            step_if_sound(self.sgd, self.options.guard.judge(loss, norm))
        if before is not None:
            self._measure(before)
        self.t += 1
        self._clear()

    def pace(self, steps: float) -> float:
        """How far so many steps of a training move w, as a multiple of its gradient.

        At the rate that a training begins with: what is found will be trained anew, and what that
        promises does not shrink because the rate of this search falls.
        """
        if self.measured_pace is not None:
            return steps * self.measured_pace
        # momentum sums up so many steps
        return steps * self._first_rate / (1 - self.options.momentum)

    def _before_measuring(self) -> list[Tensor] | None:
        """A copy of w in those steps in which the pace is measured; SGD's is known."""
        due = self.options.factory is not None and self.t % PACE_EVERY == 0
        return [w.detach().clone() for w in self.weights] if due else None

    @torch.no_grad()
    def _measure(self, before: list[Tensor]) -> None:
        """|step| / |gradient|: what Adam and its kin make of the learning rate."""
        pairs = [
            (w, old) for w, old in zip(self.weights, before, strict=True) if w.grad is not None
        ]
        moved = torch.stack([(w - old).norm() for w, old in pairs]).norm()
        slope = torch.stack([w.grad.norm() for w, _ in pairs if w.grad is not None]).norm()
        # the cosine's part is taken out: the pace is that of the rate that a training begins with
        fallen = self.learning_rate / (self._first_rate or 1.0)
        ratio = float(moved / (fallen * slope).clamp(min=1e-12))
        if math.isfinite(ratio):
            self.measured_pace = ratio

    def accumulate(self, loss: Tensor) -> None:
        """Add the gradient of a loss to what the next step moves by."""
        self.scaler.scale(loss).backward()

    def restart(self) -> None:
        """Start anew; with `drift` every weight gets a zero gradient, so that SGD touches all of
        them."""
        self.t = 0
        if self.options.factory:
            self.sgd.state.clear()
            self._clear()
            return
        for w in self.weights:
            # SGD's own first step makes this buffer, but its fused form cannot mix first and later
            # steps
            self.sgd.state[w] = (
                {"momentum_buffer": torch.zeros_like(w)} if self.options.momentum else {}
            )
            w.grad = torch.zeros_like(w) if self.options.drift else None

    def _clear(self) -> None:
        # a gradient of None leaves a weight untouched, a gradient of zero lets it drift
        self.sgd.zero_grad(set_to_none=not self.options.drift)

    def momentum_of(self, w: Tensor) -> Tensor | None:
        """The momentum buffer of a weight, None if there is no momentum."""
        buffer: Tensor | None = self.sgd.state.get(w, {}).get("momentum_buffer")
        return buffer

    def state_dict(self) -> State:
        state = {"t": self.t, "sgd": self.sgd.state_dict(), "scaler": self.scaler.state_dict()}
        return state if self.measured_pace is None else state | {"pace": self.measured_pace}

    def load_state_dict(self, state: State) -> None:
        self.t, self.measured_pace = state["t"], state.get("pace")
        self.sgd.load_state_dict(state["sgd"])
        self.scaler.load_state_dict(state["scaler"])


def cycled(t: int, steps: int, cycles: int) -> float:
    """Progress after t of all steps within the cycle that runs; the cycles last 1, 2, 4, ... parts
    of the whole."""
    parts = min(t, steps) * ((1 << cycles) - 1) / steps  # in this order exact where a cycle ends
    # cycle c begins after 1 + 2 + ... + 2^(c-1) = 2^c - 1 parts and has 2^c of them
    cycle = min(int(math.log2(parts + 1)), cycles - 1)
    return (parts + 1) / (1 << cycle) - 1
