"""SNAS and GDAS: the relaxations against hand computations, gradients against autograd of the full
formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from proxnas.common.errors import InputError
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import Group
from proxnas.core.supernet import Supernet
from proxnas.methods.gdas import Gdas, GdasOptions, pairs
from proxnas.methods.gumbel import concrete, gumbel, hard
from proxnas.methods.learner import clipped, joint_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.snas import Snas, SnasOptions, log_costs
from proxnas.searching.job import Search
from support.searches import classified, linear_outputs, quadratic, steps

MakeSearch = Callable[..., Search]


def same_noise(generator: torch.Generator, *shapes: tuple[int, int]) -> list[Tensor]:
    """The noise that the generator will give next; it is left as it is."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    return [gumbel(torch.Size(shape), twin) for shape in shapes]


# ------------------------------------------------------------ the relaxation


def test_the_concrete_sample_by_hand() -> None:
    A, noise = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.5, 0.25, -1.0]])
    scores = [math.exp(s / 0.5) for s in (0.5, 1.25, 1.0)]
    expected = torch.tensor([[s / sum(scores) for s in scores]])
    torch.testing.assert_close(concrete(A, noise, tau=0.5), expected)
    torch.testing.assert_close(concrete(A, noise, tau=1e-3), torch.tensor([[0.0, 1.0, 0.0]]))


def test_the_largest_entry_is_a_sample_of_the_softmax() -> None:
    A = torch.tensor([[0.0, 1.0, -0.5]], dtype=torch.float64).expand(40_000, 3)
    noise = gumbel(A.shape, torch.Generator().manual_seed(0))
    counts = hard(concrete(A, noise, tau=7.0)).mean(0)
    torch.testing.assert_close(counts, A[0].softmax(-1), rtol=0, atol=0.01)


# --------------------------------------------------------------------- SNAS


def test_snas_temperature_falls_linearly_towards_the_end(make_search: MakeSearch) -> None:
    method = make_search("--method", "snas", "--space", "nasbench201", "--epochs", "150").method
    assert isinstance(method, Snas)
    for epoch in (0, 1, 75, 149):
        method.learner.w_optimizer.t = epoch * 5  # five steps an epoch
        assert method.tau == pytest.approx((1 - epoch / 150) * (1 - 0.03) + 0.03)


@pytest.mark.usefixtures("double")
def test_snas_moves_w_and_A_by_one_gradient_of_one_loss_on_the_training_batch() -> None:
    setup = classified(SnasOptions(arch_learning_rate=0.1, arch_decay=0.05))
    method = Snas(setup)
    A = method.learner.A["c"].clone().requires_grad_()
    assert (A - 1).abs().max() < 0.05
    (noise,) = same_noise(method.learner.generator, (1, 3))
    Z = ((A + noise) / method.tau).softmax(-1)
    batch, candidates = setup.train.next(), setup.net.choices[""].candidates
    outputs = linear_outputs(setup, batch.x)
    loss = nn.functional.cross_entropy(
        sum(z * y for z, y in zip(Z[0], outputs, strict=True)), batch.y
    )
    weights = [candidate.weight for candidate in candidates]
    dA, *dw = torch.autograd.grad(loss, [A, *weights])
    decay, rate = setup.weights.weight_decay, setup.weights.learning_rate
    expected = [
        w.detach() - rate * (g + decay * w.detach()) for w, g in zip(weights, dw, strict=True)
    ]
    assert torch.stack([g.norm() for g in dw]).norm() < setup.weights.clip
    metrics = method.step()
    torch.testing.assert_close(metrics.loss, loss.detach())
    for w, after in zip(weights, expected, strict=True):
        torch.testing.assert_close(w.detach(), after)
    g = dA + 0.05 * A.detach()  # Adam's first step is of length lr in every entry
    torch.testing.assert_close(method.learner.A["c"], A.detach() - 0.1 * g / (g.abs() + 1e-8))


def test_snas_never_reads_a_validation_batch_and_runs_everything_once(
    make_search: MakeSearch,
) -> None:
    search = make_search("--method", "snas", "--space", "nasbench201")
    before = {name: w.clone() for name, w in search.net.module.named_parameters()}
    steps(search, 1)
    assert search.valid.delivered == 0 and search.train.delivered == 1
    assert all(not torch.equal(w, before[name]) for name, w in search.net.module.named_parameters())


def test_the_gradient_of_A_is_clipped_to_norm_ten() -> None:
    dA = {"a": torch.tensor([[30.0, 0.0]]), "b": torch.tensor([[0.0, 40.0]])}
    torch.testing.assert_close(clipped(dA, 10.0)["a"], torch.tensor([[6.0, 0.0]]))
    small = {"a": torch.tensor([[3.0, 4.0]])}
    assert torch.equal(clipped(small, 10.0)["a"], small["a"])


