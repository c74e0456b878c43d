"""BayesNAS: the posterior, the curvature, the penalised loss and the pruning against independent
computations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from proxnas.core.groups import Group
from proxnas.core.selection import one_hot
from proxnas.methods.bayesnas import (
    IRRELEVANT,
    BayesNas,
    BayesNasOptions,
    Constants,
    Prior,
    relevance,
)
from proxnas.searching.job import Search
from support.searches import classified, linear_outputs, steps

MakeSearch = Callable[..., Search]


def test_the_prior_is_estimated_from_switch_and_curvature() -> None:
    prior = Prior((1, 3), 0.01, torch.zeros(1, 3, dtype=torch.float64))
    prior.switch[:] = torch.tensor([0.5, -2.0, 0.3])
    prior.gamma = torch.tensor([[1.0, 0.25, 3.0]], dtype=torch.float64)
    H = torch.tensor([[0.02, 0.1, 0.0]], dtype=torch.float64)
    prior.update(H)
    for k, (s, gamma, h) in enumerate([(0.5, 1.0, 0.02), (2.0, 0.25, 0.1)]):
        C = 1 / (1 / gamma + h / 0.01)
        omega = math.sqrt(1 / gamma - C / gamma**2)
        assert float(prior.omega[0, k]) == pytest.approx(omega)
        assert float(prior.gamma[0, k]) == pytest.approx(s / omega)
        assert omega == pytest.approx(math.sqrt((h / 0.01) / (1 + gamma * h / 0.01)))
    assert prior.gamma[0, 2] < 1e-9  # what the loss does not depend on is irrelevant


def test_a_candidate_is_no_more_relevant_than_its_edge(make_search: MakeSearch) -> None:
    search = make_search("--method", "bayesnas", "--space", "nasbench201", "--warmup", "0")
    method = search.method
    assert isinstance(method, BayesNas)
    steps(search, 5)
    edge, candidates = method.edges["cell"], method.candidates["cell"]
    alone = candidates.switch.abs() / candidates.omega
    expected = 1 / (1 / alone + 1 / edge.gamma)
    known = candidates.gamma > 1e-9
    assert known.sum() >= 20
    torch.testing.assert_close(candidates.gamma[known], expected[known])
    assert (candidates.gamma <= edge.gamma).all()


@pytest.mark.usefixtures("double")
def test_the_curvature_is_the_fisher_information() -> None:
    setup = classified(BayesNasOptions(warmup=0.0))
    method = BayesNas(setup)
    for prior, values in zip(method.priors(), ([[1.3]], [[0.5, -0.7, 1.1]]), strict=True):
        prior.switch[:] = torch.tensor(values)
    batch = setup.valid.next()
    edge = torch.tensor([[1.3]], requires_grad=True)
    switches = torch.tensor([[0.5, -0.7, 1.1]], requires_grad=True)
    outputs = linear_outputs(setup, batch.x)
    log_p = sum(edge[0, 0] * s * y for s, y in zip(switches[0], outputs, strict=True)).log_softmax(
        -1
    )
    exact = [torch.zeros(1, 1), torch.zeros(1, 3)]
    for row in log_p:
        for value in row:  # mean over examples, expectation over answers
            for total, g in zip(
                exact, torch.autograd.grad(value, [edge, switches], retain_graph=True), strict=True
            ):
                total += value.detach().exp() * g.square() / len(log_p)
    draws = [method.measure(batch) for _ in range(1500)]
    for total, *drawn in zip(exact, *draws, strict=True):
        torch.testing.assert_close(torch.stack(drawn).mean(0), total, rtol=0.15, atol=1e-3)


@pytest.mark.usefixtures("double")
def test_switches_and_w_descend_the_penalised_loss_together() -> None:
    setup = classified(BayesNasOptions(warmup=0.0))
    method = BayesNas(setup, Constants(lambda_edge=0.2, lambda_candidate=0.3))
    edge_prior, prior = method.priors()
    prior.switch[:] = torch.tensor([[0.5, -0.7, 1.1]])
    edge_prior.omega[:], prior.omega[:] = 1.5, torch.tensor([[0.1, 2.0, 3.0]])
    batch = setup.train.next()
    weights = [candidate.weight for candidate in setup.net.choices[""].candidates]
    edge, switches = torch.ones(1, 1, requires_grad=True), prior.switch.clone().requires_grad_()
    output = sum(
        edge[0, 0] * s * y for s, y in zip(switches[0], linear_outputs(setup, batch.x), strict=True)
    )
    penalty = 0.2 * 1.5 * edge.abs().sum() + 0.3 * (prior.omega * switches.abs()).sum()
    loss = nn.functional.cross_entropy(output, batch.y) + penalty
    d_edge, d_switches, *dw = torch.autograd.grad(loss, [edge, switches, *weights])
    assert torch.cat([d_edge.flatten(), d_switches.flatten()]).norm() < setup.weights.clip
    rate, decay = setup.weights.learning_rate, setup.weights.weight_decay
    expected = [
        w.detach() - rate * (g + decay * w.detach()) for w, g in zip(weights, dw, strict=True)
    ]
    method.step()
    torch.testing.assert_close(edge_prior.switch, 1 - rate * d_edge)
    torch.testing.assert_close(prior.switch, switches.detach() - rate * d_switches)  # and no decay
    for w, after in zip(weights, expected, strict=True):
        torch.testing.assert_close(w.detach(), after)


def test_switches_descend_with_the_published_penalty_and_momentum(make_search: MakeSearch) -> None:
    """v <- 0.9 v + g + 0.01 omega sign(s), s <- s - rate v: both omega and s are 1 at the start."""
    method = make_search("--method", "bayesnas", "--space", "nasbench201").method
    assert isinstance(method, BayesNas)
    for prior in method.priors():
        assert torch.equal(prior.penalty_gradient(), torch.full_like(prior.switch, 0.01))
    s, v = 1.0, 0.0
    for g in (0.02, -0.01, 0.03):
        method._move([torch.full_like(prior.switch, g) for prior in method.priors()], rate=0.1)
        v = 0.9 * v + g + 0.01
        s -= 0.1 * v
        for prior in method.priors():
            torch.testing.assert_close(prior.switch, torch.full_like(prior.switch, s))


def test_the_first_epoch_trains_w_only_and_the_prior_moves_after_each_later_one(
    make_search: MakeSearch,
) -> None:
    search = make_search("--method", "bayesnas", "--space", "nasbench201")
    method = search.method
    assert isinstance(method, BayesNas)
    gamma = method.candidates["cell"].gamma.clone()
    steps(search, 5)
    assert (method.candidates["cell"].switch == 1).all() and torch.equal(
        method.candidates["cell"].gamma, gamma
    )
    steps(search, 4)
    assert not (method.candidates["cell"].switch == 1).all() and torch.equal(
        method.candidates["cell"].gamma, gamma
    )
    steps(search, 1)
    assert not torch.equal(method.candidates["cell"].gamma, gamma)
    assert search.valid.delivered == method.constants.curvature_batches


def test_irrelevant_edges_become_none_only_where_all_edges_are_kept() -> None:
    assert 0.5 * math.log(2 * math.pi * math.e * IRRELEVANT) == pytest.approx(0.0)
    gamma = torch.tensor([[9.0, 0.01, 0.05], [9.0, 0.01, 0.06]], dtype=torch.float64)
    free = Group(("none", "a", "b"), nodes=((0, 1),))
    assert one_hot(relevance(gamma, free), free).argmax(-1).tolist() == [0, 2]
    kept = Group(("none", "a", "b"), nodes=((0, 1),), max_inputs=1)
    assert one_hot(relevance(gamma, kept), kept).nonzero().tolist() == [[1, 2]]
