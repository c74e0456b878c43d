"""The update of a convolutional network that has minutes: Muon for its convolutions, Nesterov SGD
for what is left, its norms and its classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proxnas.common.types import State
from proxnas.runs.divergence import Guard
from proxnas.training.muon import Muon


@dataclass(frozen=True)
class Rates:
    """Peak learning rates, and what belongs to them."""

    convolutions: float = 0.15
    others: float = 0.05
    shifts: float = 3.2
    """Of the biases of batch norms. Their gradients are small, and in a few hundred steps a rate
    like that of the others leaves every ReLU about where it began, at half of its inputs."""
    momentum: float = 0.85
    """Of SGD."""
    decay: float = 2e-4
    """Of the classifier's matrix; norms and biases are left alone."""


class MuonAndSgd:
    """Both optimizers as one; an unsound step is left out, and the loop told of it."""

    def __init__(self, network: nn.Module, rates: Rates) -> None:
        self.rates, self.guard = rates, Guard()
        self.weights = list(network.parameters())
        # groups do not see each other's channels, and a convolution with a bias has no norm behind
        convolutions, matrices, vectors, shifts = [], [], [], []
        for module in network.modules():
            for weight in module.parameters(recurse=False):
                if isinstance(module, nn.Conv2d) and module.groups == 1 and module.bias is None:
                    convolutions.append(weight)
                elif isinstance(module, nn.BatchNorm2d) and weight is module.bias:
                    shifts.append(weight)
                elif weight.ndim > 1:
                    matrices.append(weight)
                else:
                    vectors.append(weight)
        self.muon = Muon(convolutions, rates.convolutions)
        plain = {"params": vectors, "weight_decay": 0.0, "peak": rates.others}
        decayed = {"params": matrices, "weight_decay": rates.decay, "peak": rates.others}
        quick = {"params": shifts, "weight_decay": 0.0, "peak": rates.shifts}
        self.sgd = torch.optim.SGD(
            [group for group in (plain, decayed, quick) if group["params"]],
            lr=rates.others,
            momentum=rates.momentum,
            nesterov=True,
        )

    def step(self, loss: Tensor, factor: float) -> None:
        """One update by the gradients, at the peak rates times `factor`; then there are none."""
        gradients = [w.grad for w in self.weights if w.grad is not None]
        unsound = self.guard.judge(loss, nn.utils.get_total_norm(gradients, foreach=True))
        if not unsound.item():
            factor *= self.guard.factor
            for group in self.muon.param_groups:
                group["lr"] = factor * self.rates.convolutions
            # each group has a peak of its own, and all the same course
            for group in self.sgd.param_groups:
                group["lr"] = factor * group["peak"]
            self.muon.step()
            self.sgd.step()
        for weight in self.weights:
            weight.grad = None

    def state_dict(self) -> State:
        return {"muon": self.muon.state_dict(), "sgd": self.sgd.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.muon.load_state_dict(state["muon"])
        self.sgd.load_state_dict(state["sgd"])
