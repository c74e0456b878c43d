"""Single path one-shot: paths of training, and the evolution at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from proxnas.core.groups import Group
from proxnas.methods.cells import Cell, Cells
from proxnas.methods.spos import Breeding, Constants, Spos
from proxnas.runs.metrics import Validation
from proxnas.searching.job import Search
from support.searches import same, spy_on_paths, steps, stored

MakeSearch = Callable[..., Search]
NODES = ((0, 1), (2, 3, 4), (5, 6, 7, 8))
GROUPS = {
    "normal": Group(("skip_connect", "a", "b"), NODES, 2),
    "chain": Group(("c", "d"), ((0,),)),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(make_search: MakeSearch, *flags: str) -> tuple[Search, Spos]:
    search = make_search("--method", "spos", "--epochs", "1", *flags)
    assert isinstance(search.method, Spos)
    return search, search.method


# ------------------------------------------------------------------- training


@pytest.mark.parametrize("space", ["nasbench201", "resnet", "darts7"])
def test_in_a_fair_step_every_candidate_of_a_row_is_in_one_path(
    space: str, make_search: MakeSearch
) -> None:
    _, method = made(make_search, "--space", space, "--paths", "fair")
    paths = method._fair_paths()
    usable = {(p.group, e): p.usable for p in method.cells.places for e in p.rows}
    most = max(map(len, usable.values()))
    assert len(paths) == most
    for (group, e), candidates in usable.items():
        counts = Counter(k for path in paths for k in path[group][e].nonzero().flatten().tolist())
        if counts:  # the nodes of darts7 keep two of their rows
            rounds = most / len(candidates)
            assert set(counts) <= set(candidates) and sum(counts.values()) == most
            assert all(int(rounds) <= counts[k] <= -(-most // len(candidates)) for k in candidates)
    for path in paths:
        cell = method.cells.of(path)
        assert [len(picks) for picks in cell] == [p.inputs for p in method.cells.places]
    assert not same(method._fair_paths(), paths)


def test_a_fair_step_moves_w_once_by_the_sum_of_the_gradients(make_search: MakeSearch) -> None:
    flags = ("--space", "nasbench201", "--paths", "fair", "--momentum", "0", "--weight-decay", "0")
    search, method = made(make_search, *flags, "--clip", "1000000")
    weights = dict(search.net.module.named_parameters())
    before = {name: w.detach().clone() for name, w in weights.items()}
    batch = search.train.next()
    paths = method._fair_paths()
    expected = {name: torch.zeros_like(w) for name, w in weights.items()}
    losses = []
    for path in paths:
        search.net.use(path)
        loss, _ = search.net.loss(batch)
        losses.append(float(loss.detach()))
        found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        for name, g in zip(weights, found, strict=True):
            if g is not None:
                expected[name] += g
    rate = method.w_optimizer.learning_rate
    loss, _ = method.train_paths(paths, batch)
    assert float(loss) == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert method.w_optimizer.t == 1
    for name, w in weights.items():
        torch.testing.assert_close(w.detach(), before[name] - rate * expected[name])


def test_uniform_steps_draw_every_candidate_alike(make_search: MakeSearch) -> None:
    search, method = made(make_search, "--space", "nasbench201")
    counts = torch.stack([method._draw()["cell"] for _ in range(2000)]).mean(0)
    assert counts.sub(1 / 5).abs().max() < 0.05
    paths = spy_on_paths(search.net)
    steps(search, 1)
    assert len(paths) == 1


def test_a_limit_rules_the_search_and_not_the_training(make_search: MakeSearch) -> None:
    free, _ = made(make_search, "--space", "nasbench201")
    assert free.budget is None
    sizes = make_search("--space", "nasbench201", "--max-params", "100M").budget.sizes  # type: ignore[union-attr]
    limit = str(int(sizes.smallest + 0.2 * (sizes.largest - sizes.smallest)))
    search, method = made(make_search, "--space", "nasbench201", "--max-params", limit)
    paths = spy_on_paths(search.net)
    steps(search, 4)
    assert search.budget is not None and not all(map(search.budget.meets, paths))
    paths.clear()
    method.choose_now()
    assert len(paths) > 20 and all(map(search.budget.meets, paths))
    assert search.budget.meets(method.architecture()[1])


# ---------------------------------------------------------------- the search


def test_a_crossover_takes_every_decision_from_a_parent() -> None:
    cells = Cells(GROUPS)
    breeding = Breeding(cells, 0.1, generator())
    one, other = cells.draw(generator(1)), cells.draw(generator(2))
    children = [breeding.crossed(one, other) for _ in range(200)]
    for child in children:
        for place, a, b, c in zip(cells.places, one, other, child, strict=True):
            if place.inputs < len(place.rows):
                assert c in (a, b)
            else:
                assert all(z in (x, y) for x, y, z in zip(a, b, c, strict=True))
    different = [n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    shares = [sum(child[n] == one[n] for child in children) / 200 for n in different]
    assert different and all(0.1 < share < 0.65 for share in shares)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_a_mutation_redraws_decisions_by_its_chance(p: float) -> None:
    cells = Cells({"chain": Group(("a", "b", "c", "d"), ((0,), (1,), (2,), (3,), (4,)))})
    breeding = Breeding(cells, p, generator())
    cell = cells.draw(generator(1))
    moved = 0
    for _ in range(400):
        child = breeding.mutated(cell)
        moved += sum(a != b for a, b in zip(cell, child, strict=True))
    # a decision that is redrawn is another one in 3 of 4 cases
    assert moved / 400 / 5 == pytest.approx(0.75 * p, abs=0.03)


def test_mutations_are_cells_of_the_space() -> None:
    cells = Cells(GROUPS)
    breeding = Breeding(cells, 0.5, generator())
    for seed in range(50):
        child = breeding.mutated(cells.draw(generator(seed)))
        assert cells.of(cells.A_bar(child)) == child
        for place, picks in zip(cells.places, child, strict=True):
            assert len({e for e, _ in picks}) == len(picks) == place.inputs
            assert {e for e, _ in picks} <= set(place.rows)


def judge_by(search: Search, method: Spos, value: Callable[[Cell], float]) -> list[Cell]:
    """Cells are judged by a function in place of the data; what was judged."""
    asked: list[Cell] = []

    def evaluate(batches: int | None = None) -> Validation:
        cell = asked[-1]
        return Validation(1 - value(cell), value(cell))

    plain = method.judge

    def judge(cell: Cell, batches: int | None) -> object:
        asked.append(cell)
        return plain(cell, batches)

    method.evaluate, method.judge = evaluate, judge  # type: ignore[assignment]
    return asked


def test_evolution_finds_what_random_cells_do_not(make_search: MakeSearch) -> None:
    flags = ("--space", "nasbench201", "--population", "20", "--generations", "10")
    search, method = made(make_search, *flags)
    convolution = search.net.groups["cell"].candidates.index("nor_conv_3x3")

    def value(cell: Cell) -> float:
        picked = [k for picks in cell for _, k in picks]
        return sum(k == convolution for k in picked) / len(picked)

    asked = judge_by(search, method, value)
    found = method.evolve()
    random = max(map(value, asked[:20]))
    assert value(found) == 1.0 > random


def test_no_cell_is_judged_twice_and_finalists_on_everything(make_search: MakeSearch) -> None:
    search, method = made(
        make_search, "--space", "nasbench201", "--population", "8", "--generations", "3"
    )
    asked = judge_by(search, method, lambda cell: hash(cell) % 100 / 100)
    method.evolve()
    assert len(asked) == 8 * 3 + Constants.finalists
    generations, finalists = asked[: 8 * 3], asked[8 * 3 :]
    assert len(set(generations)) == 8 * 3 and set(finalists) <= set(generations)
    best = sorted(generations, key=lambda cell: -(hash(cell) % 100))
    assert set(finalists) <= {c for c in best if hash(c) % 100 >= hash(best[9]) % 100}


def test_a_small_space_ends_the_search_early(make_search: MakeSearch) -> None:
    search, method = made(make_search, "--space", "nasbench201")
    method.cells = Cells({"cell": Group(("a", "b"), ((0,),))})
    method.breeding = Breeding(method.cells, 0.1, generator())
    method.net.use = lambda A_bar, weighted=False: None  # type: ignore[method-assign]
    asked = judge_by(search, method, lambda cell: float(cell[0][0][1]))
    assert method.evolve() == (((0, 1),),)
    assert len(set(asked)) == 2


def test_the_search_at_the_end_resumes_to_the_bit(make_search: MakeSearch) -> None:
    flags = ("--space", "nasbench201", "--paths", "fair", "--population", "4", "--generations", "2")
    whole, _ = made(make_search, *flags)
    first, _ = made(make_search, *flags)
    second, _ = made(make_search, *flags)
    losses = steps(whole, 5)
    assert steps(first, 4) == losses[:4]
    second.load_state_dict(stored(first.state_dict()))
    assert steps(second, 1) == losses[4:]
    assert same(whole.state_dict(), second.state_dict())
