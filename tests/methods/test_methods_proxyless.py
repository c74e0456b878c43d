"""proxyless: gates of two candidates, rewards of paths, expected cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from proxnas.common.errors import InputError
from proxnas.methods.proxyless import Proxyless, keep_the_others
from proxnas.searching.job import Search
from support.searches import as_double, steps

MakeSearch = Callable[..., Search]


def made(make_search: MakeSearch, *flags: str) -> Proxyless:
    always = ("--space", "nasbench201", "--epochs", "1", "--warmup", "0", "--method", "proxyless")
    method = make_search(*always, *flags).method
    assert isinstance(method, Proxyless)
    return method


def test_the_others_stay_as_likely() -> None:
    before = torch.randn(6, 5, dtype=torch.float64)
    pair = torch.stack([torch.randperm(5)[:2] for _ in range(6)])
    A = before.clone().scatter_add_(-1, pair, torch.randn(6, 2, dtype=torch.float64))
    keep_the_others(A, before, pair)
    old, new = before.softmax(-1), A.softmax(-1)
    others = torch.ones_like(old, dtype=torch.bool).scatter_(-1, pair, False)
    torch.testing.assert_close(new[others], old[others])
    assert not torch.allclose(new[~others], old[~others])


def test_the_gradient_is_that_of_the_gates_of_two(make_search: MakeSearch, double: None) -> None:
    """By autograd through explicit gates, the one that is off among them."""
    method = made(make_search)
    pairs = method._draw_pairs()
    state = method.learner.generator.get_state()
    batch = as_double(method.valid.next())
    found = method.gradient_of_pairs(pairs, batch)
    method.learner.generator.set_state(state)
    for name, pair in pairs.items():
        A = method.learner.A[name].gather(-1, pair).clone().requires_grad_()
        q = A.softmax(-1)
        on = torch.multinomial(q.detach(), 1, generator=method.learner.generator)
        hard = torch.zeros_like(q).scatter_(-1, on, 1.0)
        slopes = torch.zeros_like(q)
        for e in range(len(q)):  # dL/dg of both gates of an edge, the others as drawn
            for j in range(2):
                change = torch.zeros_like(q)
                change[e, j] = 1e-5
                up, down = (
                    _loss(method, name, pair, hard + sign * change, batch) for sign in (1, -1)
                )
                slopes[e, j] = (up - down) / 2e-5
        (expected,) = torch.autograd.grad((q * slopes).sum(), A)
        torch.testing.assert_close(found[name].gather(-1, pair), expected, atol=1e-6, rtol=1e-4)
        assert int((found[name] != 0).sum()) <= pair.numel()


@torch.no_grad()
def _loss(
    method: Proxyless, name: str, pair: torch.Tensor, gates: torch.Tensor, batch: object
) -> float:
    factors = torch.zeros_like(method.learner.A[name]).scatter_(-1, pair, gates)
    method.net.use({name: factors}, weighted=True)
    return float(method.net.loss(batch)[0])  # type: ignore[arg-type]


def test_rewards_make_paths_likelier_that_are_better_than_usual(make_search: MakeSearch) -> None:
    method = made(make_search, "--gates", "reinforce")
    batch = method.valid.next()
    assert not any(g.any() for g in method.gradient_of_rewards(batch).values())  # b is R at first
    for baseline, sign in ((-1.0, -1), (2.0, 1)):
        method.baseline = baseline
        state = method.learner.generator.get_state()
        found = method.gradient_of_rewards(batch)
        method.learner.generator.set_state(state)
        for name, p in method.preferences().items():
            path = method._draw(p)
            assert (torch.sign(found[name][path == 1]) == sign).all()
            torch.testing.assert_close(
                found[name].sum(-1), torch.zeros(len(p), dtype=p.dtype), atol=1e-9, rtol=0
            )


def test_the_expected_cost_presses_on_what_costs_most(make_search: MakeSearch) -> None:
    method = made(make_search, "--expected-cost", "3")
    for name, found in method.cost_gradient().items():
        A = method.learner.A[name].clone().requires_grad_()
        expected = 3 * (A.softmax(-1) * method.costs[name]).sum()
        torch.testing.assert_close(found, torch.autograd.grad(expected, A)[0])
        assert (found.argmax(-1) == method.costs[name].argmax()).all()


def test_a_large_weight_of_the_cost_ends_with_what_costs_nothing(make_search: MakeSearch) -> None:
    found = {}
    for weight in ("0", "1000"):
        flags = ("--expected-cost", weight, "--arch-learning-rate", "0.3")
        search = make_search(
            *("--space", "nasbench201", "--epochs", "2", "--warmup", "0"),
            *("--method", "proxyless", *flags),
        )
        steps(search, 2 * len(search))
        assert isinstance(search.method, Proxyless)
        found[weight] = float(
            sum(
                (p * search.method.costs.get(n, 0)).sum()
                for n, p in search.method.preferences().items()
            )
        )
        costs = search.method.costs
    shares = {name: float(cost.mean()) * 6 for name, cost in costs.items()}
    assert found["1000"] < 0.5 * sum(shares.values())


@pytest.mark.parametrize("gates", ["two", "reinforce"])
def test_only_w_is_trained_at_first(make_search: MakeSearch, gates: str) -> None:
    search = make_search(
        *("--space", "nasbench201", "--epochs", "1", "--warmup", "0.5"),
        *("--method", "proxyless", "--gates", gates, "--arch-learning-rate", "0.1"),
    )
    method = search.method
    assert isinstance(method, Proxyless)
    before = {name: a.clone() for name, a in method.learner.A.items()}
    steps(search, len(search) // 2)
    assert all(torch.equal(a, before[name]) for name, a in method.learner.A.items())
    steps(search, len(search) - len(search) // 2)
    assert not all(torch.equal(a, before[name]) for name, a in method.learner.A.items())


def test_costs_are_those_that_are_asked_for(make_search: MakeSearch) -> None:
    by = {
        cost: made(make_search, "--expected-cost", "1", "--cost", cost).costs["cell"]
        for cost in ("params", "flops", "latency")
    }
    assert all(cost.isfinite().all() and cost.any() for cost in by.values())
    assert not torch.equal(by["params"], by["latency"])
    with pytest.raises(InputError, match="cost flops: does nothing for proxyless without"):
        made(make_search, "--cost", "flops")
