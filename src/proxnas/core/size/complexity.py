"""R(A), the paper's regulariser of model size (Eq. newreg), and the sizes of networks.

K candidates; p_k is what candidate k costs: in the paper its parameters, counted from the modules
themselves; for other costs see costs.py.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from proxnas.common.types import Matrices
from proxnas.core.supernet import Supernet


def parameter_costs(net: Supernet) -> dict[str, Tensor]:
    """Group -> p_k / p_bar (K,) for p_k the mean parameters of candidate k over all its places."""
    costs = {}
    for name, group in net.groups.items():
        places = [
            choice for choice in net.choices.values() if choice.row and choice.row.group == name
        ]
        counts = [[parameters(candidate) for candidate in choice.candidates] for choice in places]
        # (places, K) -> (K,); a group without Choices has no places and costs nothing
        counted = torch.tensor(counts, dtype=torch.float64).reshape(-1, len(group.candidates))
        costs[name] = counted.sum(0) / max(1, len(places))
    return shares(costs)


def shares(p: dict[str, Tensor]) -> dict[str, Tensor]:
    """Group -> p_k / p_bar (K,): what candidates cost as a share of their sum; where all cost
    nothing, R = 0."""
    return {
        name: cost / cost.sum().clamp(min=torch.finfo(cost.dtype).tiny) for name, cost in p.items()
    }


def R(A: Matrices, costs: dict[str, Tensor]) -> Tensor:
    """R(A) = sum_k p_k / p_bar |a_k|^2, over the columns a_k of every group that has costs."""
    total = torch.zeros((), dtype=torch.float64)
    for name, cost in costs.items():
        # (K,) of the paper's |a_k|^2, a_k the kth column of A over all rows
        total = total + (cost * A[name].square().sum(0)).sum()
    return total


def R_gradient(A: Matrices, costs: dict[str, Tensor]) -> Matrices:
    """dR/dA = 2 p_k / p_bar a; at a discrete A_bar it touches the selected entries only."""
    # (K,) * (E, K)
    return {name: 2 * cost * A[name] for name, cost in costs.items()}


def parameters(module: nn.Module) -> int:
    """How many trainable numbers a module holds; an auxiliary classifier, dropped after training,
    does not count."""
    kept = (w for name, w in module.named_parameters() if "auxiliary" not in name.split("."))
    return sum(w.numel() for w in kept if w.requires_grad)


def multiply_adds(module: nn.Module, shape: tuple[int, int, int]) -> int:
    """Multiply-adds of one image (C, H, W) through convolutions and matrix products."""
    return multiply_adds_of(module, torch.empty(1, *shape, device="meta"))


def multiply_adds_of(module: nn.Module, x: Tensor) -> int:
    """The same of an input on the meta device."""
    # on the meta device nothing is computed: the count needs shapes only
    shadow = copy.deepcopy(module).to("meta").eval()
    for layer in shadow.modules():
        # they keep the shape and have no products that count, but the counter takes them apart
        if isinstance(layer, (nn.BatchNorm2d, nn.ReLU)):
            layer.forward = _leave  # type: ignore[method-assign,assignment]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow(x)
    # the counter takes a multiply-add for two operations
    return int(counter.get_total_flops()) // 2


def _leave(x: Tensor) -> Tensor:
    return x
