"""The search methods: what all of them must hold, then each rule against its equation."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas import methods
from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError
from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import Row
from proxnas.core.supernet import Supernet
from proxnas.domains import spaces
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.spaces.cnn import CellSpace
from proxnas.domains.text.language import LanguageSize
from proxnas.domains.text.space import RecurrentSpace
from proxnas.methods import METHODS, proximal
from proxnas.methods.optimizers import WeightOptimizer, WeightOptions
from proxnas.searching.job import Search
from support.methods import SAMPLING
from support.searches import active_rows, same, steps, stored
from support.short_searches import QUICK, short

MakeSearch = Callable[..., Search]
SPACES = ("darts7", "rnn", "nasbench201")
"""Every method on these, every other space with some."""
REFUSED = [("bayesnas", "rnn")]


def cases(quick: tuple[str, ...], every: tuple[str, ...], others: tuple[str, ...]) -> list[Any]:
    """Every method in the spaces `every`, the methods `others` in every other space. Quick are nasp
    in `every`, each method in one of `quick` in turn ("": in none), and each other space with one
    of `others`; the rest is for `make test-all`."""
    found = []

    def add(method: str, space: str, is_quick: bool) -> None:
        marks = [] if is_quick else [pytest.mark.slow]
        if (method, space) not in REFUSED:
            found.append(pytest.param(method, space, marks=marks))

    turns = cycle(quick)
    for method in METHODS:
        turn = next(space for space in turns if (method, space) not in REFUSED)
        for space in every:
            add(method, space, space == turn or method == "nasp")
    for number, space in enumerate(name for name in spaces.SPACES if name not in every):
        for method in others:
            add(method, space, method == others[number % len(others)])
    return found


CONTRACT = pytest.mark.parametrize(
    ("method", "space"), cases(("darts7", "", "rnn", ""), SPACES, ("nasp",))
)
"""In nasbench201 every method is resumed below."""
WITH_NONE = pytest.mark.parametrize(
    ("method", "space"),
    cases((*SPACES, "darts8"), (*SPACES, "darts8"), ("nasp", "gdas", "enas", "asng")),
)


# -------------------------------------------------- what every method holds


@CONTRACT
def test_a_resumed_search_equals_an_uninterrupted_one(
    method: str, space: str, make_search: MakeSearch
) -> None:
    """A fresh search that takes over the state goes on as the one that the state is of."""
    flags = ("--method", method, "--space", space, *short(method, space))
    first, second = make_search(*flags), make_search(*flags)
    steps(first, 1)
    state = stored(first.state_dict())
    second.load_state_dict(state)
    assert same(second.state_dict(), state)
    assert same(second.method.architecture(), first.method.architecture())
    assert steps(second, 1) == steps(first, 1)
    assert same(second.state_dict(), first.state_dict())
    assert second.genotype() == first.genotype()


@pytest.mark.parametrize("method", METHODS)
def test_a_search_resumed_before_the_end_of_an_epoch_equals_an_uninterrupted_one(
    method: str, make_search: MakeSearch
) -> None:
    """What is done between epochs and after the last, of the same seed: two steps an epoch, stopped
    after three of four; of methods that sample cells nine of ten, in which five are trained."""
    flags = ("--method", method, "--space", "nasbench201", "--epochs", "2", "--seed", "1")
    last = 9 if method in SAMPLING else 3
    batch = ("--batch-size", "4" if method in SAMPLING else "10")
    whole, first, second = (make_search(*flags, *batch, *QUICK.get(method, ())) for _ in range(3))
    losses = steps(whole, last + 1)
    assert steps(first, last) == losses[:last]
    second.load_state_dict(stored(first.state_dict()))
    assert steps(second, 1) == losses[last:]
    assert same(whole.state_dict(), second.state_dict()) and whole.genotype() == second.genotype()
    assert whole.validation() == second.validation()


@WITH_NONE
def test_the_genotype_is_valid_and_builds_a_network_that_runs(
    method: str, space: str, make_search: MakeSearch
) -> None:
    search = make_search("--method", method, "--space", space, *short(method, space))
    if method != "darts-2nd":  # slow, and nothing in it concerns the genotype
        search.method.step()
    genotype = search.genotype()
    assert Genotype.from_json(genotype.to_json()) == genotype and genotype.space == space
    if space not in (
        "nasbench201",
        "genet",
    ):  # an edge that is set to `none` is absent, and two slots of asng may choose the same
        least, most = {"darts8": (1, 2), "rnn": (1, 1), "resnet": (1, 1), "mobile": (1, 1)}.get(
            space, (1 if method == "asng" else 2, 2)
        )
        assert all(
            least <= len(node) <= most for cell in genotype.cells.values() for node in cell.nodes
        )
    if space == "rnn":
        assert search.space.network(genotype, LanguageSize(6, 4))(torch.zeros(3, 2).long())[
            0
        ].shape == (3, 2, 6)
    else:
        size = Size(1 if space == "mobile" else 2, 2, 3, 2)
        assert search.space.network(genotype, size)(torch.randn(2, 3, 8, 8)).shape == (2, 2)
    loss, accuracy = search.validation()
    assert math.isfinite(loss) and 0 <= accuracy <= 1


@pytest.mark.parametrize("method", METHODS)
def test_a_space_with_one_candidate_works(
    method: str, make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        spaces, "find", lambda _: CellSpace("one", ("sep_conv_3x3",), ("max_pool_3x3",))
    )
    search = make_search("--method", method, *short(method))
    steps(search, 2)
    cells = search.genotype().cells
    assert {edge.op for node in cells["normal"].nodes for edge in node} == {"sep_conv_3x3"}
    assert {edge.op for node in cells["reduce"].nodes for edge in node} == {"max_pool_3x3"}


SEARCHING_TEXT = [method for method in METHODS if (method, "rnn") not in REFUSED]
EVERY_THIRD = [
    pytest.param(method, marks=[pytest.mark.slow] if number % 3 else [])
    for number, method in enumerate(SEARCHING_TEXT)
]
"""The others are quick in the space above, whose methods have no code of their own for text."""


@pytest.mark.parametrize("method", EVERY_THIRD)
def test_a_recurrent_space_with_one_candidate_works(
    method: str, make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spaces, "find", lambda _: RecurrentSpace("one", ("relu",)))
    search = make_search("--space", "rnn", "--method", method, *short(method, "rnn"))
    steps(search, 2)
    assert {edge.op for node in search.genotype().cells["recurrent"].nodes for edge in node} == {
        "relu"
    }


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """The garbage collector looks at what is made from now on: the rest takes a second."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("method", METHODS)
def test_memory_does_not_grow_with_steps(method: str, make_search: MakeSearch) -> None:
    length = (
        ("--epochs", "2", "--evaluations", "9") if method in SAMPLING else ("--epochs", "9")
    )  # a cell a step
    # nasp's optimizer has a state of each weight that was ever selected: no others may be
    still = ("--explore", "0", "--arch-learning-rate", "1e-12") if method == "nasp" else ()
    search = make_search(
        "--method", method, "--space", "nasbench201", *QUICK.get(method, ()), *length, *still
    )
    steps(search, 5)  # an epoch, after which every optimizer has its state

    def alive() -> int:
        steps(search, 2)
        search.guard.settle()  # as the loop does: verdicts are kept until they are read
        gc.collect()
        return sum(type(x) in (Tensor, nn.Parameter) for x in gc.get_objects())

    assert alive() == alive()


