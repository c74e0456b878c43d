"""What every search method is, gradient-based or sampling, and the weight step that most of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from proxnas.choice import Supernet
from proxnas.clock import Clock
from proxnas.types import Batch, Matrices, State


class Stream(Protocol):
    """An endless, persistent source of batches; its length is the batches of an epoch."""

    def next(self) -> Batch: ...

    def __len__(self) -> int: ...


class Metrics(NamedTuple):
    """What one step reports; tensors stay on the device and are read at the end of an epoch."""

    loss: Tensor
    correct: Tensor
    images: int
    changes: int


class Validation(NamedTuple):
    """How good an architecture is on the half of the data for A."""

    loss: float
    accuracy: float


class Method(Protocol):
    """One search; differences between methods live in their constructors, never in the loop."""

    clock: Clock

    def step(self) -> Metrics:
        """One iteration: what is done for one batch of training images."""

    def use_current(self) -> None:
        """Set the network to the architecture as it stands."""

    def validation(self) -> Validation:
        """How good the architecture is that would be returned now."""

    def architecture(self) -> tuple[Matrices, Matrices]:
        """(A, A_bar): the continuous and the discrete architecture as they stand."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


@dataclass(frozen=True)
class WeightOptions:
    """SGD for w, with the defaults of the public DARTS and NASP codes."""

    learning_rate: float = 0.025
    learning_rate_min: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 3e-4
    clip: float = 5.0
    epochs: int = 50
    drift: bool = False
    """Let weights of unselected candidates drift by momentum and decay, as the public NASP code does."""


@dataclass(frozen=True)
class ArchitectureOptions:
    """How A starts and moves; where paper and public code differ, `--preset` chooses."""

    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.5, 0.999)
    weight_decay: float = 0.0
    noise: float = 1e-3
    """Standard deviation of the normal noise around the initial 0.5; without it all rows tie."""
    value: str = "one"
    """Value of the selected entry of A_bar: `one`, or `a_k` as in the paper."""
    ties: str = "last"
    """Equal entries (and rows all zero): `first` index, or the `last` selected, else random by seed."""
    eta: float = 0.0
    """Weight of the size regulariser R(A_bar)."""
    eta_cells: str = "all"
    """Cells that R counts: `all`, or the `normal` cell only as in the public code."""
    order: int = 1
    """1: gradient at w. 2: DARTS' second-order gradient."""
    warmup: int = 0
    """Epochs at the start in which only w is trained."""
    random_cells: int = 8
    """How many cells `random` draws and trains."""


@dataclass(frozen=True)
class Setup:
    """What a method over a supernet is built from."""

    net: Supernet
    train: Stream
    valid: Stream
    architecture: ArchitectureOptions
    weights: WeightOptions
    clock: Clock
    evaluate: Callable[[], Validation]
    """Loss and accuracy of the network in use on the whole half for A."""
    seed: int = 0


