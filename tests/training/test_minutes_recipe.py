"""What a training by the clock is made of: orthogonalised steps, and schedules over time used."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from proxnas.training.convolutions import MuonAndSgd, Rates
from proxnas.training.muon import Muon, orthogonalise
from proxnas.training.pace import LOWEST, WARM_UP, Pace, rate_factor


@pytest.mark.parametrize("shape", [(2, 8, 30), (3, 16, 16), (1, 40, 9)])
def test_orthogonalised_matrices_keep_their_singular_vectors(shape: tuple[int, ...]) -> None:
    """U S V^T becomes U S' V^T with all of S' near 1, whether wide or tall."""
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    y = orthogonalise(x, steps=8)
    U, S, V = torch.linalg.svd(x, full_matrices=False)
    found = U.mT @ y @ V.mT
    diagonal = torch.diagonal(found, dim1=-2, dim2=-1)
    torch.testing.assert_close(torch.diag_embed(diagonal), found, rtol=0, atol=1e-8)
    assert ((diagonal > 0.6) & (diagonal < 1.3)).all()
    assert S.max() / S.min() > 1.5  # they were not near each other before


def test_steps_on_the_gram_matrix_are_those_on_the_matrix() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    plain = x / x.norm(dim=(1, 2), keepdim=True)
    for _ in range(3):
        gram = plain @ plain.mT
        plain = 3.4445 * plain + (-4.7750 * gram + 2.0315 * gram @ gram) @ plain
    torch.testing.assert_close(orthogonalise(x, 3), plain, rtol=0, atol=1e-6)


def test_a_step_of_muon_by_hand() -> None:
    """Norms are fixed before the step; the second step has Nesterov momentum in it."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(6, 2, 3, 3, dtype=torch.float64))
    gradients = [torch.randn_like(weight), torch.randn_like(weight)]
    expected, average = weight.detach().clone(), torch.zeros_like(weight)
    optimizer = Muon([weight], lr=0.1, momentum=0.5, steps=3)
    for gradient in gradients:
        average = 0.5 * average + gradient
        turn = orthogonalise((gradient + 0.5 * average).reshape(1, 6, 18), 3).view_as(weight)
        expected = expected * 6**0.5 / expected.norm() - 0.1 * turn
        weight.grad = gradient.clone()
        optimizer.step()
    torch.testing.assert_close(weight.detach(), expected)


def test_a_weight_without_a_gradient_stays() -> None:
    network = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(4, 4, 3, bias=False))
    before = network[1].weight.detach().clone()
    optimizer = MuonAndSgd(nn.Sequential(*network, nn.BatchNorm2d(4)), Rates())
    network[0](torch.randn(2, 2, 5, 5)).square().mean().backward()
    optimizer.step(torch.tensor(1.0), 1.0)
    assert torch.equal(network[1].weight, before)


def test_which_optimizer_has_what() -> None:
    """Grouped convolutions and those with a bias are no matrices with a norm behind them."""
    full, grouped = nn.Conv2d(4, 4, 3, bias=False), nn.Conv2d(4, 4, 3, groups=2, bias=False)
    excite, norm, head = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Linear(4, 2)
    both = MuonAndSgd(nn.Sequential(full, grouped, excite, norm, head), Rates())
    assert [id(w) for w in both.muon.param_groups[0]["params"]] == [id(full.weight)]
    plain, decayed, quick = both.sgd.param_groups
    assert [id(w) for w in quick["params"]] == [id(norm.bias)]
    assert {id(w) for w in plain["params"]} == {
        id(w) for w in (norm.weight, excite.bias, head.bias)
    }
    assert {id(w) for w in decayed["params"]} == {
        id(module.weight) for module in (grouped, excite, head)
    }
    assert plain["weight_decay"] == 0 and decayed["weight_decay"] > 0


def test_biases_of_norms_go_at_their_own_rate() -> None:
    """Each group at a share of its peak; Nesterov's first step is 1 + momentum gradients long."""
    conv, norm, head = nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.Linear(3, 2)
    optimizer = MuonAndSgd(nn.Sequential(conv, norm, head), Rates(others=0.1, shifts=4.0))
    norm.bias.grad, head.bias.grad = torch.full((3,), 0.01), torch.full((2,), 0.01)
    before = head.bias.detach().clone()
    optimizer.step(torch.tensor(1.0), 0.5)
    torch.testing.assert_close(norm.bias.detach(), torch.full((3,), -0.5 * 4 * 0.01 * 1.85))
    torch.testing.assert_close(before - head.bias, torch.full((2,), 0.5 * 0.1 * 0.01 * 1.85))


def test_a_step_that_is_not_finite_is_left_out() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2))
    optimizer = MuonAndSgd(network, Rates())
    before = [w.detach().clone() for w in network.parameters()]
    for weight in network.parameters():
        weight.grad = torch.full_like(weight, torch.nan)
    optimizer.step(torch.tensor(1.0), 1.0)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))
    with pytest.raises(Exception, match="not finite"):
        optimizer.guard.settle()


@given(st.floats(0, 1))
def test_the_rate_is_between_its_lowest_and_its_peak(share: float) -> None:
    assert LOWEST <= rate_factor(share) <= 1
    if LOWEST < share < WARM_UP - 0.01:
        assert rate_factor(share + 0.005) > rate_factor(share)
    if WARM_UP < share < 0.98:
        assert rate_factor(share + 0.005) < rate_factor(share)


def test_the_rate_has_its_peak_when_it_is_warm() -> None:
    assert rate_factor(WARM_UP) == 1
    assert rate_factor(0.0) == rate_factor(1.0) == LOWEST


class Hands:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_pace_goes_by_the_clock_and_keeps_what_it_said() -> None:
    clock = Hands()
    pace = Pace(10.0, clock=clock)
    clock.now += 1
    assert pace.next() == pytest.approx(0.1)
    clock.now += 4
    assert pace.next() == pytest.approx(0.5) and not pace.over()
    clock.now += 5
    assert pace.over()
    assert pace.shares == pytest.approx([0.1, 0.5])


def test_a_pace_goes_on_with_the_time_that_was_used() -> None:
    clock = Hands()
    pace = Pace(10.0, clock=clock)
    clock.now += 4
    pace.next()
    state = pace.state_dict()
    clock.now += 1000  # nobody ran meanwhile
    again = Pace(10.0, clock=clock)
    again.load_state_dict(state)
    assert again.shares == pace.shares
    assert again.used() == pytest.approx(4)
    clock.now += 6
    assert again.over()


def test_a_busier_machine_leaves_less_time_for_steps() -> None:
    """What follows the steps takes longer there; the end is where it was."""
    clock, computing = Hands(), Hands()
    pace = Pace(100.0, clock=clock, delivery=10.0, computing=computing)
    clock.now += 40
    computing.now += 40
    assert pace.next() == pytest.approx(0.4)
    clock.now += 20
    computing.now += 5  # four times slower: what follows takes 40 seconds, not 10
    assert pace.next() == pytest.approx(60 / 70, abs=1e-5)
    clock.now += 9
    computing.now += 2.25
    assert not pace.over()
    clock.now += 1
    assert pace.over()
    clock.now += 4
    computing.now += 5  # quiet again
    assert pace.next() == pytest.approx(60 / 70, abs=0.03) and not pace.over()
    assert pace.shares == sorted(pace.shares)


def test_a_pace_can_follow_another() -> None:
    pace = Pace(1.0, follow=[0.0, 0.3, 0.9])
    assert [pace.next() for _ in range(3)] == [0.0, 0.3, 0.9]
    assert pace.over()