def test_seeds_differ(make_search: MakeSearch) -> None:
    one, other = (make_search("--seed", seed) for seed in "01")
    assert steps(one, 1) != steps(other, 1)
    assert not same(one.method.architecture()[0], other.method.architecture()[0])


def test_an_unknown_method_is_named_with_its_nearest(make_search: MakeSearch) -> None:
    with pytest.raises(InputError, match="nasp"):
        methods.make("nsap", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["nasp", "pa", "lazy-pa", "darts-1st", "darts-2nd"])
def test_warmup_trains_the_weights_only(method: str, make_search: MakeSearch) -> None:
    search = make_search("--method", method, "--space", "nasbench201", "--warmup", "1")
    before = stored(search.method.architecture()[0])
    weights = stored(search.net.module.state_dict())
    assert len(search.train) == 5
    steps(search, 5)
    assert same(search.method.architecture()[0], before) and search.valid.delivered == 0
    assert not same(search.net.module.state_dict(), weights)
    steps(search, 1)
    assert not same(search.method.architecture()[0], before)


# --------------------------------------------------------- the proximal rules


PLAIN = ("--arch-optimizer", "adam", "--explore", "0", "--look-ahead", "0", "--pooling", "0")
"""NASP as its authors have it: what our defaults add is tested apart."""