class WeightOptimizer:
    """Line 6 of Alg. 2: one SGD step on w with a clipped gradient, the learning rate on a cosine over epochs."""

    def __init__(self, net: Supernet, options: WeightOptions, steps_per_epoch: int) -> None:
        self.options = options
        self.steps_per_epoch = steps_per_epoch
        self.weights: list[Tensor] = [w for w in net.module.parameters() if w.requires_grad]
        self.sgd = torch.optim.SGD(
            self.weights,
            lr=options.learning_rate,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            fused=net.device.type in ("cpu", "cuda", "mps"),
        )
        self.restart()

    @property
    def learning_rate(self) -> float:
        """The rate of the epoch that runs."""
        o = self.options
        progress = min(self.t // self.steps_per_epoch, o.epochs) / o.epochs
        return o.learning_rate_min + (o.learning_rate - o.learning_rate_min) * (1 + math.cos(math.pi * progress)) / 2

    def step(self, loss: Tensor) -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, self.options.clip)
        self.sgd.param_groups[0]["lr"] = self.learning_rate
        self.sgd.step()
        self.t += 1
        self._clear()

    def restart(self) -> None:
        """Start anew; with `drift` every weight gets a zero gradient, so that SGD touches all of them."""
        self.t = 0
        for w in self.weights:
            # SGD's own first step makes this buffer, but its fused form cannot mix first and later steps
            self.sgd.state[w] = {"momentum_buffer": torch.zeros_like(w)} if self.options.momentum else {}
            w.grad = torch.zeros_like(w) if self.options.drift else None

    def _clear(self) -> None:
        # a gradient of None leaves a weight untouched, a gradient of zero lets it drift
        self.sgd.zero_grad(set_to_none=not self.options.drift)

    def momentum_of(self, w: Tensor) -> Tensor | None:
        """The momentum buffer of a weight, None if there is no momentum."""
        buffer: Tensor | None = self.sgd.state.get(w, {}).get("momentum_buffer")
        return buffer

    def state_dict(self) -> State:
        return {"t": self.t, "sgd": self.sgd.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.t = state["t"]
        self.sgd.load_state_dict(state["sgd"])


def weight_step(net: Supernet, batch: Batch, optimizer: WeightOptimizer, clock: Clock) -> tuple[Tensor, Tensor]:
    """(loss, correct answers) on a batch, and w moved by one step through the operations in use."""
    with clock("forward"):
        loss, output = net.loss(batch)
    with clock("backward"):
        optimizer.step(loss)
    return loss.detach(), correct(output, batch.y)


def correct(output: Tensor, y: Tensor) -> Tensor:
    """How many answers are right, still on the device."""
    return (output.detach().argmax(-1) == y).sum()


class UnrolledStep:
    """The second-order gradient of DARTS (Eq. updatealpha) around any first-order one.

    w' = w - xi (momentum buffer + dL_train/dw + decay w),   v = dL_val(w')/dw'
    dA = dL_val(w')/dA - xi [dL_train(w + Rv)/dA - dL_train(w - Rv)/dA] / 2R,   R = 0.01 / |v|
    """

    def __init__(self, net: Supernet, optimizer: WeightOptimizer) -> None:
        self.net = net
        self.optimizer = optimizer

    def __call__(self, gradient: ArchitectureGradient, train: Batch, valid: Batch) -> Matrices:
        weights, xi = self.optimizer.weights, self.optimizer.learning_rate
        kept = [w.detach().clone() for w in weights]
        _add(weights, self._direction(train), -xi)
        dA, v = gradient(valid, weights)
        _restore(weights, kept)
        R = 0.01 / norm(v)
        _add(weights, v, R)
        plus, _ = gradient(train, ())
        _restore(weights, kept)
        _add(weights, v, -R)
        minus, _ = gradient(train, ())
        _restore(weights, kept)
        return {name: dA[name] - xi * (plus[name] - minus[name]) / (2 * R) for name in dA}

    def _direction(self, train: Batch) -> list[Tensor | None]:
        """momentum * buffer + dL_train/dw + decay * w, for the weights that the architecture in use reaches."""
        o, weights = self.optimizer.options, self.optimizer.weights
        loss, _ = self.net.loss(train)
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        return [
            None if g is None else self._with_momentum(w, g.add(w.detach(), alpha=o.weight_decay))
            for w, g in zip(weights, gradients, strict=True)
        ]

    def _with_momentum(self, w: Tensor, direction: Tensor) -> Tensor:
        buffer = self.optimizer.momentum_of(w)
        return direction if buffer is None else direction.add_(buffer, alpha=self.optimizer.options.momentum)


class ArchitectureGradient(Protocol):
    """dF/dA on a batch at the weights as they stand, and dF/dw for the weights asked for."""

    def __call__(self, batch: Batch, weights: Sequence[Tensor]) -> tuple[Matrices, Sequence[Tensor | None]]: ...


def norm(tensors: Sequence[Tensor | None]) -> float:
    """The Euclidean norm of all of them together; the host reads it once."""
    present = [x for x in tensors if x is not None]
    return max(float(torch.stack(torch._foreach_norm(present)).norm()), 1e-12)


@torch.no_grad()
def _add(weights: Sequence[Tensor], direction: Sequence[Tensor | None], scale: float) -> None:
    pairs = [(w, d) for w, d in zip(weights, direction, strict=True) if d is not None]
    torch._foreach_add_([w for w, _ in pairs], [d for _, d in pairs], alpha=scale)


@torch.no_grad()
def _restore(weights: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    torch._foreach_copy_(list(weights), list(kept))
