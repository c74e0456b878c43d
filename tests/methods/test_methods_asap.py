"""ASAP: the temperature, the grace period, the pruning and what it saves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from proxnas.methods.asap import Asap, masked_softmax
from proxnas.searching.job import Search
from support.searches import stored

MakeSearch = Callable[..., Search]


def asap(make_search: MakeSearch, *flags: str) -> tuple[Search, Asap]:
    search = make_search("--method", "asap", "--space", "nasbench201", *flags)
    assert isinstance(search.method, Asap)
    return search, search.method


def test_the_temperature_falls_by_a_factor_an_epoch(make_search: MakeSearch) -> None:
    _, method = asap(make_search, "--epochs", "50")
    for epoch in (0, 1, 9, 10, 49):
        method.learner.w_optimizer.t = epoch * 5  # five steps an epoch
        assert method.tau == pytest.approx(1.6 * 0.95**epoch)
    _, method = asap(make_search, "--epochs", "25")  # the same curve in half the epochs
    method.learner.w_optimizer.t = 10 * 5
    assert method.tau == pytest.approx(1.6 * 0.95**20)


def test_A_rests_until_the_temperature_is_below_one(make_search: MakeSearch) -> None:
    search, method = asap(make_search, "--epochs", "50")
    before = stored(method.learner.A)
    method.learner.w_optimizer.t = 9 * 5  # 1.6 * 0.95^9 = 1.008
    search.method.step()
    assert torch.equal(method.learner.A["cell"], before["cell"]) and search.valid.delivered == 0
    method.learner.w_optimizer.t = 10 * 5  # 0.958
    search.method.step()
    assert not torch.equal(method.learner.A["cell"], before["cell"]) and search.valid.delivered == 1


def test_candidates_below_a_share_of_the_uniform_weight_are_dropped(
    make_search: MakeSearch,
) -> None:
    _, method = asap(make_search, "--epochs", "50")
    method.learner.w_optimizer.t = 20 * 5
    p = torch.tensor(
        [0.5, 0.32, 0.081, 0.079, 0.02], dtype=torch.float64
    )  # the threshold is 0.4 / 5 = 0.08
    method.learner.A["cell"][:] = p.log() * method.tau
    method.prune()
    assert method.alive["cell"].tolist() == [[True, True, True, False, False]] * 6
    mixture = method.mixture(method.learner.A, method.tau)["cell"]
    torch.testing.assert_close(mixture[0, :3], p[:3] / p[:3].sum())
    assert (mixture[:, 3:] == 0).all()
    method.learner.A["cell"][:, 3] = 99.0  # what is dropped does not come back
    method.prune()
    assert not method.alive["cell"][:, 3:].any()


def test_the_best_of_an_edge_is_never_dropped(make_search: MakeSearch) -> None:
    _, method = asap(make_search)
    method.constants = type(method.constants)(threshold=5.0)  # more than any weight can be
    method.prune()
    assert (method.alive["cell"].sum(-1) == 1).all()
    assert torch.equal(
        method.alive["cell"].double().argmax(-1), method.learner.A["cell"].argmax(-1)
    )


def test_what_is_dropped_is_not_run_and_a_single_candidate_needs_no_gradient_of_A(
    make_search: MakeSearch,
) -> None:
    search, method = asap(make_search, "--tau-start", "0.9")
    ran = []
    for choice in search.net.choices.values():
        for name, candidate in zip(choice.names, choice.candidates, strict=True):
            candidate.register_forward_hook(lambda *_, name=name: ran.append(name))
    everything = sum(
        len(choice.names) - 1 for choice in search.net.choices.values()
    )  # all but `none`
    search.method.step()
    assert len(ran) == 2 * everything
    method.alive["cell"][:] = torch.tensor(
        [False, True, False, True, False]
    )  # skip_connect and nor_conv_3x3
    ran.clear()
    search.method.step()
    assert len(ran) == 4 * len(search.net.choices) and set(ran) == {"skip_connect", "nor_conv_3x3"}
    method.alive["cell"][:, 1] = False
    ran.clear()
    before = search.valid.delivered
    search.method.step()
    assert len(ran) == len(search.net.choices) and search.valid.delivered == before


def test_pruning_happens_at_the_start_of_each_of_fifty_epochs_only(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, method = asap(make_search, "--epochs", "50")
    pruned = []
    monkeypatch.setattr(method, "prune", lambda: pruned.append(method.learner.w_optimizer.t))
    for _ in range(11):
        search.method.step()
    assert pruned == [0, 5, 10]


def test_masked_softmax_is_the_softmax_of_what_is_left() -> None:
    a = torch.tensor([[1.0, 2.0, 3.0]])
    alive = torch.tensor([[True, False, True]])
    expected = a[:, [0, 2]].softmax(-1)
    torch.testing.assert_close(masked_softmax(a, alive)[:, [0, 2]], expected)