@pytest.mark.parametrize("preset", ["default", "paper", "official"])
def test_nasp_is_adam_at_A_bar_then_the_clip(preset: str, make_search: MakeSearch) -> None:
    """Alg. 2 recomputed by hand over three steps large enough to meet both bounds."""
    rate, decay, eps = 0.2, {"official": 1e-3}.get(preset, 0.0), 1e-8
    search = make_search("--preset", preset, *PLAIN, "--arch-learning-rate", str(rate))
    method, net = search.method, search.net
    assert isinstance(method, proximal.Proximal)
    gradients = spy_on_gradients(net)
    A = {name: a.clone() for name, a in method.A.items()}
    m, v = ({name: torch.zeros_like(a) for name, a in A.items()} for _ in range(2))
    for t in (1, 2, 3):
        expected = expected_selection(A, preset, method)
        method.step()
        active, dA = gradients[-1]
        assert active == active_rows(expected)  # line 3: the gradient is taken at A_bar = select(A)
        for name in A:
            g = dA[name] + decay * A[name]
            m[name] = 0.5 * m[name] + 0.5 * g
            v[name] = 0.999 * v[name] + 0.001 * g * g
            m_hat, v_hat = m[name] / (1 - 0.5**t), v[name] / (1 - 0.999**t)
            A[name] = (A[name] - rate * m_hat / (v_hat.sqrt() + eps)).clamp(0.0, 1.0)  # line 4
            torch.testing.assert_close(method.A[name], A[name], rtol=0, atol=1e-12)
        assert (
            active_rows(method.A_bar) == search.net.route.active
        )  # lines 5 and 6: w through the refined one
    assert len(gradients) == 3 and search.valid.delivered == search.train.delivered == 3
    assert any((a == 1).any() for a in A.values()) and any((a == 0).any() for a in A.values())


def spy_on_gradients(net: Supernet) -> list[tuple[dict[Row, tuple[int, ...]], Matrices]]:
    """(the architecture in use, dA) of every architecture gradient from now on."""
    calls, plain = [], net.architecture_gradient

    def spied(*args: Any) -> Any:
        dA, dw = plain(*args)
        calls.append((net.route.active, {name: g.clone() for name, g in dA.items()}))
        return dA, dw

    net.architecture_gradient = spied  # type: ignore[method-assign]
    return calls


def expected_selection(A: Matrices, preset: str, method: proximal.Proximal) -> Matrices:
    """Per row the largest entry, per node the two largest rows; by hand. By default the last
    selected wins ties."""
    A_bar = {}
    for name, a in A.items():
        # a tie breaker far below any difference that a step makes
        order = torch.zeros_like(a) if preset != "default" else 1e-13 * (method.A_bar[name] != 0)
        if preset == "default":
            order = order + 1e-14 * method.discretize.lots[name]
        ranked = a + order
        top, k = ranked.max(-1)
        rows = [
            sorted(node, key=lambda e: -top[e].item())[:2] for node in method.net.groups[name].nodes
        ]
        A_bar[name] = torch.zeros_like(a)
        for e in (e for node in rows for e in node):
            A_bar[name][e, k[e]] = 1.0
    return A_bar