def test_resource_costs_are_counted_from_the_modules() -> None:
    net = Supernet(
        Choice(
            {"none": nn.Identity(), "skip": nn.Identity(), "map": nn.Linear(4, 4, bias=False)}, "c"
        )
    )
    costs = log_costs(net, {"c": torch.tensor([[0.0, 1.0, 0.0]])}, torch.randn(5, 4))
    skip = (0 + 0 + math.log(4 + 4)) / 3  # no parameters, no products, four numbers in and four out
    conv = (math.log(16) + math.log(16) + math.log(4 + 4 + 16)) / 3
    torch.testing.assert_close(costs["c"], torch.tensor([[0.0, skip, conv]], dtype=torch.float64))


@pytest.mark.usefixtures("double")
def test_snas_adds_the_gradient_of_the_expected_cost_of_its_sample() -> None:
    setup = quadratic(SnasOptions(arch_noise=0.3, resource=0.7))
    method = Snas(setup)
    A = {"c": method.learner.A["c"].clone().requires_grad_()}
    noise = {"c": torch.randn(1, 3)}
    method.costs = {"c": torch.tensor([[0.0, 1.0, 5.0]])}
    z = ((A["c"] + noise["c"]) / 0.5).softmax(-1)
    (expected,) = torch.autograd.grad(0.7 * (z[0, 1] + 5 * z[0, 2]), [A["c"]])
    ours = method.resource_gradient(A, noise, 0.5, setup.train.next())["c"]
    torch.testing.assert_close(ours, expected)


def test_a_large_resource_weight_makes_snas_choose_what_is_cheap(make_search: MakeSearch) -> None:
    search = make_search(
        "--method",
        "snas",
        "--space",
        "nasbench201",
        "--resource",
        "10",
        "--arch-learning-rate",
        "0.05",
    )
    steps(search, 20)
    cell = search.genotype().cells["cell"]
    assert {edge.op for node in cell.nodes for edge in node} == {"none"}


def test_the_gradient_of_snas_is_clipped_to_a_norm_of_ten(make_search: MakeSearch) -> None:
    search = make_search("--method", "snas", "--space", "nasbench201", "--resource", "1e6")
    method = search.method
    assert isinstance(method, Snas)
    norms, take = [], method.learner.A_optimizer.step

    def noted(dA: Matrices) -> None:
        norms.append(float(torch.cat([g.flatten() for g in dA.values()]).norm()))
        take(dA)

    method.learner.A_optimizer.step = noted  # type: ignore[method-assign]
    search.method.step()
    assert norms == [pytest.approx(10.0)]


def test_snas_keeps_the_best_edge_of_a_node_whose_edges_are_all_none(
    make_search: MakeSearch,
) -> None:
    search = make_search("--method", "snas", "--space", "darts8")
    method, ops = search.method, search.space.groups["normal"].candidates
    assert isinstance(method, Snas)
    A = method.learner.A["normal"]
    A[:, ops.index("none")] = 5.0
    A[1, ops.index("sep_conv_3x3")] = 3.0
    A[3, ops.index("dil_conv_3x3")] = 9.0  # the only edge of node 1 that is present
    method.A_bar = method.derive()
    nodes = search.genotype().cells["normal"].nodes
    assert [tuple(edge) for edge in nodes[0]] == [
        ("sep_conv_3x3", 1, 1.0)
    ]  # at full weight, not at its probability
    assert [tuple(edge) for edge in nodes[1]] == [("dil_conv_3x3", 1, 1.0)]


# --------------------------------------------------------------------- GDAS


def test_gdas_temperature_falls_linearly_from_ten_to_a_tenth(make_search: MakeSearch) -> None:
    method = make_search("--method", "gdas", "--space", "nasbench201", "--epochs", "250").method
    assert isinstance(method, Gdas)
    for epoch in (0, 100, 249):
        method.learner.w_optimizer.t = epoch * 5
        assert method.tau == pytest.approx(10 - (10 - 0.1) * epoch / 249)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("unsampled", ["zero", "sum"])
