"""ASNG: its utilities, Fisher metric, update rule and trust radius against independent
computations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from proxnas.core.groups import Group
from proxnas.methods.asng import Asng, NaturalGradient, Variables, fisher_root, utilities
from proxnas.searching.job import Search

MakeSearch = Callable[..., Search]


def test_utilities_rank_the_samples() -> None:
    assert utilities([0.3, 0.7]) == [1, -1]
    assert utilities([0.7, 0.3]) == [-1, 1]
    assert utilities([0.5, 0.5]) == [0, 0]
    assert utilities([6, 5, 4, 3, 2, 1]) == [-0.5, -0.5, 0, 0, 0.5, 0.5]  # mu = 2 of 6
    assert utilities([1, 2, 2, 3]) == [1, 0, 0, -1]  # mu = 1 of 4
    assert utilities([1, 1, 2, 3]) == [0.5, 0.5, 0, -1]  # the two best share +1 and 0


def test_the_root_is_that_of_the_fisher_information() -> None:
    theta = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    fisher = torch.diag(1 / theta[:-1]) + 1 / theta[-1]
    for _ in range(5):
        G = torch.randn(3, dtype=torch.float64)
        G = G - G.mean()
        v = fisher_root(theta, G)
        torch.testing.assert_close(v @ v, G[:-1] @ fisher @ G[:-1])


def by_hand(
    theta: list[np.ndarray],
    samples: list[list[int]],
    u: list[float],
    state: dict[str, float],
    s: np.ndarray,
):
    """One update from the formulas, without the floor: (theta, s, gamma, Delta)."""
    G = [
        sum(ui * (np.eye(len(t))[v[i]] - t) for ui, v in zip(u, samples, strict=True)) / 2
        for i, t in enumerate(theta)
    ]
    v = np.concatenate(
        [
            g[:-1] / np.sqrt(t[:-1]) + np.sqrt(t[:-1]) * g[:-1].sum() / (t[-1] + np.sqrt(t[-1]))
            for g, t in zip(G, theta, strict=True)
        ]
    )
    n, delta = np.linalg.norm(v), 1 / state["Delta"]
    beta = delta / math.sqrt(len(v))
    s = (1 - beta) * s + math.sqrt(beta * (2 - beta)) * v / n
    gamma = (1 - beta) ** 2 * state["gamma"] + beta * (2 - beta)
    Delta = state["Delta"] * math.exp(beta * (gamma - s @ s / 1.5))
    return (
        [t + delta * g / n for t, g in zip(theta, G, strict=True)],
        s,
        {"gamma": gamma, "Delta": Delta},
    )


def test_three_updates_by_hand() -> None:
    sizes = [3, 4, 2, 5, 3, 3, 4, 6]
    method = NaturalGradient(sizes)
    method.Delta = 40.0  # a small radius, so that no entry meets the floor
    theta = [np.full(K, 1 / K) for K in sizes]
    state, s = {"gamma": 0.0, "Delta": 40.0}, np.zeros(sum(sizes) - len(sizes))
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        samples = [method.sample(generator) for _ in range(2)]
        method.update(samples, [0.2, 0.9])
        theta, s, state = by_hand(theta, samples, [1.0, -1.0], state, s)
        for ours, expected in zip(method.theta, theta, strict=True):
            np.testing.assert_allclose(ours.numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(method.s.numpy(), s, atol=1e-12)
        assert method.gamma == pytest.approx(state["gamma"]) and method.Delta == pytest.approx(
            state["Delta"]
        )


def test_a_step_is_as_long_as_the_trust_radius_in_the_fisher_metric() -> None:
    method = NaturalGradient([4, 4, 4, 4, 4])
    method.Delta = 30.0
    before = [theta.clone() for theta in method.theta]
    method.update([[0, 1, 2, 3, 0], [1, 1, 0, 2, 3]], [1.0, 2.0])
    length = sum(
        float((new - old)[:-1] @ (torch.diag(1 / old[:-1]) + 1 / old[-1]) @ (new - old)[:-1])
        for new, old in zip(method.theta, before, strict=True)
    )
    assert math.sqrt(length) == pytest.approx(1 / 30.0)


def test_equal_samples_or_losses_change_nothing() -> None:
    method = NaturalGradient([3, 3])
    before = str(method.state_dict())
    method.update([[0, 1], [2, 0]], [0.5, 0.5])
    method.update([[0, 1], [0, 1]], [0.5, 0.7])
    assert str(method.state_dict()) == before


def test_theta_stays_above_its_floor_and_sums_to_one() -> None:
    method, generator = NaturalGradient([3] * 10), torch.Generator().manual_seed(0)
    for _ in range(300):
        samples = [method.sample(generator) for _ in range(2)]
        method.update(samples, [float(sum(v)) for v in samples])
    for theta in method.theta:
        assert float(theta.sum()) == pytest.approx(1.0)
        assert float(theta.min()) >= 1 / (10 * 2) - 1e-9


@pytest.mark.parametrize("sizes", [[5] * 6, [2], [7, 1, 3]])
def test_it_finds_the_optimum_of_a_noisy_toy(sizes: list[int]) -> None:
    target = [K - 1 for K in sizes]
    method, generator = NaturalGradient(sizes), torch.Generator().manual_seed(0)
    noise = np.random.RandomState(0)
    for _ in range(500):
        samples = [method.sample(generator) for _ in range(2)]
        wrong = [sum(a != b for a, b in zip(v, target, strict=True)) for v in samples]
        method.update(samples, [w + 0.5 * noise.randn() for w in wrong])
    assert method.likeliest() == target


def test_the_radius_shrinks_on_noise_and_not_on_a_clear_signal() -> None:
    radii = []
    for noisy in (True, False):
        method, generator = NaturalGradient([4] * 8), torch.Generator().manual_seed(1)
        random = np.random.RandomState(0)
        for _ in range(60):
            samples = [method.sample(generator) for _ in range(2)]
            losses = random.rand(2) if noisy else np.array([float(sum(v)) for v in samples])
            method.update(samples, losses.tolist())
        radii.append(method.delta)
    assert radii[0] < 0.5 * radii[1]


# ------------------------------------------------------------ the variables

CELL = Group(("none", "a", "b"), nodes=((0, 1), (2, 3, 4)), max_inputs=2)
FREE = Group(("none", "a"), nodes=((0,), (1, 2)))


def test_slots_choose_an_edge_and_a_candidate_and_free_rows_a_candidate() -> None:
    variables = Variables({"cell": CELL, "free": FREE})
    assert variables.sizes == [2, 2, 2, 2, 3, 2, 3, 2, 1, 2, 1, 2, 1, 2]
    A_bar = variables.A_bar([0, 1, 1, 0, 2, 0, 2, 0, 0, 1, 0, 0, 0, 1])
    assert A_bar["cell"].nonzero().tolist() == [
        [0, 2],
        [1, 1],
        [4, 1],
    ]  # both slots of node 1 chose the same
    assert A_bar["free"].argmax(-1).tolist() == [1, 0, 1]


def test_marginals_are_the_probabilities_of_the_entries() -> None:
    variables = Variables({"cell": Group(("a", "b"), nodes=((0, 1),), max_inputs=2)})
    theta = [
        torch.tensor(p, dtype=torch.float64)
        for p in ([0.3, 0.7], [0.6, 0.4], [0.5, 0.5], [0.1, 0.9])
    ]
    expected = torch.zeros(2, 2, dtype=torch.float64)
    for values in itertools.product(range(2), repeat=4):
        p = math.prod(float(t[v]) for t, v in zip(theta, values, strict=True))
        expected += p * variables.A_bar(values)["cell"]
    torch.testing.assert_close(variables.marginals(theta)["cell"], expected)


def test_in_its_own_space_there_are_forty_decisions() -> None:
    from proxnas.domains.images.spaces.enas5 import Enas5

    variables = Variables(Enas5().groups)
    assert sum(size > 1 for size in variables.sizes) == 40 and len(variables.sizes) == 40


# --------------------------------------------------------------- the search


def test_a_step_trains_two_paths_on_their_mean_loss_and_judges_two_others(
    make_search: MakeSearch,
) -> None:
    search = make_search(
        "--method", "asng", "--momentum", "0", "--weight-decay", "0", "--clip", "1e9"
    )
    method = search.method
    assert isinstance(method, Asng)
    twin = torch.Generator()
    twin.set_state(method.generator.get_state())
    samples = [method.theta.sample(twin) for _ in range(4)]
    batch = search.train.next()
    search.train.delivered = 0
    weights = list(search.net.module.parameters())
    total = torch.zeros(())
    for values in samples[:2]:
        search.net.use(method.variables.A_bar(values))
        total = total + search.net.loss(batch)[0] / 2
    gradients = torch.autograd.grad(total, weights, allow_unused=True)
    expected = [
        w.detach() - 0.025 * (0 if g is None else g)
        for w, g in zip(weights, gradients, strict=True)
    ]
    used = []
    plain = search.net.use
    search.net.use = lambda A_bar: used.append(A_bar) or plain(A_bar)  # type: ignore[method-assign]
    metrics = method.step()
    torch.testing.assert_close(metrics.loss, total.detach())
    for w, after in zip(weights, expected, strict=True):
        torch.testing.assert_close(w.detach(), after)
    for ours, values in zip(used, samples, strict=True):
        assert all(torch.equal(a, method.variables.A_bar(values)[name]) for name, a in ours.items())


def test_the_first_step_of_a_search_widens_the_radius_by_the_published_threshold(
    make_search: MakeSearch,
) -> None:
    """Delta exp(beta (gamma - |s|^2 / 1.5)), where after one step |s|^2 = gamma = beta (2 -
    beta)."""
    method = make_search("--method", "asng", "--space", "nasbench201").method
    assert isinstance(method, Asng)
    sizes = method.variables.sizes
    method.theta.update([[0] * len(sizes), [K - 1 for K in sizes]], [0.0, 1.0])
    beta = 1 / math.sqrt(sum(K - 1 for K in sizes))
    gamma = beta * (2 - beta)
    assert method.theta.Delta == pytest.approx(math.exp(beta * gamma * (1 - 1 / 1.5)))
