"""NAO: the words of cells, the model of them, and its rounds."""

from __future__ import annotations

import pytest
import torch

from proxnas.core.groups import Group
from proxnas.domains import spaces
from proxnas.methods.autoencoder import Autoencoder, AutoencoderOptions, Language, fit, loss
from proxnas.methods.cells import Cell, Cells
from proxnas.methods.nao import Constants, Nao, NaoOptions
from support.searches import same, stored

SPACES = ("darts7", "darts8", "nasbench201", "enas5", "rnn", "resnet")
SMALL = AutoencoderOptions(hidden=16, steps=100, learning_rate=0.01, batch=20, unlabelled=60)
CHAIN = {"chain": Group(("a", "b", "c"), ((0,), (1,), (2,), (3,)))}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(cells: Cells, number: int, seed: int = 0) -> list[Cell]:
    chance = generator(seed)
    return [cells.draw(chance) for _ in range(number)]


def count_a(cell: Cell) -> float:
    """How often the first candidate is in a cell."""
    return float(sum(k == 0 for picks in cell for _, k in picks))


# ------------------------------------------------------------------- the words


@pytest.mark.parametrize("space", SPACES)
def test_words_say_the_cell_and_are_allowed_where_they_stand(space: str) -> None:
    cells = Cells(spaces.find(space).groups)
    language = Language(cells)
    for cell in draw(cells, 20):
        words = language.words(cell)
        assert language.cell(words) == cell
        assert len(words) == len(language.slots)
        assert all(bool(language.allowed[t, word]) for t, word in enumerate(words))


@pytest.mark.parametrize("space", SPACES)
def test_whatever_is_decoded_is_a_cell_of_the_space(space: str) -> None:
    cells = Cells(spaces.find(space).groups)
    torch.manual_seed(0)
    model = Autoencoder(Language(cells), 8)
    for cell in model.decode(torch.randn(10, len(model.language.slots), 8)):
        assert cells.of(cells.A_bar(cell)) == cell
        for place, picks in zip(cells.places, cell, strict=True):
            assert len({e for e, _ in picks}) == len(picks) == place.inputs
            assert all(k in place.usable for _, k in picks)


# ------------------------------------------------------------------- the model


def test_the_loss_is_that_of_the_paper() -> None:
    cells = Cells(CHAIN)
    torch.manual_seed(0)
    model = Autoencoder(Language(cells), 6)
    words = torch.tensor([model.language.words(cell) for cell in draw(cells, 5)])
    targets = torch.linspace(0, 1, 3)
    h = model.encode(words)
    assert torch.allclose(h.norm(dim=-1), torch.ones(5, 4))
    log_p = model.log_probabilities(h, words)
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(5, 4))
    said = torch.stack([log_p[:, t].gather(1, words[:, t : t + 1]) for t in range(4)])
    expected = 0.8 * ((model.predict(h)[:3] - targets) ** 2).mean() - 0.2 * said.mean()
    found = loss(model, words[:3], targets, words[3:], 0.8)
    torch.testing.assert_close(found, expected)


def test_a_decision_does_not_know_what_comes_after_it() -> None:
    cells = Cells(CHAIN)
    torch.manual_seed(0)
    model = Autoencoder(Language(cells), 6)
    h = torch.randn(1, 4, 6)
    one, other = (torch.tensor([model.language.words(c)]) for c in draw(cells, 2))
    mixed = torch.cat([one[:, :2], other[:, 2:]], 1)
    same_until = model.log_probabilities(h, one)[:, :3]
    torch.testing.assert_close(model.log_probabilities(h, mixed)[:, :3], same_until)


