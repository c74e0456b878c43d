"""ENAS and random search with shared weights: what is drawn, REINFORCE against a hand computation,
a known optimum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import Group
from proxnas.core.supernet import Supernet
from proxnas.methods.controller import Controller, ControllerOptions, recurrent
from proxnas.methods.enas import Constants, Enas, language_model
from proxnas.methods.optimizers import WeightOptimizer, WeightOptions, cycled
from proxnas.methods.random_ws import RandomWs
from proxnas.runs.metrics import Validation
from proxnas.searching.job import Search
from support.searches import same, steps

MakeSearch = Callable[..., Search]
CELL = Group(
    ("none", "sep_conv_3x3", "skip_connect"), nodes=((0, 1), (2, 3, 4), (5, 6, 7, 8)), max_inputs=2
)
SMALL = {
    "x": Group(("a", "b"), nodes=((0, 1), (2, 3, 4)), max_inputs=1),
    "y": Group(("none", "c"), nodes=((0,),)),
}


def controller(groups: dict[str, Group], **options: object) -> tuple[Controller, torch.Generator]:
    generator = torch.Generator().manual_seed(0)
    return Controller(groups, ControllerOptions(**options), generator), generator  # type: ignore[arg-type]


# ------------------------------------------------------------- the controller


def test_every_node_gets_two_different_inputs_with_one_candidate_each_and_never_none() -> None:
    model, generator = controller({"cell": CELL})
    for _ in range(30):
        A_bar = model(generator).A_bar["cell"]
        assert (A_bar.sum(-1) <= 1).all() and not A_bar[:, 0].any()
        assert [int(A_bar[list(rows)].sum()) for rows in CELL.nodes] == [2, 2, 2]


def test_the_log_probability_is_that_of_what_was_drawn() -> None:
    """Over all architectures the probabilities sum to 1, and each is the frequency with which it is
    drawn."""
    model, generator = controller(SMALL, tanh=3.0, tanh_candidates=3.0, spread=1.0)
    counts: dict[str, int] = {}
    p: dict[str, float] = {}
    n = 1200
    for _ in range(n):
        with torch.no_grad():
            trace = model(generator)
        key = str({name: A_bar.nonzero().tolist() for name, A_bar in trace.A_bar.items()})
        counts[key] = counts.get(key, 0) + 1
        p[key] = math.exp(float(trace.log_probability))
    assert len(p) > 20 and sum(p.values()) == pytest.approx(1.0, abs=0.05)
    for key, frequency in counts.items():
        assert frequency / n == pytest.approx(p[key], abs=4 * math.sqrt(p[key] / n) + 1e-3)


def test_the_entropy_is_that_of_the_decisions() -> None:
    model, generator = controller({"one": Group(("a", "b", "c"))}, favoured=())
    with torch.no_grad():
        model.heads[0].weight.zero_()
        model.heads[0].bias.copy_(torch.tensor([1.0, 0.0, -1.0]))
    logits = 0.44 * torch.tensor([1.0, 0.0, -1.0]).tanh()
    p = logits.softmax(-1)
    assert model(generator).entropy == pytest.approx(float(-(p * p.log()).sum()), rel=1e-5)


def test_logits_are_squashed_and_separable_convolutions_favoured() -> None:
    """At the start: tanh(10) = 1 for them and about 0 for the others, +-0.25 in the first cell
    only."""
    groups = {
        "normal": Group(("sep_conv_3x3", "skip_connect")),
        "reduce": Group(("sep_conv_3x3", "skip_connect")),
    }
    model, generator = controller(groups)
    counts = torch.zeros(2)
    n = 1000
    with torch.no_grad():
        for _ in range(n):
            A_bar = model(generator).A_bar
            counts += torch.tensor([float(A_bar[name][0, 0]) for name in groups])
    expected = [1 / (1 + math.exp(-0.44 - 0.5)), 1 / (1 + math.exp(-0.44))]
    assert (counts / n).tolist() == pytest.approx(expected, abs=0.05)


def test_the_language_model_prefers_near_inputs() -> None:
    group = {
        "recurrent": Group(
            ("tanh", "relu"), nodes=((0,), (1, 2), (3, 4, 5), (6, 7, 8, 9)), max_inputs=1
        )
    }
    generator = torch.Generator().manual_seed(0)
    model = Controller(group, recurrent(), generator)
    with torch.no_grad():
        rows = [int(model(generator).A_bar["recurrent"][6:].sum(-1).argmax()) for _ in range(300)]
    p = torch.tensor([-16.0, -9.0, -4.0, -1.0]).div(6).softmax(-1)
    assert [rows.count(i) / 300 for i in range(4)] == pytest.approx(p.tolist(), abs=0.08)


# ------------------------------------------------------------------ REINFORCE


def toy(make_search: MakeSearch, **options: object) -> Enas:
    search = make_search(
        "--method", "enas", "--space", "nasbench201", "--arch-learning-rate", "0.01"
    )
    assert isinstance(search.method, Enas)
    method = search.method
    method.constants = replace(method.constants, **options)  # type: ignore[arg-type]
    return method


def test_an_update_is_reinforce_with_a_moving_baseline(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = toy(make_search, aggregate=3, entropy=0.1, baseline=0.9)
    method.baseline = 0.4
    rewards = [0.2, 0.9, 0.5]
    remaining = iter(rewards)
    monkeypatch.setattr(method, "reward", lambda cell, batch: next(remaining))
    twin = torch.Generator()
    twin.set_state(method.generator.get_state())
    traces = [method.controller(twin) for _ in range(3)]
    baseline, loss = 0.4, torch.zeros(())
    for reward, trace in zip(rewards, traces, strict=True):
        total = reward + 0.1 * trace.entropy
        baseline = 0.9 * baseline + 0.1 * total
        loss = loss - trace.log_probability * (total - baseline) / 3
    parameters = list(method.controller.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    before = [w.detach().clone() for w in parameters]
    method.update()
    assert method.baseline == pytest.approx(baseline)
    for w, old, g in zip(parameters, before, gradients, strict=True):
        moved = (
            torch.zeros_like(w) if g is None else 0.01 * g / (g.abs() + 1e-3)
        )  # Adam, first step, epsilon 1e-3
        torch.testing.assert_close(w.detach(), old - moved, rtol=1e-4, atol=1e-6)


def test_the_controller_finds_a_known_optimum(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reward: the share of edges that run candidate 3."""
    method = toy(make_search, controller=ControllerOptions(), baseline=0.9)
    monkeypatch.setattr(method, "reward", lambda cell, batch: float(cell["cell"][:, 3].mean()))
    method.controller.options = ControllerOptions(tanh_candidates=3.0)
    for group in method.adam.param_groups:
        group["lr"] = 0.03
    drawn: list[Matrices] = []
    for _ in range(40):
        drawn = method.update()
    assert sum(float(cell["cell"][:, 3].mean()) for cell in drawn) / len(drawn) > 0.8


