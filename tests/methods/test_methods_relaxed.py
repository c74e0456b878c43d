"""fair-darts, darts-minus, drnas, pc-darts, darts-pt: each rule against its equation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from proxnas.common.types import Matrices
from proxnas.core.groups import NONE, Group
from proxnas.methods.darts_minus import Fading
from proxnas.methods.darts_pt import DartsPt
from proxnas.methods.drnas import Dirichlet, DrNas, _Sample, concentrations
from proxnas.methods.fair_darts import FairDarts
from proxnas.methods.pc_darts import EDGES, PcDarts, among_inputs
from proxnas.searching.job import Search
from support.searches import as_double, steps

MakeSearch = Callable[..., Search]
TINY = ("--space", "nasbench201", "--epochs", "1")


def leaves(A: Matrices) -> Matrices:
    return {name: a.detach().clone().requires_grad_() for name, a in A.items()}


# gates


def test_the_gradient_of_gates_is_that_of_the_loss_and_of_the_zero_one_loss(
    make_search: MakeSearch, double: None
) -> None:
    method = make_search(*TINY, "--method", "fair-darts", "--zero-one", "7").method
    assert isinstance(method, FairDarts)
    batch = as_double(method.valid.next())
    method.valid.next = lambda: batch  # type: ignore[method-assign]
    found = method.gradient(method.train.next())
    A = leaves(method.learner.A)
    method.net.use({name: 1 / (1 + (-a).exp()) for name, a in A.items()}, weighted=True)
    loss, _ = method.net.loss(batch)
    gates = [1 / (1 + (-a).exp()) for a in A.values()]
    number = sum(gate.numel() for gate in gates)
    driven = sum(((gate - 0.5) ** 2).sum() for gate in gates) / number
    expected = torch.autograd.grad(loss - 7 * driven, list(A.values()))
    for g, wanted in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(g, wanted)


def test_gates_do_not_compete(make_search: MakeSearch) -> None:
    method = make_search(*TINY, "--method", "fair-darts").method
    assert isinstance(method, FairDarts)
    A = {name: torch.full_like(a, 9.0) for name, a in method.learner.A.items()}
    factors = method.relaxation.weigh(A, 0.0, None)
    assert all((p > 0.99).all() for p in factors.values())


# the auxiliary skip connection


def test_the_auxiliary_skip_connection_fades() -> None:
    group = Group(("none", "skip_connect", "conv"), ((0, 1),))
    relaxation = Fading({"cell": group}, beta=0.8)
    A = {"cell": torch.randn(2, 3, dtype=torch.float64)}
    for progress, beta in ((0.0, 0.8), (0.25, 0.6), (1.0, 0.0)):
        factors = relaxation.weigh(A, progress, None)["cell"]
        expected = A["cell"].softmax(-1)
        expected[:, 1] += beta
        torch.testing.assert_close(factors, expected)
    assert torch.equal(relaxation.preferences(A)["cell"], A["cell"].softmax(-1))


# Dirichlet


def test_a_sample_and_its_gradient_are_those_of_torch() -> None:
    A = torch.randn(5, 4, dtype=torch.float64)
    g = torch.randn(5, 4, dtype=torch.float64)
    found = []
    for draw in (
        lambda c: _Sample.apply(c, torch.default_generator),
        lambda c: torch.distributions.Dirichlet(c).rsample(),
    ):
        a = A.clone().requires_grad_()
        torch.manual_seed(3)
        theta = draw(concentrations(a))
        found.append((theta, torch.autograd.grad((theta * g).sum(), a)[0]))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


def test_zero_is_the_uniform_distribution_of_the_simplex() -> None:
    torch.testing.assert_close(concentrations(torch.zeros(3)), torch.ones(3))
    assert (concentrations(torch.tensor([-50.0])) > 0).all()


def test_the_weaker_half_is_dropped_at_half_of_the_search(make_search: MakeSearch) -> None:
    search = make_search(*TINY, "--method", "drnas")
    method = search.method
    assert isinstance(method, DrNas)
    half = -(-len(search) // 2)
    steps(search, half)
    assert all(alive.all() for alive in method.relaxation.alive.values())
    ranked = {name: a.argsort(-1, descending=True) for name, a in method.learner.A.items()}
    steps(search, 1)
    for name, alive in method.relaxation.alive.items():
        kept = -(-alive.shape[-1] // 2)
        assert (alive.sum(-1) == kept).all()
        assert alive.gather(-1, ranked[name][:, :kept]).all()
        drawn = method.relaxation.weigh(method.learner.A, 1.0, method.learner.generator)[name]
        assert not drawn[~alive].any() and (drawn[alive] > 0).all()
        torch.testing.assert_close(drawn.sum(-1), torch.ones(len(drawn), dtype=drawn.dtype))
    chosen = method.architecture()[1]
    assert all(method.relaxation.alive[name][a != 0].all() for name, a in chosen.items())


def test_without_a_generator_nothing_is_drawn() -> None:
    A = {"cell": torch.randn(3, 4, dtype=torch.float64)}
    relaxation = Dirichlet(A)
    before = torch.get_rng_state()
    means = relaxation.weigh(A, 0.0, None)["cell"]
    assert torch.equal(torch.get_rng_state(), before)
    c = concentrations(A["cell"])
    torch.testing.assert_close(means, c / c.sum(-1, keepdim=True))


# weights of edges


def test_edges_compete_within_a_node() -> None:
    group = Group(("a", "b"), ((2, 0), (1, 3, 4)))
    B = torch.randn(5, 1, dtype=torch.float64)
    found = among_inputs(B, group).flatten()
    for rows in group.nodes:
        e = B.flatten()[list(rows)].exp()
        torch.testing.assert_close(found[list(rows)], e / e.sum())


def test_edges_and_candidates_move_once_they_no_longer_rest(make_search: MakeSearch) -> None:
    flags = ("--method", "pc-darts", "--resting", "0.5", "--arch-learning-rate", "0.1")
    search = make_search("--space", "darts7", "--epochs", "1", *flags)
    method = search.method
    assert isinstance(method, PcDarts)
    A = {name: a.clone() for name, a in (method.A | method.B).items()}
    resting = -(-len(search) // 2)
    steps(search, resting)
    assert all(torch.equal(a, A[name]) for name, a in (method.A | method.B).items())
    steps(search, 1)
    assert all(
        not torch.equal(method.B[f"{EDGES}{name}"], A[f"{EDGES}{name}"]) for name in method.A
    )
    factors = method.preferences()
    for name, group in method.net.groups.items():
        for rows in group.nodes:
            assert float(factors[name][list(rows)].sum()) == pytest.approx(1.0)


# what the mixture loses


def test_the_candidate_that_is_missed_most_is_taken(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = make_search("--space", "darts8", "--epochs", "1", "--method", "darts-pt")
    method = search.method
    assert isinstance(method, DartsPt)
    generator = torch.Generator().manual_seed(0)
    missed = {
        name: torch.rand(group.shape, generator=generator)
        for name, group in method.net.groups.items()
    }
    monkeypatch.setattr(
        method, "_loss_without", lambda name, e, k, batches: float(missed[name][e, k])
    )
    steps(search, len(search))
    for name, group in method.net.groups.items():
        usable = [k for k, op in enumerate(group.candidates) if op != NONE]
        best = missed[name][:, usable].argmax(-1)
        wanted = torch.tensor(usable)[best]
        assert torch.equal(method.alive[name].float().argmax(-1), wanted)
        strength = missed[name].gather(-1, wanted[:, None]).flatten()
        for rows in group.nodes:
            kept = [e for e in rows if method.A_bar[name][e].any()]
            assert kept == sorted(sorted(rows, key=lambda e: -float(strength[e]))[:2])


def test_edges_are_decided_evenly_over_the_last_part(make_search: MakeSearch) -> None:
    search = make_search("--space", "darts7", "--epochs", "2", "--method", "darts-pt")
    method = search.method
    assert isinstance(method, DartsPt)
    turns = [method._turn(t) for t in range(2 * len(search))]
    begin = int(0.7 * 2 * len(search))
    assert turns[begin - 1] == 0 < turns[begin] and turns[-1] == len(method.order) == 28
    assert turns == sorted(turns)
    gaps = {b - a for a, b in zip(turns[begin:], turns[begin + 1 :], strict=False)}
    assert max(gaps) - min(gaps) <= 1


def test_the_loss_without_a_candidate_is_that_of_its_factor_at_zero(
    make_search: MakeSearch, double: None
) -> None:
    search = make_search(*TINY, "--method", "darts-pt")
    method = search.method
    assert isinstance(method, DartsPt)
    batch = as_double(method.valid.next())
    factors = {
        name: torch.where(method.alive[name], a, -torch.inf).softmax(-1)
        for name, a in method.learner.A.items()
    }
    (name,) = factors
    factors[name][2, 3] = 0
    method.net.use(factors, weighted=True)
    with torch.no_grad():
        expected = float(method.net.loss(batch)[0])
    assert method._loss_without(name, 2, 3, [batch]) == pytest.approx(expected)