def test_gdas_gradient_is_that_of_the_straight_through_formula(unsampled: str) -> None:
    """Autograd of: weights = onehot - stopgrad(p) + p; output = weights[k] O_k(x), and with `sum`
    the other weights are added as they are (the two forms of the public code)."""
    options = GdasOptions(arch_noise=1.0, unsampled_gradient=unsampled)  # type: ignore[arg-type]
    setup = quadratic(options)
    method = Gdas(setup)
    A = method.learner.A["c"].clone().requires_grad_()
    (noise,) = same_noise(method.learner.generator, (1, 3))
    p = ((A.log_softmax(-1) + noise) / 2.5).softmax(-1)
    weights = (hard(p) - p.detach() + p)[0]
    k, batch = int(p.argmax()), setup.valid.next()
    output = weights[k] * linear_outputs(setup, batch.x)[k]
    if unsampled == "sum":
        output = output + sum(weights[other] for other in range(3) if other != k)
    (expected,) = torch.autograd.grad(nn.functional.mse_loss(output, batch.y), [A])
    ours = method.gradient(batch, 2.5)["c"]
    torch.testing.assert_close(ours, expected)
    assert expected.abs().max() > 1e-3


def test_gdas_runs_only_the_sampled_candidate_of_every_edge(make_search: MakeSearch) -> None:
    search = make_search("--method", "gdas")
    ran = []
    for choice in search.net.choices.values():
        for candidate in choice.candidates:
            candidate.register_forward_hook(lambda *_, choice=choice: ran.append(choice))
    steps(search, 1)
    assert len(ran) == 2 * len(search.net.choices)  # once for w, once for A
    assert {ran.count(choice) for choice in search.net.choices.values()} == {2}


def test_gdas_derives_the_two_best_pairs_which_may_share_an_input() -> None:
    group = Group(("none", "a", "b"), nodes=((0, 1), (2, 3, 4)), max_inputs=2)
    p = torch.tensor(
        [[0.9, 0.05, 0.05], [0.2, 0.5, 0.3], [0.0, 0.8, 0.2], [0.0, 0.7, 0.3], [0.0, 0.1, 0.9]]
    )
    expected = torch.zeros(5, 3)
    expected[1, 1] = expected[1, 2] = (
        1.0  # both of input 1; `none` of input 0 is stronger and not counted
    )
    expected[4, 2] = expected[2, 1] = 1.0
    assert torch.equal(pairs(p, group), expected)
    free = Group(("none", "a", "b"), nodes=((0,), (1, 2)))
    assert pairs(p[:3], free).argmax(-1).tolist() == [0, 1, 1]


def test_fixed_reduction_searches_the_normal_cell_only(make_search: MakeSearch) -> None:
    search = make_search(
        "--method", "gdas", "--fixed-reduction", "--arch-learning-rate", "0.1", "--arch-decay", "0"
    )
    assert isinstance(search.method, Gdas)
    before = search.method.learner.A["reduce"].clone()
    steps(search, 3)
    assert torch.equal(search.method.learner.A["reduce"], before)
    nodes = search.genotype().cells["reduce"].nodes
    maps = [("skip_connect", 0), ("skip_connect", 1), ("max_pool_3x3", 0), ("max_pool_3x3", 1)]
    assert [[(edge.op, edge.input) for edge in node] for node in nodes] == [[each] for each in maps]
    with pytest.raises(InputError, match="fixed_reduction: this space has no reduction cell"):
        make_search("--method", "gdas", "--fixed-reduction", "--space", "nasbench201")


def test_gdas_trains_w_by_nesterov_momentum_and_then_A() -> None:
    setup = classified(GdasOptions(arch_noise=1.0))
    method = Gdas(setup)
    assert method.learner.w_optimizer.sgd.param_groups[0]["nesterov"]
    state = [w.detach().clone() for w in method.learner.w_optimizer.weights]
    seen = []
    method.gradient = lambda batch, tau: (
        seen.append(  # type: ignore[method-assign]
            any(
                not torch.equal(w, old)
                for w, old in zip(method.learner.w_optimizer.weights, state, strict=True)
            )
        )
        or {"c": torch.zeros(1, 3, dtype=torch.float64)}
    )
    method.step()
    assert seen == [True]


def test_a_joint_step_in_float16_gives_unscaled_gradients_or_none() -> None:
    """The loss is scaled up for float16; what reaches A must not be."""
    found = []
    for precision in (torch.float32, torch.float16):
        torch.manual_seed(0)
        setup = classified(GdasOptions())
        setup.net.precision = precision
        optimizer = WeightOptimizer(setup.net, setup.weights, 10)
        A = torch.zeros(1, 3, requires_grad=True)
        for scale in (2.0**16, math.inf):
            if scale == math.inf and precision == torch.float16:
                optimizer.scaler.update(scale)
            setup.net.use({"c": A.softmax(-1)}, weighted=True)
            _, _, gradients = joint_step(setup.net, setup.train.next(), optimizer, setup.clock, [A])
            found.append(gradients[0].clone() if gradients else None)
            A.grad = None
    exact, _, scaled, overflown = found
    assert exact is not None and scaled is not None and exact.abs().max() > 1e-3
    torch.testing.assert_close(scaled, exact, rtol=0.02, atol=1e-4)
    assert overflown is None
