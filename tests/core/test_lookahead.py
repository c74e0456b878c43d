"""lookahead.py and what NASP adds to its authors' form: potentials, exploration, one common
scale."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Choice
from proxnas.core.supernet import Supernet
from proxnas.methods.architecture import ArchitectureOptimizer, ArchitectureOptions
from proxnas.methods.proximal import Proximal
from proxnas.searching.job import Search

MakeSearch = Callable[..., Search]


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
    steps = ArchitectureOptimizer(A, ArchitectureOptions(optimizer=optimizer, learning_rate=0.01))
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


# ----------------------------------------------------------------- exploration


def nasp(make_search: MakeSearch, *flags: str) -> Proximal:
    method = make_search("--space", "nasbench201", *flags).method
    assert isinstance(method, Proximal)
    return method


def taken(method: Proximal, steps: int) -> list[Matrices]:
    paths = []
    for _ in range(steps):
        method.step()
        paths.append({name: path.clone() for name, path in method.path.items()})
    return paths


def test_exploring_steps_take_other_paths_than_the_cell_that_is_returned(
    make_search: MakeSearch,
) -> None:
    method = nasp(make_search, "--explore", "1", "--arch-learning-rate", "1e-12")
    paths = taken(method, 4)
    cell = method.architecture()[1]["cell"]
    assert torch.equal(cell, method.select(method.A)["cell"])
    assert len({tuple(path["cell"].flatten().tolist()) for path in paths}) == 4
    assert torch.equal(
        method.select(method.A)["cell"], nasp(make_search, "--explore", "0").A_bar["cell"]
    )


def test_exploration_ends_with_the_search(make_search: MakeSearch) -> None:
    method = nasp(make_search, "--explore", "1", "--epochs", "1")
    assert method._noise() is not None
    method.w_optimizer.t = len(method.train)
    assert method._noise() is None


def test_without_exploration_every_step_runs_the_cell_itself(make_search: MakeSearch) -> None:
    method = nasp(make_search, "--explore", "0")
    for path in taken(method, 3):
        assert path.keys() == method.A_bar.keys()
    assert torch.equal(method.path["cell"], method.A_bar["cell"])


@pytest.mark.parametrize(("every", "wanted"), [("1", [0, 2, 4]), ("3", [0, 3])])
def test_it_looks_ahead_every_so_many_steps(
    every: str, wanted: list[int], make_search: MakeSearch
) -> None:
    method = nasp(make_search, "--look-ahead", "2", "--arch-every", every)
    looks, look = [], method.net.potentials

    def counted(train: Batch, valid: Batch) -> Matrices:
        looks.append(method.w_optimizer.t)
        return look(train, valid)

    method.net.potentials = counted  # type: ignore[method-assign]
    taken(method, 5)
    assert looks == wanted


@pytest.mark.parametrize(("steps", "pause"), [(4, 100), (400, 100), (1562, 390)])
def test_it_looks_ahead_four_times_an_epoch_at_most(
    steps: int, pause: int, make_search: MakeSearch
) -> None:
    _, times = nasp(make_search, "--look-ahead", "100").occasional(steps, epochs=50)
    assert times == 1 / pause


def test_what_is_promised_counts_as_much_as_the_horizon_says(make_search: MakeSearch) -> None:
    once, twice = (nasp(make_search, "--look-ahead", "1", "--horizon", h) for h in ("1", "2"))
    for method in (once, twice):
        method._use(method.path)
    batches = once.train.next(), once.valid.next()
    one, two = once._promised(*batches)["cell"], twice._promised(*batches)["cell"]
    assert one.count_nonzero() > 0
    torch.testing.assert_close(two, 2 * one)
    rate, momentum = once.w_optimizer.learning_rate, once.w_optimizer.options.momentum
    torch.testing.assert_close(one, rate / (1 - momentum) * once.potentials["cell"])


def test_what_is_promised_does_not_fall_with_the_rate(make_search: MakeSearch) -> None:
    w = nasp(make_search).w_optimizer
    pace = w.pace(1)
    w.t = (w.options.epochs - 1) * w.steps_per_epoch
    assert w.learning_rate < w.options.learning_rate and w.pace(1) == pace
    w.options.guard.go_back(1)  # but a search that had to go back cannot promise the same
    assert w.pace(1) == pace / 2
