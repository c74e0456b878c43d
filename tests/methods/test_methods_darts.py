"""DARTS, first and second order, against exact gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from proxnas.common.types import Batch
from proxnas.domains.images.spaces.cnn import SOURCES
from proxnas.methods import proximal
from proxnas.methods.base import Setup
from proxnas.methods.darts import Darts, FirstOrderOptions
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.searching.job import Search
from support.searches import quadratic, same, steps, stored

MakeSearch = Callable[..., Search]


def test_darts_derives_the_two_strongest_inputs_without_none(make_search: MakeSearch) -> None:
    search = make_search("--method", "darts-1st", "--space", "darts8")
    method = search.method
    assert isinstance(method, Darts)
    A = method.learner.A["normal"].zero_()
    ops = search.space.groups["normal"].candidates
    A[:, ops.index("none")] = 5.0  # the strongest everywhere, and never derived
    A[0, ops.index("sep_conv_3x3")] = 1.0
    A[1, ops.index("max_pool_3x3")] = 1.0
    A[3, ops.index("dil_conv_5x5")] = 2.0  # node 1 reads rows 2, 3, 4
    A[4, ops.index("skip_connect")] = 1.0
    A[5:, ops.index("avg_pool_3x3")] = (
        torch.arange(9.0).double() / 10
    )  # rows 7, 8 and 12, 13 are last of their nodes
    method.A_bar = method.derive()
    nodes = [[(e.op, e.input) for e in node] for node in search.genotype().cells["normal"].nodes]
    assert nodes[:2] == [
        [("sep_conv_3x3", 0), ("max_pool_3x3", 1)],
        [("dil_conv_5x5", 1), ("skip_connect", 2)],
    ]
    last = [[("avg_pool_3x3", SOURCES[e]) for e in rows] for rows in ((7, 8), (12, 13))]
    assert nodes[2:] == last


def test_darts_trains_the_mixture_of_all_candidates(make_search: MakeSearch) -> None:
    search = make_search("--method", "darts-1st", "--space", "nasbench201")
    before = stored(search.net.module.state_dict())
    steps(search, 1)
    assert all(not torch.equal(w, before[name]) for name, w in search.net.module.named_parameters())


def train_a_little(method: Darts | proximal.Proximal) -> None:
    """Two steps on A and w, after which momentum buffers are no longer zero."""
    for _ in range(2):
        if isinstance(method, Darts):
            method.learner.A_optimizer.step(method.gradient(method.train.next()))
            method.use_mixture()
            w_optimizer = method.learner.w_optimizer
        else:
            method.descend(method.gradient(method.A_bar, method.train.next()))
            method._run(method.A_bar)
            w_optimizer = method.w_optimizer
        w_optimizer.step(method.net.loss(method.train.next())[0])


def exact_unrolled(
    setup: Setup, optimizer: WeightOptimizer, A: Tensor, factors: Callable[[Tensor], Tensor]
) -> Tensor:
    """d L_val(w'(A), A) / dA by autograd through the unrolled step w'(A), which moves the weights
    in use only."""
    A = A.clone().requires_grad_()
    ws = [c.weight.detach().clone().requires_grad_() for c in setup.net.choices[""].candidates]
    used = [bool(a) for a in factors(A.detach())[0]]

    def loss(weights: list[Tensor], batch: Batch) -> Tensor:
        outputs = [batch.x @ w.T for w in weights]
        return nn.functional.mse_loss(
            sum(a * y for a, y in zip(factors(A)[0], outputs, strict=True)), batch.y
        )

    gradients = torch.autograd.grad(loss(ws, setup.train.next()), ws, create_graph=True)
    o, buffers = optimizer.options, [optimizer.momentum_of(w) for w in optimizer.weights]
    moved = [
        w - optimizer.learning_rate * (o.momentum * b + g + o.weight_decay * w) if on else w
        for w, g, b, on in zip(ws, gradients, buffers, used, strict=True)
    ]
    (gradient,) = torch.autograd.grad(loss(moved, setup.valid.next()), [A])
    return gradient


@pytest.mark.usefixtures("double")
def test_second_order_darts_is_the_exact_unrolled_gradient() -> None:
    setup = quadratic(FirstOrderOptions(arch_noise=1.0))
    method = Darts(setup, order=2)
    train_a_little(method)
    learner = method.learner
    exact = exact_unrolled(setup, learner.w_optimizer, learner.A["c"], lambda A: A.softmax(-1))
    before = stored(setup.net.module.state_dict())
    ours = method.gradient(setup.train.next())["c"]
    torch.testing.assert_close(ours, exact, rtol=1e-6, atol=1e-9)
    assert same(setup.net.module.state_dict(), before)  # the weights are put back
    first_order = method.first_order(setup.valid.next(), ())[0]["c"]
    assert (first_order - exact).norm() > 0.1 * exact.norm()  # the second order matters here


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("value", ["one", "a_k"])
@pytest.mark.parametrize("make", [proximal.Nasp, proximal.Pa, proximal.LazyPa])
def test_second_order_proximal_is_the_exact_unrolled_gradient_at_A_bar(
    make: type[proximal.Nasp], value: str
) -> None:
    options = proximal.PaOptions(arch_noise=0.2, order=2, value=value)  # type: ignore[arg-type]
    setup = quadratic(options)
    method = make(setup)
    train_a_little(method)
    A_bar = method.select(method.A)
    assert A_bar["c"].count_nonzero() == 1
    exact = exact_unrolled(setup, method.w_optimizer, A_bar["c"], lambda A: A)
    ours = method.gradient(A_bar, setup.train.next())["c"]
    torch.testing.assert_close(ours, exact, rtol=1e-6, atol=1e-9)
    first_order = method._loss_gradient(setup.valid.next(), ())[0]["c"]
    assert (first_order - exact).norm() > 0.05 * exact.norm()
