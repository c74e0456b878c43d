"""Scores of a network that was never trained; more is better.

    naswot      log det K, K[i, j] = how many ReLUs are alike, both on or both off, for the examples
                i and j (Mellor, Turner, Storkey, Crowley, ICML 2021)
    synflow     log sum w dR/dw, R = the sum of outputs for an input of ones, every w replaced by
                |w|, no normalisation (Tanaka, Kunin, Yamins, Ganguli, NeurIPS 2020)
    zico        sum over layers of log sum_w mean |g| / std g, over the gradients g of a few batches
                (Li, Yang, Bhardwaj, Marculescu, ICLR 2023; the deviation is that of g as in its
                code, in its text that of |g|)
    grad norm   sum over layers of |g|_2 (Abdelfattah, Mehrotra, Dudziak, Lane, ICLR 2021)

B examples of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

RELUS = (
    nn.functional.relu,
    nn.functional.relu6,
    torch.relu,
    torch.relu_,
    Tensor.relu,
    Tensor.relu_,
)


class NoScore(ValueError):
    """The score says nothing of this network; the message says why."""


class _CountAlike(TorchFunctionMode):
    """Adds up K over all ReLUs that run within."""

    def __init__(self) -> None:
        super().__init__()
        self.K: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # nn.ReLU6 is a hardtanh from 0 on; torch hands its bounds over by name
        if func in RELUS or (func is nn.functional.hardtanh and kwargs.get("min_val") == 0):
            self._count(args[0] if args else kwargs["input"])
        return func(*args, **kwargs)

    def _count(self, x: Tensor) -> None:
        if self.K is not None and len(x) != len(self.K):
            return  # of something else than the examples
        # (B, units)
        on = (x.detach() > 0).flatten(1).float()
        off = 1 - on
        # K[i, j] (B, B): units on in both, and units off in both
        alike = (on @ on.T + off @ off.T).double()
        self.K = alike if self.K is None else self.K + alike


@torch.no_grad()
def naswot(run: Callable[[], object]) -> float:
    """log det K of the network that `run` runs on one batch."""
    with _CountAlike() as counted:
        run()
    if counted.K is None:
        raise NoScore("the network has no ReLU")
    # the logarithm at once: the determinant itself is beyond float64 for large batches
    return float(torch.linalg.slogdet(counted.K).logabsdet)


def linearise(net: nn.Module) -> None:
    """Changes a network into the one that synflow scores: |w| in float64, no batch norms."""
    for module in list(net.modules()):
        for name, part in module.named_children():
            # it would take out again the sizes of weights that R is about
            if isinstance(part, _BatchNorm):
                setattr(module, name, nn.Identity())
    net.double()
    for w in net.parameters():
        # then R has no negative terms, and w dR/dw cannot cancel
        w.data.abs_()


def synflow(
    net: Callable[[Tensor], Tensor], weights: Sequence[Tensor], shape: Iterable[int]
) -> float:
    """The score of a network that was linearised, for one example of that shape."""
    like = weights[0]
    R = net(torch.ones(1, *shape, dtype=like.dtype, device=like.device)).sum()
    if not R.requires_grad:
        return math.log(TINY)  # nothing that leads to the output has weights
    found = torch.autograd.grad(R, list(weights), allow_unused=True)
    total = 0.0
    for w, g in zip(weights, found, strict=True):
        # unused: a weight that leads nowhere has no flow
        if g is not None:
            total += float((w * g).detach().sum())
    return math.log(max(total, TINY))


TINY = 1e-300
"""What a score of nothing counts as, in a logarithm."""


def zico(gradients: Sequence[Sequence[Tensor]]) -> float:
    """Of the gradients of every batch, layer by layer."""
    total = 0.0
    for layer in zip(*gradients, strict=True):
        g = torch.stack(layer)
        # (batches, ...) -> one deviation a weight; without any the ratio would be infinite.
        # Tensor.std takes nine times as long along a first dimension of few
        std = ((g - g.mean(0)).square().sum(0) / (len(g) - 1)).sqrt()
        ratio = float((g.abs().mean(0)[std > 0] / std[std > 0]).sum())
        total += math.log(ratio) if ratio > 0 else 0.0
    return total


def grad_norm(gradient: Iterable[Tensor]) -> float:
    """Of the gradient of one batch, layer by layer."""
    return sum(float(g.norm()) for g in gradient)