def test_a_fitted_model_predicts_and_says_again_and_climbs() -> None:
    cells = Cells(CHAIN)
    seen = [(cell, count_a(cell)) for cell in dict.fromkeys(draw(cells, 40))]
    model = fit(Language(cells), seen, SMALL, generator())
    known, scores = [cell for cell, _ in seen], torch.tensor([score for _, score in seen])
    h = model.embed(known)
    f = model.predict(h).detach()
    assert float(torch.corrcoef(torch.stack([f, scores]))[0, 1]) > 0.9
    again = model.decode(h)
    assert sum(a == b for a, b in zip(again, known, strict=True)) > 0.8 * len(known)
    assert (model.predict(model.ascend(h, 0.5)) >= f - 1e-6).all()
    climbed = model.decode(model.ascend(h, 1.0))
    assert sum(map(count_a, climbed)) / len(climbed) > float(scores.mean()) + 0.3
    ranked = model.ranked(known)
    assert count_a(ranked[0]) > count_a(ranked[-1])


def test_a_step_uphill_has_its_length() -> None:
    cells = Cells(CHAIN)
    torch.manual_seed(0)
    model = Autoencoder(Language(cells), 32)  # with few units some cells would have no slope
    h = model.embed(draw(cells, 3)).requires_grad_()
    (g,) = torch.autograd.grad(model.predict(h).sum(), h)
    expected = h + 0.3 * g / g.norm(dim=-1, keepdim=True)
    expected = (expected / expected.norm(dim=-1, keepdim=True)).detach()
    torch.testing.assert_close(model.ascend(h, 0.3), expected)


# ------------------------------------------------------------------ the rounds


def nao(evaluations: int, rounds: int = 3, **options: int) -> Nao:
    constants = Constants(model=SMALL)
    told = NaoOptions(evaluations=evaluations, rounds=rounds, **options)
    return Nao(Cells(CHAIN), told, generator(), constants=constants)


@pytest.mark.parametrize(
    ("evaluations", "rounds", "expected"),
    [
        (10, 3, [6, 2, 2]),
        (24, 3, [14, 5, 5]),
        (5, 3, [3, 1, 1]),
        (11, 4, [6, 1, 2, 2]),
        (1, 3, [1]),
    ],
)
def test_rounds_share_the_evaluations(evaluations: int, rounds: int, expected: list[int]) -> None:
    strategy = nao(evaluations, rounds, predictor_steps=1)
    counts = [0] * (rounds + 1)
    cells = []
    for _ in range(evaluations):
        cells.append(strategy.ask())
        counts[strategy.round - 1] += 1
        strategy.tell(cells[-1], count_a(cells[-1]))
    assert [count for count in counts if count] == expected
    assert len(set(cells)) == evaluations  # none twice
    strategy.ask()  # one more, for which nothing is fitted
    assert strategy.round == len(expected)


def test_later_rounds_are_better_than_the_first() -> None:
    strategy = nao(30, predictor_steps=80)
    scores: dict[int, list[float]] = {}
    for _ in range(30):
        cell = strategy.ask()
        strategy.tell(cell, count_a(cell))
        scores.setdefault(strategy.round, []).append(count_a(cell))
    first, last = (sum(scores[r]) / len(scores[r]) for r in (1, 3))
    assert last > first


def test_a_round_waits_for_the_one_before() -> None:
    strategy = nao(10, predictor_steps=1)
    asked = [strategy.ask() for _ in range(6)]
    assert not strategy.ready()
    for cell in asked:
        strategy.tell(cell, 0.5)
    assert strategy.ready()


def test_the_model_learns_of_the_cells_within_the_limit() -> None:
    cells = Cells(CHAIN)
    only = draw(cells, 1)[0]
    strategy = Nao(cells, NaoOptions(evaluations=5), generator(), lambda _: only)
    assert strategy.ask() == only
    strategy.tell(only, 1.0)
    assert strategy.seen == [(only, 1.0)]


def test_a_strategy_resumes_to_the_bit() -> None:
    whole, first, second = (nao(10, predictor_steps=3) for _ in range(3))

    def run(strategy: Nao, number: int) -> list[Cell]:
        cells = []
        for _ in range(number):
            cells.append(strategy.ask())
            strategy.tell(cells[-1], count_a(cells[-1]))
        return cells

    expected = run(whole, 10)
    assert run(first, 7) == expected[:7]
    second.load_state_dict(stored(first.state_dict()))
    assert run(second, 3) == expected[7:]
    assert same(whole.state_dict(), second.state_dict())
