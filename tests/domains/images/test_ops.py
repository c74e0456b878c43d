"""Operations that need more than their definition."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from proxnas.domains.images.operations import Pointwise

MANY_GRADIENTS = """
import torch
from proxnas.domains.images.operations import FactorizedReduce, final_norm
net = FactorizedReduce(4, 4, final_norm).to(memory_format=torch.channels_last)
x = torch.randn(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)
for _ in range(100):
    net(x).square().sum().backward()
"""


@pytest.mark.parametrize("channels", [4, 16])
@pytest.mark.parametrize("side", [8, 7])
def test_a_strided_pointwise_convolution_is_the_plain_one(channels: int, side: int) -> None:
    torch.manual_seed(0)
    mine = Pointwise(channels, 6, 2).double()
    plain = nn.Conv2d(channels, 6, 1, stride=2, bias=False).double()
    plain.load_state_dict(mine.state_dict())
    x = torch.randn(2, channels, side, side, dtype=torch.float64)
    torch.testing.assert_close(mine(x), plain(x))
    gradients = [torch.autograd.grad(net(x).square().sum(), net.weight)[0] for net in (mine, plain)]
    torch.testing.assert_close(*gradients)


def test_few_channels_do_not_harm_the_heap() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY_GRADIENTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