def test_where_A_may_live(make_search: MakeSearch) -> None:
    """NASP: the box. PA: one entry of (0, 1] a row. Lazy PA: anywhere."""
    A = {}
    for method in ("nasp", "pa", "lazy-pa"):
        search = make_search("--method", method, "--arch-learning-rate", "0.8")
        steps(search, 2)
        A[method] = torch.cat(
            [a.flatten(0, 0) for a in search.method.architecture()[0]["normal"].unsqueeze(0)]
        )
    assert ((A["nasp"] >= 0) & (A["nasp"] <= 1)).all() and (A["nasp"] > 0).sum(1).max() > 1
    assert ((A["pa"] >= 0) & (A["pa"] <= 1)).all() and ((A["pa"] != 0).sum(1) == 1).all()
    assert (A["lazy-pa"] < 0).any() and (A["lazy-pa"] > 1).any()


@pytest.mark.parametrize("method", ["nasp", "pa", "lazy-pa"])
def test_value_a_k_keeps_the_factor_in_network_and_genotype(
    method: str, make_search: MakeSearch
) -> None:
    search = make_search(
        "--method", method, "--value", "a_k", "--space", "darts8", "--arch-learning-rate", "0.1"
    )
    steps(search, 2)
    A, A_bar = search.method.architecture()
    on = A_bar["normal"] != 0
    torch.testing.assert_close(A_bar["normal"][on], A["normal"][on].clamp(0, 1), rtol=0, atol=0)
    values = [edge.value for node in search.genotype().cells["normal"].nodes for edge in node]
    assert sorted(values) == sorted(A_bar["normal"][on].tolist()) and any(
        value != 1 for value in values
    )
    assert search.net.route.values is not None


def test_value_one_switches_selected_entries_on_fully(make_search: MakeSearch) -> None:
    search = make_search("--value", "one")
    steps(search, 1)
    assert set(search.method.architecture()[1]["normal"].unique().tolist()) == {0.0, 1.0}
    assert search.net.route.values is None


@pytest.mark.parametrize("preset", ["paper", "official"])
def test_with_all_entries_at_one_half_the_first_cell_is_identities_of_both_inputs(
    preset: str, make_search: MakeSearch
) -> None:
    """The known behaviour of the public code: the tie rule chooses operations and edges."""
    search = make_search("--preset", preset)
    assert all((a == 0.5).all() for a in search.method.architecture()[0].values())
    for cell in search.genotype().cells.values():
        assert [[(edge.op, edge.input) for edge in node] for node in cell.nodes] == [
            [("skip_connect", 0), ("skip_connect", 1)]
        ] * 4


def test_the_first_of_equal_entries_is_never_none(make_search: MakeSearch) -> None:
    for preset in ("paper", "official"):
        search = make_search("--space", "nasbench201", "--preset", preset)
        (line,) = [str(edge.op) for edge in search.genotype().cells["cell"].nodes[0]]
        assert (
            search.net.groups["cell"].candidates[:2] == ("none", "skip_connect")
            and line == "skip_connect"
        )
        search.step()
        A, _ = search.method.architecture()
        assert (A["cell"] != 0.5).any()  # else nothing would ever be learnt


def test_by_default_noise_decides_and_ties_keep_what_was_selected(make_search: MakeSearch) -> None:
    search = make_search()
    method = search.method
    assert isinstance(method, proximal.Proximal)
    assert 5e-4 < (method.A["normal"] - 0.5).std() < 2e-3
    before = method.A_bar
    for A in method.A.values():
        A.fill_(1.0)  # all entries clipped: every row ties
    assert same(method.select(method.A), before)


def test_eta_adds_the_gradient_of_R_at_A_bar(make_search: MakeSearch) -> None:
    plain, sized = (make_search(*PLAIN, "--eta", eta) for eta in ("0", "3"))
    gradients = []
    for search in (plain, sized):
        method = search.method
        assert isinstance(method, proximal.Proximal)
        gradients.append(method.gradient(method.A_bar, search.train.next()))
    dA, dA_sized = gradients
    costs = method.penalty.costs
    for name, A_bar in method.A_bar.items():
        torch.testing.assert_close(dA_sized[name] - dA[name], 3 * 2 * costs[name] * A_bar)
        assert costs[name].sum().item() == pytest.approx(1.0)


