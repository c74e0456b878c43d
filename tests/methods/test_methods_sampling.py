"""Methods that evaluate whole cells: the rule of each by itself, and all with a judge whose optimum
is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor, nn

from proxnas import methods
from proxnas.cells.genotype import Genotype
from proxnas.core.groups import Group
from proxnas.domains import spaces
from proxnas.methods.cells import Cell, Cells, stored
from proxnas.methods.controller import Controller, given
from proxnas.methods.evolution import Constants as EvolutionConstants
from proxnas.methods.evolution import Evolution, sizes
from proxnas.methods.pnas import Constants as PnasConstants
from proxnas.methods.pnas import Pnas
from proxnas.methods.reinforce import Constants as ReinforceConstants
from proxnas.methods.reinforce import Reinforce, clipped, nasnet
from proxnas.methods.sampling import Sampling
from proxnas.methods.surrogate import SurrogateOptions, features, fit
from proxnas.searching.job import Search

MakeSearch = Callable[..., Search]
SPACES = ("darts7", "darts8", "nasbench201", "enas5", "rnn")
NODES = ((0, 1), (2, 3, 4), (5, 6, 7, 8))
GROUPS = {
    "normal": Group(("skip_connect", "a", "b"), NODES, 2),
    "reduce": Group(("skip_connect", "c"), NODES, 2),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check(cells: Cells, cell: Cell) -> None:
    """Every node keeps as many different rows of its own as it must, with usable candidates, in
    order."""
    assert len(cell) == len(cells.places) and cells.of(cells.A_bar(cell)) == cell == stored(
        [list(p) for p in cell]
    )  # type: ignore[arg-type]
    for place, picks in zip(cells.places, cell, strict=True):
        rows = [e for e, _ in picks]
        assert (
            rows == sorted(set(rows)) and set(rows) <= set(place.rows) and len(rows) == place.inputs
        )
        assert all(k in place.usable for _, k in picks)


# ----------------------------------------------------------------------- cells


@pytest.mark.parametrize("space", SPACES)
def test_cells_are_drawn_and_kept_as_numbers(space: str) -> None:
    found = spaces.find(space)
    cells = Cells(found.groups)
    drawn = [cells.draw(generator(seed)) for seed in range(20)]
    for cell in drawn:
        check(cells, cell)
        found.genotype(cells.A_bar(cell))  # a valid one, or it would say so
    assert len(set(drawn)) == 20


def test_the_options_of_a_node_are_all_that_it_can_be() -> None:
    group = Group(("none", "a", "b"), ((0, 1, 2),), max_inputs=2)
    options = Cells({"x": group}).places[0].options()
    assert (
        len(options) == len(set(options)) == 3 * 2 * 2
    )  # pairs of rows, two candidates each, never none
    every = Cells({"x": Group(("none", "a"), ((0, 1, 2),))}).places[0].options()
    assert len(every) == len(set(every)) == 2**3


# ------------------------------------------------------------------- evolution


def evolution(
    population: int = 4, tournament: int = 2, groups: dict[str, Group] = GROUPS, **options: float
) -> Evolution:
    return Evolution(
        Cells(groups), EvolutionConstants(population, tournament, **options), generator()
    )


def test_ageing_removes_the_oldest_however_good_it_is() -> None:
    search = evolution(population=3)
    cells = [search.ask() for _ in range(5)]
    for cell, score in zip(cells, (9.0, 1.0, 2.0, 3.0, 4.0), strict=True):
        search.tell(cell, score)
    assert list(search.population) == list(zip(cells[2:], (2.0, 3.0, 4.0), strict=True))


def test_a_parent_is_the_best_of_a_tournament_drawn_with_replacement() -> None:
    search = evolution(population=4, tournament=2)
    cells = [search.ask() for _ in range(4)]
    for score, cell in enumerate(cells):
        search.tell(cell, float(score))
    counts = Counter(search.parent() for _ in range(2000))
    expected = [
        (2 * score + 1) / 16 for score in range(4)
    ]  # P(the larger of two uniform draws of four)
    assert [counts[cell] / 2000 for cell in cells] == pytest.approx(expected, abs=0.035)


def test_the_first_are_random_and_children_come_after() -> None:
    search = evolution(population=3, tournament=3, identity=0.0)
    for score in range(3):
        search.tell(search.ask(), float(score))
    parents = {cell for cell, _ in search.population}
    assert all(
        min(distance(child, p) for p in parents) == 1 for child in (search.ask() for _ in range(20))
    )


def distance(one: Cell, other: Cell) -> int:
    """How many picks of the one the other has not."""
    return sum(len(set(a) - set(b)) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("space", SPACES)
def test_a_mutation_changes_exactly_one_thing_and_stays_valid(space: str) -> None:
    cells = Cells(spaces.find(space).groups)
    search, kinds, n = Evolution(cells, EvolutionConstants(), generator()), Counter[str](), 400
    for seed in range(n):
        parent = cells.draw(generator(seed % 7))
        child = search.mutated(parent)
        check(cells, child)
        moved = distance(child, parent)
        assert moved <= 1
        (before,), (after,) = (
            [set(a) - set(b) for a, b in zip(x, y, strict=True) if a != b] or [set()]
            for x, y in ((parent, child), (child, parent))
        )
        if not moved:
            kinds["identity"] += 1
        else:
            (old_row, old), (row, k) = *before, *after
            assert (row == old_row) != (k == old)  # an input or a candidate, never both
            kinds["operation" if row == old_row else "input"] += 1
    assert kinds["identity"] / n == pytest.approx(0.05, abs=0.035)
    assert kinds["input"] / n == pytest.approx(0.0 if space == "nasbench201" else 0.475, abs=0.09)


def test_a_space_without_a_choice_has_no_mutation() -> None:
    search = evolution(groups={"x": Group(("a",), ((0, 1),), max_inputs=2)})
    cell = search.ask()
    assert search.mutated(cell) == cell


def test_mutations_keep_to_the_limit_of_skip_connections() -> None:
    limited = {"normal": Group(("skip_connect", "a", "b"), NODES, 2, max_skip=1)}
    search, cells = evolution(groups=limited, identity=0.0), Cells(limited)
    cell = cells.draw(generator())
    for _ in range(100):
        cell = search.mutated(cell)
        assert cells.allows(cell) and cells.A_bar(cell)["normal"][:, 0].sum() <= 1


def test_population_and_tournament_shrink_with_few_evaluations_unless_given() -> None:
    published = EvolutionConstants()
    assert (published.population, published.tournament) == (100, 25) and sizes(
        1000, 0, 0
    ) == published
    assert (sizes(24, 0, 0).population, sizes(24, 0, 0).tournament) == (6, 1)
    assert (sizes(24, 10, 3).population, sizes(24, 10, 3).tournament) == (10, 3)
    assert sizes(1, 0, 0).population == 1


def test_the_flags_of_evolution_reach_it(make_search: MakeSearch) -> None:
    flags = ("--evaluations", "40", "--population", "9", "--tournament", "3")
    method = make_search("--method", "evolution", "--space", "nasbench201", *flags).method
    assert isinstance(method, Sampling) and isinstance(method.strategy, Evolution)
    assert (method.strategy.options.population, method.strategy.options.tournament) == (9, 3)


# --------------------------------------------------------------- reinforcement


def test_replayed_decisions_are_as_likely_as_when_they_were_drawn() -> None:
    controller = Controller(GROUPS, nasnet(), generator())
    with torch.no_grad():
        traces = [controller(generator(seed)) for seed in range(3)]
        decisions = torch.stack([torch.cat(trace.decisions) for trace in traces])
        again = controller.decide(given(decisions), 3)
    for i, trace in enumerate(traces):
        torch.testing.assert_close(again.log_probabilities[i], trace.log_probabilities[0])
        assert all(torch.equal(again.selected[name][i], trace.A_bar[name]) for name in GROUPS)
        assert trace.entropy == pytest.approx(float(again.entropies[i].sum()), rel=1e-5)


def test_log_probabilities_are_those_of_an_independent_computation() -> None:
    """Two edges of one node that keeps all: the LSTM, its heads and what is fed back, once more by
    hand."""
    controller = Controller({"x": Group(("a", "b", "c"), ((0, 1),))}, nasnet(), generator())
    lstm = nn.LSTM(100, 100, bias=False)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(controller.lstm.weight_ih)
        lstm.weight_hh_l0.copy_(controller.lstm.weight_hh)
    head, embedding = controller.heads[0], controller.embeddings[0]
    total = 0.0
    for first, second in product(range(3), repeat=2):
        with torch.no_grad():
            states, _ = lstm(torch.stack([controller.start, embedding(torch.tensor(first))]))
            log_p = head(states).log_softmax(-1)
            ours = controller.decide(given(torch.tensor([[first, second]])))
        torch.testing.assert_close(
            ours.log_probabilities[0], torch.stack([log_p[0, first], log_p[1, second]])
        )
        total += math.exp(float(ours.log_probability))
    assert total == pytest.approx(1.0, rel=1e-5)


def test_the_clipped_objective_by_hand() -> None:
    old = torch.tensor([[0.5, 0.5], [0.25, 0.8]]).log()
    new = torch.tensor([[0.9, 0.45], [0.1, 0.82]]).log().requires_grad_()
    value = clipped(new, old, torch.tensor([2.0, -1.0]), eps=0.2)
    # advantage 2: ratios 1.8 (clipped to 1.2) and 0.9; advantage -1: ratios 0.4 (clipped to 0.8)
    # and 1.025
    assert float(value.detach()) == pytest.approx((1.2 * 2 + 0.9 * 2 - 0.8 - 1.025) / 4)
    (gradient,) = torch.autograd.grad(value, new)
    expected = (
        torch.tensor([[0.0, 0.9 * 2], [0.0, -1.025]]) / 4
    )  # d r / d log p = r; nothing beyond the clip
    torch.testing.assert_close(gradient, expected)


def test_the_objective_does_not_stop_what_comes_back_from_beyond_the_clip() -> None:
    new = torch.tensor([[0.9]]).log().requires_grad_()
    (gradient,) = torch.autograd.grad(
        clipped(new, torch.tensor([[0.5]]).log(), torch.tensor([-1.0]), 0.2), new
    )
    assert float(gradient) == pytest.approx(-1.8)


def reinforced(batch: int, **options: float) -> Reinforce:
    cells = Cells({"x": Group(("a", "b", "c"))})
    return Reinforce(cells, ReinforceConstants(batch=batch, **options), generator())  # type: ignore[arg-type]


def test_advantages_are_rewards_over_a_moving_baseline() -> None:
    search = reinforced(batch=10)
    for reward in (0.2, 0.6):
        search.tell(search.ask(), reward)
    b1 = 0.95 * 0.4 + 0.05 * 0.2  # it starts at their mean
    b2 = 0.95 * b1 + 0.05 * 0.6
    assert search._advantages() == pytest.approx([0.2 - b1, 0.6 - b2])
    assert search.baseline == pytest.approx(b2)


def test_an_update_is_four_steps_of_adam_on_the_objective() -> None:
    search, twin = reinforced(batch=2, learning_rate=0.01), reinforced(batch=2, learning_rate=0.01)
    drawn: list[tuple[Tensor, Tensor]] = []
    for reward in (0.3, 0.9):
        cell = search.ask()
        drawn.append((torch.tensor(search.asked[-1][0]), torch.tensor(search.asked[-1][1])))
        search.tell(cell, reward)
    assert search.waiting == []
    b1 = 0.95 * 0.6 + 0.05 * 0.3
    advantages = [0.3 - b1, 0.9 - (0.95 * b1 + 0.05 * 0.9)]
    adam = torch.optim.Adam(twin.controller.parameters(), 0.01)
    for _ in range(4):
        loss = torch.zeros(())
        for (decisions, old), a in zip(drawn, advantages, strict=True):
            trace = twin.controller.decide(given(decisions[None]))
            r = (trace.log_probabilities[0] - old).exp()
            p = trace.logs[0].exp()
            loss = (
                loss
                - torch.minimum(r * a, r.clamp(0.8, 1.2) * a).sum() / 2
                + 1e-5 * (p * p.log()).sum() / 2
            )
        adam.zero_grad()
        loss.backward()
        adam.step()
    for ours, theirs in zip(
        search.controller.parameters(), twin.controller.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


# ------------------------------------------------------------------------ pnas


def progressive(evaluations: int, groups: dict[str, Group] = GROUPS) -> Pnas:
    return Pnas(
        Cells(groups), evaluations, PnasConstants(surrogate=SurrogateOptions(steps=60)), generator()
    )


def test_cells_grow_by_a_node_a_level_and_are_always_whole() -> None:
    search, lengths = progressive(60), []
    for _ in range(60):
        cell = search.ask()
        check(search.cells, cell)
        lengths.append(len(search.asked[-1]))
        search.tell(cell, 0.5)
    assert lengths == sorted(lengths) and set(lengths) == {1, 2, 3, 4, 5, 6}
    assert all(lengths.count(length) <= 12 for length in range(1, 6)) and lengths.count(6) >= 10
    assert [place.group for place in search.places] == ["normal", "reduce"] * 3


def test_a_small_cell_passes_on_what_there_is() -> None:
    search = progressive(10, dict(spaces.find("nasbench201").groups))
    names = search.cells.groups["cell"].candidates
    convolution = names.index("nor_conv_3x3")
    genotype = spaces.find("nasbench201").genotype(
        search.cells.A_bar(search.complete((((0, convolution),),)))
    )
    assert (
        genotype.to_string()
        == "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|skip_connect~2|"
    )
    (first, *_), second = progressive(10).complete((((0, 1), (1, 2)),)), ((2, 0), (3, 0))
    assert first == ((0, 1), (1, 2)) and progressive(10).complete(())[1] == second


def test_extensions_are_those_of_the_best_of_the_level_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = progressive(12, {"x": Group(("skip_connect", "a", "b"), NODES, 2)})
    asked, order = [], []
    monkeypatch.setattr(search, "ranked", lambda partials: order.append(len(partials)) or partials)
    monkeypatch.setattr(search, "options", PnasConstants(parents=2))
    for i in range(8):
        cell = search.ask()
        asked.append(search.asked[-1])
        search.tell(cell, float(i))
    assert [len(p) for p in asked] == [1] * 4 + [
        2
    ] * 4  # a third of twelve, then half of what is left
    assert order == [2 * 3 * 9]  # two parents, three pairs of rows, nine pairs of candidates
    assert {p[:1] for p in asked[4:]} <= {asked[3], asked[2]}


def test_after_the_last_level_there_is_always_another_cell() -> None:
    search, seen = progressive(6, {"x": Group(("skip_connect", "a"), ((0,), (1,)), None)}), []
    for _ in range(9):
        cell = search.ask()
        seen.append(search.asked[-1])
        search.tell(cell, 0.0)
    assert set(seen[:6]) == {(((0, k),),) for k in (0, 1)} | {
        (((0, k),), ((1, n),)) for k in (0, 1) for n in (0, 1)
    }
    assert all(len(p) == 2 for p in seen[6:])


def test_the_surrogate_ranks_cells_that_it_has_not_seen() -> None:
    """Trained on small cells it orders larger ones: scores are the share of one candidate."""
    cells = Cells(GROUPS)
    search = progressive(100)
    random = generator(1)

    def described(nodes: int) -> tuple[Tensor, Tensor]:
        partials = [tuple(cells.draw(random)[n] for n in search.order)[:nodes] for _ in range(80)]
        share = [sum(k == 1 for picks in p for _, k in picks) / sum(map(len, p)) for p in partials]
        return torch.tensor(
            [features(search.places[:nodes], p, search.widths) for p in partials]
        ), torch.tensor(share)

    x, y = described(4)
    larger, expected = described(6)
    predicted = fit(x, y, SurrogateOptions(), generator())(larger)
    ranks = [
        a.argsort().argsort().double() for a in (predicted, expected + 1e-6 * predicted)
    ]  # ties in our order
    assert float(torch.corrcoef(torch.stack(ranks))[0, 1]) > 0.9


def test_features_are_shares_of_candidates_and_of_candidates_on_states() -> None:
    places = Cells({"x": Group(("a", "b"), ((0, 1), (2, 3, 4)), 2)}).places
    x = features(places, (((0, 0), (1, 1)), ((2, 1), (4, 1))), {"x": (3, 2)})
    assert x[:2] == [0.25, 0.75]
    assert x[2:] == [0.25, 0.25, 0.0, 0.25, 0.0, 0.25]  # state 0: a, b; state 1: b; state 2: b


# ---------------------------------------------------------------- all together


def convolutions(genotype: Genotype) -> float:
    """The share of 3x3 convolutions."""
    edges = [edge for cell in genotype.cells.values() for node in cell.nodes for edge in node]
    return sum(
        edge.op in ("sep_conv_3x3", "nor_conv_3x3", "max_pool_3x3", "relu") for edge in edges
    ) / len(edges)


OPTIONS = {"evolution": ("--population", "15"), "reinforce": ("--arch-learning-rate", "0.01")}


def found(make_search: MakeSearch, method: str, space: str, seed: int, number: int) -> float:
    """What the returned cell is worth, after so many evaluations by counting."""
    flags = ("--evaluations", str(number), "--seed", str(seed), *OPTIONS.get(method, ()))
    search = make_search("--method", method, "--space", space, *flags)
    searching = methods.make(method, replace(search._setup(), judge=convolutions))
    for _ in range(number):
        searching.step()
    best = convolutions(search.space.genotype(searching.architecture()[1]))
    assert searching.validation() == pytest.approx((1 - best, best))
    return best


@pytest.mark.parametrize(
    ("method", "space", "number"),
    [
        ("evolution", "darts7", 300),
        ("evolution", "rnn", 300),
        ("reinforce", "nasbench201", 100),
        ("pnas", "nasbench201", 80),
    ],
)
def test_with_a_judge_that_counts_convolutions_each_beats_random(
    method: str, space: str, number: int, make_search: MakeSearch
) -> None:
    theirs, ours = (
        [found(make_search, name, space, seed, number) for seed in (0, 1)]
        for name in ("random", method)
    )
    assert sum(ours) > sum(theirs) + 0.1 and max(theirs) < 1


def test_with_a_judge_a_step_is_an_evaluation_and_the_best_only_grows(
    make_search: MakeSearch,
) -> None:
    search = make_search("--method", "evolution", "--space", "nasbench201", "--evaluations", "30")
    asked: list[Genotype] = []

    def judge(genotype: Genotype) -> float:
        asked.append(genotype)
        return convolutions(genotype)

    judged = Search(search.config, search.task.images, judge=judge)  # type: ignore[attr-defined]
    best = []
    for t in range(30):
        metrics = judged.step()
        assert len(asked) == t + 1 and metrics.examples == 1
        assert float(metrics.figure) == pytest.approx(convolutions(asked[-1]))
        best.append(judged.validation().figure)
    assert all(a <= b for a, b in pairwise(best)) and best[-1] == max(map(convolutions, asked))
    assert judged.train.delivered == 0  # nothing was trained
