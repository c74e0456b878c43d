"""Scores of untrained networks against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from proxnas.core.zero_cost import NoScore, grad_norm, linearise, naswot, synflow, zico


class Signs(nn.Module):
    """A ReLU whose input is given."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(x)


def test_naswot_counts_relus_that_are_alike() -> None:
    x = torch.tensor([[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]])
    # both on in the first and the last, unlike in the second: K = [[3, 2], [2, 3]]
    assert naswot(lambda: Signs()(x)) == pytest.approx(math.log(3 * 3 - 2 * 2))


@pytest.mark.parametrize("relu", [nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), torch.relu])
def test_naswot_sees_every_form_of_a_relu_once(relu: nn.Module) -> None:
    x = torch.tensor([[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]])
    assert naswot(lambda: relu(x.clone())) == pytest.approx(math.log(5))


def test_naswot_adds_up_over_the_layers() -> None:
    x = torch.tensor([[1.0, -1.0], [1.0, 1.0]])  # K = [[2, 1], [1, 2]], in both ReLUs
    assert naswot(lambda: (Signs()(x), Signs()(x))) == pytest.approx(math.log(4 * 4 - 2 * 2))


def test_naswot_of_a_network_without_relus_is_refused() -> None:
    with pytest.raises(NoScore, match="no ReLU"):
        naswot(lambda: nn.Linear(2, 2)(torch.ones(3, 2)))


def test_synflow_is_the_flow_through_all_layers_without_norms_and_signs() -> None:
    net = nn.Sequential(
        nn.Linear(2, 3, bias=False), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 1, bias=False)
    )
    for w in net.parameters():
        w.data.fill_(-0.5)
    linearise(net)
    # R = 2 * 3 * 0.5^2, and sum w dR/dw = R for each of the two layers
    assert synflow(net, list(net.parameters()), (2,)) == pytest.approx(math.log(2 * 6 * 0.25))


def test_zico_is_mean_over_deviation_of_gradients() -> None:
    # mean |g| 1 and 2, deviations sqrt 2 and 0 (left out)
    batches = [[torch.tensor([0.0, 2.0])], [torch.tensor([2.0, 2.0])]]
    assert zico(batches) == pytest.approx(math.log(1 / math.sqrt(2)))
    twice = [[*layers, *layers] for layers in batches]
    assert zico(twice) == pytest.approx(2 * math.log(1 / math.sqrt(2)))


def test_grad_norm_adds_up_the_norms_of_layers() -> None:
    assert grad_norm([torch.tensor([3.0, 4.0]), torch.tensor([2.0])]) == pytest.approx(7.0)
