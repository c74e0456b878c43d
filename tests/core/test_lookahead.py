"""lookahead.py: what training a candidate promises; and steps of A on one common scale."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from proxnas.common.types import Batch
from proxnas.core.choice import Choice
from proxnas.core.supernet import Supernet
from proxnas.methods.architecture import ArchitectureOptimizer
from proxnas.methods.options import DescendsA


class Net(nn.Module):
    """A Choice between two layers and the identity, a body before it and a head after it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        layers = {name: nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for name in ("one", "two")}
        self.choice = Choice({**layers, "skip": nn.Identity()}, share="row")
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.choice(self.body(x)))
        return y


def built() -> tuple[Net, Supernet, Batch, Batch]:
    torch.manual_seed(0)
    net = Net().double()
    train, valid = (
        Batch(torch.randn(8, 3, dtype=torch.float64), torch.arange(8) % 3) for _ in range(2)
    )
    supernet = Supernet(net)
    supernet.use({"row": torch.tensor([[1.0, 0.0, 0.0]])})
    return net, supernet, train, valid


def added(net: Net, batch: Batch, t: Tensor | float) -> Tensor:
    """The loss with t times the second candidate added to the first, which is selected."""
    x = net.body(batch.x)
    one, two, _ = net.choice.candidates
    return nn.functional.cross_entropy(net.head(one(x) + t * two(x)), batch.y)


def test_a_potential_is_the_product_of_two_mixed_derivatives() -> None:
    """u = d/da dL/dw_k at a = 0, by autograd of the loss with the candidate added."""
    net, supernet, train, valid = built()
    found = supernet.potentials(train, valid)["row"][0]
    w = list(net.choice.candidates[1].parameters())
    slopes = []
    for batch in (train, valid):
        t = torch.zeros((), dtype=torch.float64, requires_grad=True)
        (dt,) = torch.autograd.grad(added(net, batch, t), t, create_graph=True)
        slopes.append(torch.cat([u.flatten() for u in torch.autograd.grad(dt, w)]))
    torch.testing.assert_close(found[1], slopes[0] @ slopes[1], rtol=1e-9, atol=1e-12)
    assert found[2] == 0.0  # the identity has nothing to train


def test_it_foretells_what_a_step_of_the_weights_wins_on_validation() -> None:
    net, supernet, train, valid = built()
    potential = float(supernet.potentials(train, valid)["row"][0, 1])
    t, xi = 1e-3, 1e-2
    w = list(net.choice.candidates[1].parameters())
    before = added(net, valid, t).item()
    u = torch.autograd.grad(added(net, train, t), w)  # is t times the slope, to first order
    with torch.no_grad():
        for p, step in zip(w, u, strict=True):
            p -= xi * step
    won = before - added(net, valid, t).item()
    assert won / (xi * t * t) == pytest.approx(potential, rel=0.02)


def test_nothing_is_moved_by_looking_ahead() -> None:
    net, supernet, train, valid = built()
    before = {name: w.clone() for name, w in net.state_dict().items()}
    supernet.potentials(train, valid)
    assert all(torch.equal(w, before[name]) for name, w in net.state_dict().items())
    assert all(w.grad is None for w in net.parameters()) and supernet.route.tape is None


def test_a_node_that_the_loss_does_not_see_has_no_potential() -> None:
    class Unseen(Net):
        def forward(self, x: Tensor) -> Tensor:
            self.choice(self.body(x))
            y: Tensor = self.head(self.body(x))
            return y

    torch.manual_seed(0)
    batch = Batch(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))
    assert Supernet(Unseen()).potentials(batch, batch)["row"].count_nonzero() == 0


# ------------------------------------------------------- the common scale of A


def moved(optimizer: str, *gradients: list[float]) -> Tensor:
    A = {"a": torch.full((1, 2), 0.5, dtype=torch.float64)}
    steps = ArchitectureOptimizer(A, DescendsA(arch_learning_rate=0.01), optimizer)
    for g in gradients:
        steps.step({"a": torch.tensor([g], dtype=torch.float64)})
    return A["a"][0] - 0.5


def test_scaled_steps_keep_the_proportion_of_scores_where_adam_does_not() -> None:
    faint, strong = moved("scaled", *[[-0.1, -1.0]] * 5).tolist()
    assert strong == pytest.approx(10 * faint)
    faint, strong = moved("adam", *[[-0.1, -1.0]] * 5).tolist()
    assert strong == pytest.approx(faint, rel=1e-3)


def test_scaled_steps_do_not_depend_on_the_unit_of_the_loss() -> None:
    gradients = [[-0.1, 1.0], [0.3, 0.2], [-0.5, 0.1]]
    torch.testing.assert_close(
        moved("scaled", *gradients), moved("scaled", *([1e3 * x for x in g] for g in gradients))
    )


def test_the_first_scaled_step_has_the_length_of_the_rate() -> None:
    torch.testing.assert_close(
        moved("scaled", [3.0, 3.0]), torch.tensor([-0.01, -0.01], dtype=torch.float64)
    )
    assert moved("scaled", [0.0, 0.0]).tolist() == [0.0, 0.0]


def test_the_common_scale_remembers_a_hundred_steps() -> None:
    """The mean square with weights 0.99^age, which sum to one."""
    square = (0.99 * 3.0**2 + 1.0**2) / (0.99 + 1)
    expected = -0.01 * torch.ones(2, dtype=torch.float64) * (1 + 1 / math.sqrt(square))
    torch.testing.assert_close(moved("scaled", [3.0, 3.0], [1.0, 1.0]), expected)
