"""Recurrent language models: sizes, the hand-written recurrence and the chunked decoder against
plain autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.core.size.complexity import parameters
from proxnas.domains.text import language
from proxnas.domains.text.language import Dropouts, LanguageModel, LanguageSize, decoded_loss, speak
from proxnas.domains.text.network import lstm_network, recurrent_network
from proxnas.domains.text.recurrence import CellPlan, Highway, _outputs, unroll

DARTS_V2 = (
    ("sigmoid", 0),
    ("relu", 1),
    ("relu", 1),
    ("identity", 1),
    ("tanh", 2),
    ("sigmoid", 5),
    ("tanh", 3),
)
T, B, H, V = 4, 5, 6, 11


def genotype(*edges: tuple[str, int]) -> Genotype:
    nodes = tuple((Edge(op, i),) for op, i in edges)
    return Genotype("rnn", {"recurrent": Cell(nodes, tuple(range(1, len(nodes) + 1)))})


EIGHT = genotype(*DARTS_V2, ("relu", 5))
MODELS = {"cell": lambda size, *more: recurrent_network(EIGHT, size, *more), "lstm": lstm_network}


def small(name: str, dropouts: Dropouts = language.NOTHING) -> LanguageModel:
    return MODELS[name](LanguageSize(V, H), dropouts)


def text() -> tuple[Tensor, Tensor]:
    return torch.randint(V, (T, B)), torch.randint(V, (T, B))


def gradients(loss: Tensor, of: list[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, of, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(of, found, strict=True)]


@pytest.mark.parametrize(
    ("words", "units", "millions"), [(10_000, 850, 22.96), (33_278, 700, 33.13)]
)
def test_the_published_sizes(words: int, units: int, millions: float) -> None:
    with torch.device("meta"):
        cell, lstm = (make(LanguageSize(words, units)) for make in MODELS.values())
    assert round(parameters(cell) / 1e6, 2) == millions
    assert parameters(lstm) == pytest.approx(parameters(cell), rel=0.002)


PLAN = (
    Highway(0, "tanh"),
    Highway(1, "relu", 0.7),
    Highway(1, "sigmoid"),
    Highway(2, "identity"),
    Highway(4, "tanh"),
)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("outputs", [(1, 2, 3, 4), (1, 3)])  # node 4 then reaches nothing
def test_the_backward_pass_by_hand_is_that_of_autograd(
    norm: bool, dropped: bool, outputs: tuple[int, ...]
) -> None:
    plan = CellPlan(PLAN, outputs, norm)
    mask = (torch.rand(B, H) > 0.3) / 0.7 if dropped else None
    xz, h = torch.randn(T, B, 2 * H, requires_grad=True), torch.randn(B, H, requires_grad=True)
    weights = [torch.randn(H, 2 * H, requires_grad=True) for _ in PLAN]
    direction = torch.randn(T, B, H)
    ours, plain = unroll(plan, xz, h, weights, mask)[0], _outputs(plan, xz, h, weights, mask)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
    pairs = [gradients((y * direction).sum(), [xz, h, *weights]) for y in (ours, plain)]
    torch.testing.assert_close(*pairs, rtol=1e-10, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(unroll(plan, xz, h, weights, mask)[0], plain, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("chunk", [1, 40, 10**6])
def test_the_chunked_decoder_is_cross_entropy(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "CHUNK", chunk)
    features, weight, bias = (
        torch.randn(shape, requires_grad=True) for shape in ((20, H), (V, H), (V,))
    )
    y = torch.randint(V, (20,))
    logits = nn.functional.linear(features, weight, bias)
    plain = nn.functional.cross_entropy(logits, y)
    ours, right = decoded_loss(features, weight, bias, y)
    torch.testing.assert_close(ours, plain)
    assert right == (logits.argmax(-1) == y).sum()
    of = [features, weight, bias]
    torch.testing.assert_close(gradients(3 * ours, of), gradients(3 * plain, of))
    with torch.no_grad():
        torch.testing.assert_close(decoded_loss(features, weight, bias, y)[0], plain)


def test_the_decoder_never_holds_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    plain = torch.addmm
    monkeypatch.setattr(language, "CHUNK", 7 * V)
    monkeypatch.setattr(torch, "addmm", lambda *args: sizes.append(len(args[1])) or plain(*args))
    decoded_loss(torch.randn(20, H), torch.randn(V, H), torch.zeros(V), torch.randint(V, (20,)))
    assert sizes == [7, 7, 6]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", MODELS)
def test_the_state_carries_over(name: str) -> None:
    model, (x, y) = small(name), text()
    whole, *after = model(x)
    first, *between = model(x[:1])
    second, *ended = model(x[1:], *between)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(ended, after)
    loss = speak(model, x[1:], y[1:], tuple(between))
    expected = nn.functional.cross_entropy(whole[1:].flatten(0, 1), y[1:].flatten())
    torch.testing.assert_close(loss.cross_entropy, expected)
    torch.testing.assert_close(list(loss.hidden), after)
    assert not any(s.requires_grad for s in loss.hidden)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", MODELS)
def test_regularisers_are_those_of_the_outputs(name: str) -> None:
    model, (x, y) = small(name, Dropouts(0.5, 0.5, 0.5, 0.5, 0.5)), text()
    masks = model.masks(B, torch.Generator().manual_seed(1))
    raw, dropped, _ = model.features(x, model.initial(B), masks)
    plain, sized = speak(model, x, y, masks=masks), speak(model, x, y, None, masks, 2.0, 3.0)
    expected = plain.loss + 2 * (dropped**2).mean() + 3 * ((raw[1:] - raw[:-1]) ** 2).mean()
    torch.testing.assert_close(sized.loss, expected)
    torch.testing.assert_close(sized.cross_entropy, plain.loss)
    assert speak(
        model, x[:1], y[:1], None, masks, 0, 3.0
    ).loss.isfinite()  # one step has no change to be slow in


@pytest.mark.parametrize("name", MODELS)
def test_masks_drop_alike_at_all_times_and_keep_the_mean(name: str) -> None:
    model = MODELS[name](LanguageSize(2000, 40), Dropouts(0.75, 0.25, 0.5, 0.2, 0.1))
    masks = model.masks(64, torch.Generator().manual_seed(0))
    for mask, chance in zip(masks, (0.75, 0.25, 0.5, 0.2, 0.1), strict=True):
        assert mask is not None and mask.unique().tolist() == pytest.approx([0, 1 / (1 - chance)])
        assert (mask == 0).float().mean().item() == pytest.approx(chance, abs=0.04)
    again = model.masks(64, torch.Generator().manual_seed(0))
    assert all(
        torch.equal(a, b)
        for a, b in zip(masks, again, strict=True)
        if a is not None and b is not None
    )
    raw, dropped, _ = model.features(torch.randint(2000, (T, 64)), model.initial(64), masks)
    torch.testing.assert_close(dropped, raw * masks.output)
    assert small(name).masks(B) == (None,) * 5


def test_none_is_a_state_of_zeros() -> None:
    model = recurrent_network(genotype(("none", 0), ("relu", 0)), LanguageSize(V, H))
    same = recurrent_network(genotype(("relu", 0)), LanguageSize(V, H))
    same.load_state_dict(model.state_dict() | {"core.weights.nodes": model.core.weights.nodes[1:]})
    x = torch.randint(V, (1, B))
    raw = [m.features(x, m.initial(B)).raw for m in (model, same)]
    torch.testing.assert_close(raw[0], raw[1] / 2)  # the mean of it and of nothing


@pytest.mark.parametrize("name", MODELS)
def test_it_learns(name: str) -> None:
    model = small(name)
    x = (torch.arange(8)[:, None] + torch.arange(B)) % 3
    sgd = torch.optim.SGD(model.parameters(), 10.0)
    for _ in range(200):
        loss = speak(model, x[:-1], x[1:]).loss
        sgd.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        sgd.step()
    assert loss < 0.1
