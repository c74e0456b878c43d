"""Modules and inputs to be timed, from such as have shapes only."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


def materialised(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy on the device, also of a module on the meta device, with weights that are numbers as
    good as any to be timed: not zeros, and none that are denormal, which some processors are slow
    at."""
    real = copy.deepcopy(module).to_empty(device=device)
    generator = torch.Generator().manual_seed(0)
    for name, x in (*real.named_parameters(), *real.named_buffers()):
        if x.is_floating_point():
            # weights in [-0.1, 0.1), running variances in [1, 1.2)
            low = 1.0 if name.endswith("running_var") else -0.1
            x.data.copy_(torch.rand(x.shape, generator=generator) * 0.2 + low)
        else:
            # counters and indices: 0 is valid wherever one is
            x.data.zero_()
    return real


def alike(x: Any, device: torch.device) -> Any:
    """An input of the same shape; anything but a tensor as it is."""
    if not isinstance(x, Tensor):
        return x
    if not x.is_floating_point():
        # tokens: index 0 is in every vocabulary
        return torch.zeros(x.shape, dtype=x.dtype, device=device)
    real = torch.rand(x.shape, dtype=x.dtype, device=device)
    # images lie in memory as in training
    return real.to(memory_format=torch.channels_last) if real.ndim == 4 else real