# ---------------------------------------------------------------- weights


def unselected(search: Search) -> list[nn.Parameter]:
    """The weights of candidates that A_bar does not run."""
    A_bar = search.method.architecture()[1]
    pairs = [(c, k) for c in search.net.choices.values() for k in range(len(c.names))]
    return [
        w
        for c, k in pairs
        if c.row and not A_bar[c.row.group][c.row.edge, k]
        for w in c.candidates[k].parameters()
    ]


@pytest.mark.parametrize("fate", ["still", "drift"])
def test_unselected_weights_stay_or_decay(fate: str, make_search: MakeSearch) -> None:
    search = make_search(
        "--unselected",
        fate,
        "--explore",
        "0",
        "--arch-learning-rate",
        "1e-12",
        "--weight-decay",
        "0.1",
        "--weight-optimizer",
        "sgd",
        "--learning-rate",
        "0.025",
    )
    weights = unselected(search)
    before = [w.detach().clone() for w in weights]
    steps(search, 1)
    assert len(weights) > 50
    for w, old in zip(weights, before, strict=True):
        if fate == "still":
            assert torch.equal(w, old)
        else:
            torch.testing.assert_close(w.detach(), old * (1 - 0.025 * 0.1))


def test_a_candidate_that_loses_its_place_stays_or_moves_on_by_momentum() -> None:
    for drift in (False, True):
        net = Supernet(Choice({"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)}, share="c"))
        optimizer = WeightOptimizer(net, WeightOptions(drift=drift), 1)
        a = net.choices[""].candidates[0].weight
        batch = Batch(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
        net.use({"c": torch.tensor([[1.0, 0.0]])})
        optimizer.step(net.loss(batch)[0])
        after_first = a.detach().clone()
        net.use({"c": torch.tensor([[0.0, 1.0]])})
        optimizer.step(net.loss(batch)[0])
        assert torch.equal(a, after_first) != drift


def test_the_weight_step_is_sgd_with_momentum_decay_and_a_clipped_gradient() -> None:
    net = Supernet(Choice({"a": nn.Linear(3, 2, bias=False)}, share="c"))
    options = WeightOptions(learning_rate=0.1, momentum=0.5, weight_decay=0.2, clip=0.01, epochs=10)
    optimizer = WeightOptimizer(net, options, steps_per_epoch=1)
    w = net.choices[""].candidates[0].weight
    expected, buffer = w.detach().clone(), torch.zeros_like(w)
    for _ in range(3):
        loss, _ = net.loss(Batch(torch.randn(4, 3), torch.tensor([0, 1, 0, 1])))
        (g,) = torch.autograd.grad(loss, [w], retain_graph=True)
        assert g.norm() > options.clip
        buffer = 0.5 * buffer + g * (0.01 / g.norm()) + 0.2 * expected
        expected = expected - optimizer.learning_rate * buffer
        optimizer.step(loss)
        torch.testing.assert_close(w.detach(), expected, rtol=1e-5, atol=1e-6)
    assert optimizer.learning_rate < 0.09  # so the steps above were of falling rates


@pytest.mark.parametrize(
    "method", sorted(set(METHODS) - {"random-ws", "spos", "score", "enas", *SAMPLING})
)  # these move no A
@pytest.mark.parametrize("space", ["nasbench201", "rnn"])
def test_a_diverged_search_says_so(method: str, space: str, make_search: MakeSearch) -> None:
    if (method, space) in REFUSED:
        pytest.skip("refused")
    search = make_search("--method", method, "--space", space, *short(method, space))
    with torch.no_grad():
        next(search.net.module.parameters()).fill_(math.nan)
    with pytest.raises(InputError, match="not finite: lower learning_rate"):
        search.method.step()