def test_the_reward_is_the_accuracy_on_a_batch_or_of_perplexity(make_search: MakeSearch) -> None:
    method = toy(make_search)
    batch, cell = method.valid.next(), method.best
    method.net.use(cell)
    loss, output = method.net.loss(batch)
    assert method.reward(cell, batch) == pytest.approx(
        float((output.argmax(-1) == batch.y).float().mean())
    )
    method.constants = language_model()
    assert method.reward(cell, batch) == pytest.approx(
        80 / math.exp(float(loss.detach())), rel=1e-5
    )


def test_phases_take_turns_and_the_best_of_ten_is_kept(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = make_search(
        "--method", "enas", "--space", "nasbench201", "--controller-steps", "2", "--epochs", "2"
    )
    method = search.method
    assert isinstance(method, Enas)
    frozen = {name: w.clone() for name, w in method.controller.state_dict().items()}
    steps(search, 4)
    assert same(method.controller.state_dict(), frozen) and search.valid.delivered == 0
    weights = {name: w.clone() for name, w in search.net.module.state_dict().items()}
    judged: list[tuple[float, Matrices]] = []
    plain = method.reward

    def reward(cell: Matrices, batch: Batch) -> float:
        judged.append((plain(cell, batch), cell))
        return judged[-1][0]

    monkeypatch.setattr(method, "reward", reward)
    steps(search, 1)
    assert search.valid.delivered == 2 * 10 + 10 == len(judged)
    assert not same(method.controller.state_dict(), frozen) and not same(
        search.net.module.state_dict(), weights
    )
    assert same(method.best, max(judged[-10:], key=lambda pair: pair[0])[1])
    torch.testing.assert_close(
        method.A["cell"], torch.stack([cell["cell"] for _, cell in judged[:20]]).mean(0)
    )
    losses = iter(range(10, 0, -1))
    monkeypatch.setattr(method, "evaluate", lambda: Validation(float(next(losses)), 0.0))
    steps(search, 5)  # the last epoch: judged on everything
    assert next(losses, None) is None and search.valid.delivered == 30 + 20


def test_the_settings_of_the_language_model_go_with_its_cell(make_search: MakeSearch) -> None:
    setup = make_search("--method", "enas", "--space", "nasbench201")._setup()
    assert Enas(setup).constants == Constants()
    net = Supernet(
        nn.Sequential(Choice({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}, share="recurrent"))
    )
    assert Enas(replace(setup, net=net)).constants == language_model()


def test_the_baseline_remembers_a_hundred_rewards(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b <- 0.99 b + 0.01 R: after n rewards of 1 it is 1 - 0.99^n."""
    method = make_search("--method", "enas", "--space", "nasbench201").method
    assert isinstance(method, Enas)
    monkeypatch.setattr(method, "reward", lambda cell, batch: 1.0)
    method.constants = replace(method.constants, entropy=0.0)
    for n in (10, 20, 30):
        method.update()
        assert method.baseline == pytest.approx(1 - 0.99**n)


def test_the_reward_counts_a_ten_thousandth_of_the_entropy(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make_search("--method", "enas", "--space", "nasbench201").method
    assert isinstance(method, Enas)
    monkeypatch.setattr(method, "reward", lambda cell, batch: 0.0)
    entropies: list[float] = []
    method.controller.register_forward_hook(lambda _, __, trace: entropies.append(trace.entropy))
    method.update()
    expected = 0.0
    for entropy in entropies:
        expected += 0.01 * (1e-4 * entropy - expected)
    assert method.baseline == pytest.approx(expected) and min(entropies) > 1


def test_w_has_nesterov_momentum_and_four_cosines(make_search: MakeSearch) -> None:
    """w <- w - rate (g' + 0.9 b) with b <- 0.9 b + g', g' the gradient with its decay."""
    method = make_search("--method", "enas", "--space", "nasbench201", "--clip", "1e9").method
    assert isinstance(method, Enas)
    w_optimizer, w = method.w_optimizer, method.w_optimizer.weights[0]
    expected, b = w.detach().clone(), torch.zeros_like(w)
    for n in range(3):
        g = (n + 1.0) + w_optimizer.options.weight_decay * expected
        b = 0.9 * b + g
        expected = expected - w_optimizer.learning_rate * (g + 0.9 * b)
        w_optimizer.step((n + 1.0) * w.sum())
    torch.testing.assert_close(w.detach(), expected)
    assert w_optimizer.options.cycles == 4


def test_four_cosines_each_twice_as_long() -> None:
    net = Supernet(Choice({"a": nn.Linear(3, 2)}))
    optimizer = WeightOptimizer(net, WeightOptions(epochs=150, cycles=4), steps_per_epoch=1)

    def rate(epoch: int) -> float:
        optimizer.t = epoch
        return optimizer.learning_rate

    assert [rate(e) for e in (0, 10, 30, 70)] == [
        pytest.approx(0.025)
    ] * 4  # T0 = 10, each time doubled
    assert rate(5) == rate(20) == rate(50) == rate(110) == pytest.approx(0.013)
    assert rate(9) < 0.0017 and rate(69) < 0.0011 and rate(150) == pytest.approx(0.001)
    assert [cycled(p, 8, 1) for p in range(9)] == [p / 8 for p in range(9)]


# -------------------------------------------------------------- random search


def test_random_ws_judges_cells_at_the_end_only_and_keeps_the_best(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = make_search(
        "--method", "random-ws", "--space", "nasbench201", "--epochs", "1", "--random-cells", "12"
    )
    method = search.method
    assert isinstance(method, RandomWs)
    short = [9.0, 8, 7, 6, 5, 4, 3, 2, 1, 0.5, 10, 11]  # all but the last two are finalists
    judged: list[tuple[Matrices, int]] = []
    whole = iter([5.0, 4, 3, 2, 1, 6, 7, 8, 9, 10])
    monkeypatch.setattr(
        method,
        "loss",
        lambda cell, batches: judged.append((cell, len(batches))) or short[len(judged) - 1],
    )
    monkeypatch.setattr(method, "evaluate", lambda: Validation(next(whole), 0.0))
    steps(search, 4)
    assert not judged and search.valid.delivered == 0
    steps(search, 1)
    assert [batches for _, batches in judged] == [10] * 12 and search.valid.delivered == 10
    assert next(whole, None) is None
    # finalists come in the order of their losses 0.5, 1, 2, 3, 4: the fifth, of loss 4, is the best
    # on everything
    assert same(method.best, judged[5][0]) and search.genotype() == search.space.genotype(
        judged[5][0]
    )
    assert search.clock.seconds["arch"] > 0  # and its time is counted


def test_random_ws_trains_one_uniformly_drawn_path_a_step(make_search: MakeSearch) -> None:
    search = make_search("--method", "random-ws", "--space", "nasbench201", "--epochs", "1000")
    method = search.method
    assert isinstance(method, RandomWs)
    total = torch.zeros(6, 5, dtype=torch.float64)
    for _ in range(60):
        steps(search, 1)
        assert (method.drawn["cell"].sum(-1) == 1).all()
        total += method.drawn["cell"]
    assert (total / 60 - 0.2).abs().max() < 0.2 and (total.sum(0) / 360 - 0.2).abs().max() < 0.07
    mean = method.loss(method.drawn, [search.valid.next(), search.valid.next()])
    assert math.isfinite(mean)
