"""The recurrent space: gradients against plain autograd through the whole mixture, streams,
figures, bad input."""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Share
from proxnas.core.selection import random_selection
from proxnas.core.supernet import Supernet
from proxnas.domains.text.data.text_stream import TextStream
from proxnas.domains.text.language import Dropouts, LanguageModel, LanguageSize, Masks, speak
from proxnas.domains.text.recurrence import ACTIVATIONS
from proxnas.domains.text.space import NAME, NODES, SOURCES, RecurrentSpace
from proxnas.domains.text.task import CarriedStream, Carry, NextWord, Window
from proxnas.runs.progress import Silent
from proxnas.searching.job import Search

T, B, H, V = 4, 5, 6, 11
SPACE = RecurrentSpace()
GROUP = SPACE.groups[NAME]
DROPOUTS = Dropouts(0.5, 0.3, 0.5, 0.2, 0.1)
NORMS = pytest.mark.parametrize("norm", [True, False])
MakeSearch = Callable[..., Search]


def supernet(norm: bool = True, slowness: float = 0.5) -> Supernet:
    module = SPACE.search_network(LanguageSize(V, H), DROPOUTS, norm)
    with torch.no_grad():
        for w in module.parameters():
            w.mul_(20)  # far from linear
    return Supernet(module, SPACE.groups, objective=NextWord(T, 0.3, slowness))


def window(seed: int | None = None) -> Window:
    carry = Carry()
    carry.before = (torch.randn(B, H),)
    return Window.of(Batch(torch.randint(V, (T, B)), torch.randint(V, (T, B))), carry, seed)


def plain_loss(net: Supernet, batch: Window, A: Tensor, norm: bool) -> Tensor:
    """The loss of the mixture of all 36 x 4 entries, as the DARTS paper writes it down."""
    model, objective = net.module, net.objective
    assert (
        isinstance(model, LanguageModel) and isinstance(objective, NextWord) and batch.carry.before
    )
    m = Masks() if batch.seed is None else model.masks(B, torch.Generator().manual_seed(batch.seed))
    drop = lambda x, mask: x if mask is None else x * mask  # noqa: E731
    normed = nn.BatchNorm1d(H, affine=False, track_running_stats=False) if norm else nn.Identity()
    W0, W = model.core.weights.first, model.core.weights.nodes
    embedded = drop(drop(drop(model.embedding, m.words)[batch.x], m.embedding), m.input)
    h, outputs = batch.carry.before[0], []
    for x in embedded:
        c, y = (torch.cat([x, drop(h, m.hidden)], -1) @ W0).chunk(2, -1)
        states = [normed(h + c.sigmoid() * (y.tanh() - h))]
        for j in range(NODES):
            total = torch.zeros_like(h)
            for e in GROUP.nodes[j]:
                s = states[SOURCES[e]]
                c, y = (drop(s, m.hidden) @ W[j]).chunk(2, -1)
                for k, name in enumerate(GROUP.candidates):
                    total = total + A[e, k] * (s + c.sigmoid() * (ACTIVATIONS[name](y) - s))
            states.append(normed(total))
        h = sum(states[1:]) / NODES
        outputs.append(h)
    raw = torch.stack(outputs)
    dropped = drop(raw, m.output)
    loss = nn.functional.cross_entropy(
        (dropped @ model.embedding.T + model.bias).flatten(0, 1), batch.y.flatten()
    )
    change = (raw[1:] - raw[:-1]).square().mean()
    return loss + objective.activation * dropped.square().mean() + objective.slowness * change


def discrete(value: str) -> Matrices:
    A_bar = random_selection(GROUP, torch.Generator().manual_seed(2))
    return {NAME: A_bar if value == "one" else A_bar * (0.2 + 0.7 * torch.rand(A_bar.shape))}


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("double")
@NORMS
@pytest.mark.parametrize("value", ["one", "a_k"])
@pytest.mark.parametrize("seed", [None, 3])
def test_both_gradients_are_those_of_autograd_through_the_mixture(
    norm: bool, value: str, seed: int | None
) -> None:
    """For all entries, also of rows that are not kept; dropout off, and on with the same masks."""
    net, batch, A_bar = supernet(norm), window(seed), discrete(value)
    weights = list(net.module.parameters())
    A = A_bar[NAME].clone().requires_grad_()
    loss = plain_loss(net, batch, A, norm)
    dA, *dw = torch.autograd.grad(loss, [A, *weights])
    net.use(A_bar, weighted=value == "a_k")
    close(net.loss(batch)[0], loss)
    ours, ours_w = net.architecture_gradient(batch, weights)
    close(ours[NAME], dA)
    close(list(ours_w), dw)
    alone, nothing = net.architecture_gradient(batch)
    close(alone[NAME], dA)
    assert nothing == () and all(w.requires_grad for w in weights)
    net.loss(batch)[0].backward()
    close([w.grad for w in weights], dw)
    assert (dA != 0).all()  # every entry was compared


@pytest.mark.usefixtures("double")
@NORMS
def test_the_mixture_of_darts_is_the_same_function(norm: bool) -> None:
    net, batch = supernet(norm), window(3)
    A = torch.randn(GROUP.shape).requires_grad_()
    of = [A, *net.module.parameters()]
    plain = plain_loss(net, batch, A.softmax(-1), norm)
    net.use({NAME: A.softmax(-1)}, weighted=True)
    loss, spoken = net.loss(batch)
    close(loss, plain)
    close(list(torch.autograd.grad(loss, of)), list(torch.autograd.grad(plain, of)))
    with torch.no_grad():
        close(net.loss(batch)[1].cross_entropy, spoken.cross_entropy)


@pytest.mark.usefixtures("double")
def test_entries_that_are_zero_take_no_part_in_a_mixture() -> None:
    """A sampled architecture with its factors differentiated, as straight-through methods have
    it."""
    net, batch = supernet(), window()
    one_op = torch.zeros(GROUP.shape).scatter_(1, torch.randint(4, (36, 1)), 1.0)
    A = one_op.clone().requires_grad_()
    plain = plain_loss(net, batch, A, True)
    net.use({NAME: A}, weighted=True)
    loss, _ = net.loss(batch)
    close(loss, plain)
    (expected,), (ours,) = torch.autograd.grad(plain, [A]), torch.autograd.grad(loss, [A])
    close(ours, expected * one_op)
    net.use({NAME: one_op})
    with pytest.raises(RuntimeError, match="discrete"):
        net.architecture_gradient(batch)


@pytest.mark.usefixtures("double")
@NORMS
@pytest.mark.parametrize("value", ["one", "a_k"])
def test_the_cell_returned_is_the_cell_trained(norm: bool, value: str) -> None:
    """The genotype's own network with the same weights computes the same loss, factors and all."""
    net, batch, A_bar = supernet(norm), window(), discrete(value)
    net.use(A_bar, weighted=value == "a_k")
    genotype = Genotype.from_json(SPACE.genotype(A_bar).to_json())
    network = SPACE.network(genotype, LanguageSize(V, H), searched=norm)
    network.load_state_dict(net.module.state_dict())
    close(
        speak(network, *batch, batch.carry.before).cross_entropy, net.loss(batch)[1].cross_entropy
    )
    values = {edge.value for node in genotype.cells[NAME].nodes for edge in node}
    assert (values == {1.0}) == (value == "one")


def test_only_selected_activations_run_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    net, A_bar = supernet(), discrete("one")
    net.use(A_bar)
    calls = dict.fromkeys(ACTIVATIONS, 0)

    def counted(name: str, f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            calls[name] += 1
            return f(x)

        return run

    for name, f in list(ACTIVATIONS.items()):
        monkeypatch.setitem(ACTIVATIONS, name, counted(name, f))
    net.loss(window())
    chosen = dict(zip(GROUP.candidates, A_bar[NAME].sum(0).tolist(), strict=True))
    chosen["tanh"] += 1  # the first state
    assert calls == {name: T * number for name, number in chosen.items()}


@pytest.mark.usefixtures("double")
def test_scoring_on_a_part() -> None:
    net, batch, A_bar = supernet(norm=False, slowness=0.0), window(), discrete("one")
    net.use(A_bar)
    whole = net.architecture_gradient(batch)[0][NAME]
    drawn = net.architecture_gradient(
        batch, (), Share(nodes=0.5, generator=torch.Generator().manual_seed(0))
    )[0][NAME]
    kinds = {bool((drawn[list(rows)] == 0).all()) for rows in GROUP.nodes}
    assert kinds == {True, False}
    for rows in GROUP.nodes:
        part = drawn[list(rows)]
        close(part, torch.zeros_like(part) if (part == 0).all() else 2 * whole[list(rows)])
    first = net.architecture_gradient(batch, (), Share(batch=0.6))[0][NAME]  # 3 of 5 sequences
    x, y = (t[:, :3] for t in batch)
    sub = Window.of(Batch(x, y), Carry())
    sub.carry.before = (batch.carry.before[0][:3],)  # type: ignore[index]
    net.objective = NextWord(T, 0.0, 0.0)
    whole, first = (
        net.architecture_gradient(b, (), s)[0][NAME]
        for b, s in ((sub, Share()), (batch, Share(batch=0.6)))
    )
    close(
        first, whole
    )  # without batch norm sequences do not see each other, and 5/3 of a mean over 5 is one over 3


def test_memory_does_not_hold_the_logits_or_the_other_candidates() -> None:
    """The tape of a pass has the states, gates and nothing of unselected rows."""
    net = supernet()
    net.use(discrete("one"))
    with net.taped() as tape:
        net.loss(window())
    (call,) = tape
    assert call.trace.states.shape == (NODES + 1, T, B, H)  # type: ignore[union-attr]
    assert call.output.untyped_storage().nbytes() <= 8  # the probe is one number


# ------------------------------------------------------------------ streams


def test_the_hidden_state_goes_from_window_to_window_and_is_forgotten_at_the_start() -> None:
    stream = CarriedStream(
        TextStream(np.arange(44) % V, 4, 3, seed=0, name="w", random_lengths=False)
    )
    net = supernet()
    net.use(discrete("one"))
    states: list[Any] = []
    for _ in range(len(stream) + 2):
        batch = stream.next()
        states.append(batch.carry.before)
        first = net.loss(batch)[1].hidden
        again = net.loss(batch)[
            1
        ].hidden  # a second pass starts where the first did, with the same masks
        torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert [s is None for s in states] == [True, False, False, False, True, False]
    assert not torch.equal(states[1][0], states[2][0])


def test_steps_are_as_large_as_windows_are_long(make_search: MakeSearch) -> None:
    search = make_search("--space", "rnn", "--bptt", "10", "--weight-decay", "0", "--clip", "1e9")
    used = []
    plain = search.method.w_optimizer.step  # type: ignore[attr-defined]
    search.method.w_optimizer.step = lambda loss, share, n: (
        used.append(share),
        plain(loss, share, n),
    )  # type: ignore[attr-defined]
    lengths = []
    next_batch = search.train.next
    search.train.next = lambda: lengths.append(batch := next_batch()) or batch  # type: ignore[method-assign]
    for _ in range(6):
        search.method.step()
        assert search.method.w_optimizer.sgd.param_groups[0]["lr"] == pytest.approx(20 * used[-1])  # type: ignore[attr-defined]
    assert used == [len(batch.x) / 10 for batch in lengths] and len(set(used)) > 1


@pytest.mark.usefixtures("double")
def test_the_second_order_gradient_is_clipped_as_in_darts(make_search: MakeSearch) -> None:
    """By hand: both gradients clipped, the coefficient of the first before the bracket."""
    search = make_search(
        "--space", "rnn", "--norm", "batch", "--method", "darts-2nd", "--weight-decay", "0.1"
    )
    method, clip = search.method, search.config.clip
    train, valid = search.train.next(), search.valid.next()
    weights = method.learner.w_optimizer.weights  # type: ignore[attr-defined]
    xi = 20 * len(train.x) / search.config.bptt
    ours = method.unrolled(method.first_order, train, valid)[NAME]  # type: ignore[attr-defined]
    method.use_mixture()  # type: ignore[attr-defined]
    g = torch.autograd.grad(search.net.loss(train)[0], weights)
    coefficient = min(1.0, clip / float(torch.cat([x.flatten() for x in g]).norm()))
    assert coefficient < 1
    kept = [w.detach().clone() for w in weights]

    def at(point: list[Tensor], batch: Batch) -> tuple[Tensor, Any]:
        with torch.no_grad():
            for w, x in zip(weights, point, strict=True):
                w.copy_(x)
        dA, dw = method.first_order(batch, weights)  # type: ignore[attr-defined]
        return dA[NAME], dw

    first, v = at(
        [w - xi * (coefficient * d + 0.1 * w) for w, d in zip(kept, g, strict=True)], valid
    )
    length = float(torch.cat([x.flatten() for x in v]).norm())
    v = [x * min(1.0, clip / length) for x in v]
    R = 0.01 / min(length, clip)
    plus, minus = (
        at([w + sign * R * x for w, x in zip(kept, v, strict=True)], train)[0] for sign in (1, -1)
    )
    torch.testing.assert_close(
        ours, first - xi * coefficient * (plus - minus) / (2 * R), rtol=1e-5, atol=1e-6
    )


# ---------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    random = np.random.RandomState(0)
    for part, lines in (("train", 60), ("valid", 30), ("test", 10)):
        words = [
            " ".join("abcde"[(start + i) % 5] for i in range(8))
            for start in random.randint(0, 5, lines)
        ]
        (folder / f"{part}.txt").write_text("\n".join(words) + "\n")
    return folder


SMALL = [
    "--space",
    "rnn",
    "--units",
    "8",
    "--final-units",
    "10",
    "--batch-size",
    "4",
    "--bptt",
    "8",
    "--threads",
    "1",
    "--device",
    "cpu",
]


def test_a_search_writes_perplexities(corpus: Path, tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    assert main(["search", str(corpus), *SMALL, "--epochs", "2", "--run", str(run)]) == 0
    out = capsys.readouterr().out
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["train_perplexity"] == pytest.approx(math.exp(row["train_loss"]))
        assert row["valid_perplexity"] == pytest.approx(math.exp(row["valid_loss"]))
        assert "valid_accuracy" not in row and len(row["A"][NAME]) == 36
    result = json.loads((run / "result.json").read_text())
    assert result["valid_perplexity"] == rows[-1]["valid_perplexity"]
    assert (
        re.search(rf"validation perplexity +{result['valid_perplexity']:.2f}", out)
        and "valid perplexity" in out
    )
    genotype = Genotype.from_json((run / "genotype.json").read_text())
    assert genotype.kind == "rnn" and genotype.space == "rnn"
    words = 7  # a to e, <eos>, <unk>
    assert result["params"] == 20 * 10 * 10 + 10 * words + words
    assert result["flops"] == 20 * 10 * 10 + 10 * words
    assert json.loads((run / "config.json").read_text())["learning_rate"] == 20.0


def test_defaults_by_protocol(corpus: Path) -> None:
    config = parse_search([str(corpus), "--space", "rnn"])
    assert (config.protocol, config.units, config.final_units, config.bptt) == ("ptb", 300, 850, 35)
    assert (config.epochs, config.batch_size, config.learning_rate, config.learning_rate_min) == (
        50,
        256,
        20.0,
        20.0,
    )
    assert (config.momentum, config.weight_decay, config.clip) == (0.0, 5e-7, 0.25)
    assert (config.arch_learning_rate, config.arch_beta1, config.arch_beta2) == (3e-3, 0.9, 0.999)
    drops = (
        config.drop_output,
        config.drop_hidden,
        config.drop_input,
        config.drop_embedding,
        config.drop_words,
    )
    assert drops == (0.75, 0.25, 0.75, 0.2, 0.0) and (config.activation, config.slowness) == (
        0.0,
        1e-3,
    )
    quick = parse_search(["pydocs", "--space", "rnn"])
    assert quick.protocol == "quick" and quick.units < 300 and quick.learning_rate == 20.0
    assert (config.norm, quick.norm) == ("batch", "none")
    assert parse_search(["pydocs", "--space", "rnn", "--method", "darts-2nd"]).arch_decay == 1e-3
    assert parse_search(["--method", "gdas"]).learning_rate == 0.025


def test_several_seeds_and_the_best_by_perplexity(corpus: Path, tmp_path: Path) -> None:
    argv = ["search", str(corpus), *SMALL, "--epochs", "1", "--seeds", "0,1", "--pick", "--quiet"]
    assert main([*argv, "--run", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["valid_perplexity"] == min(result["valid_perplexities"])
    assert result["mean"] == pytest.approx(sum(result["valid_perplexities"]) / 2)


def test_dry_run(corpus: Path, capsys: Any) -> None:
    argv = ["search", str(corpus), *SMALL, "--dry-run"]
    assert main([*argv, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["params_smallest"] == figures["params_largest"] == 20 * 100 + 77
    assert figures["words"] == 7 and figures["seconds_per_epoch"] > 0 and figures["peak_bytes"] >= 0
    assert main(argv) == 0
    assert "8 units" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("digits --space rnn", "digits: is images, and --space rnn is for text"),
        (
            "pydocs --space darts7",
            "pydocs: is text, and --space darts7 is for images: give --space rnn",
        ),
        ("pydocs", "pydocs: is text, and --space darts7 is for images: give --space rnn"),
        ("nothing --space rnn", "unknown text 'nothing'"),
        ("pydocs --space rnn --cells 3", "--cells 3: is not for --space rnn"),
        (
            "pydocs --space rnn --method bayesnas",
            "--method bayesnas: cannot search recurrent cells",
        ),
        ("pydocs --space rnn --cutout 3", "--cutout 3: is not for --space rnn"),
        ("pydocs --space rnn --precision bf16", "--precision bf16: is not for --space rnn"),
        ("pydocs --space rnn --protocol cifar", "--protocol cifar: does not go with --space rnn"),
        ("digits --protocol ptb", "--protocol ptb: does not go with --space darts7"),
        ("digits --units 30", "--units 30: is for --space rnn"),
        ("pydocs --space rnn --drop-output 1", "--drop-output 1.0: give a number from 0 to 0.99"),
        ("pydocs --space rnn --bptt 0", "--bptt 0: give a number from 1"),
        ("pydocs --space rnn --bptt 5000", "--bptt 5000: "),
        ("pydocs --space rnn --batch-size 50000", "--batch-size 50000: "),
        ("pydocs --space rnn --max-words 1", "--max-words 1: give at least 3"),
    ],
)
def test_bad_input_is_one_line(
    argv: str, said: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["search", *argv.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"proxnas: error: {said}") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_of_text_with_a_space_of_images(corpus: Path, capsys: Any) -> None:
    assert main(["search", str(corpus), "--space", "darts7"]) == 2
    assert "is text, and --space darts7 is for images" in capsys.readouterr().err


def test_characters(make_search: MakeSearch, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 30)
    flags = [str(tmp_path / "a.txt"), *SMALL, "--tokens", "char", "--epochs", "1", "--quiet"]
    assert main(["search", *flags, "--run", str(tmp_path / "run")]) == 0


def test_the_search_learns_and_moves(corpus: Path, tmp_path: Path) -> None:
    """A text that repeats itself is learnt, and NASP does change its mind on the way."""
    run, rate = tmp_path / "run", ["--learning-rate", "5", "--learning-rate-min", "5"]
    easy = ["--epochs", "8", "--norm", "none", "--quiet", *rate]
    easy += [
        word
        for part in ("output", "input", "hidden", "embedding")
        for word in (f"--drop-{part}", "0")
    ]
    assert main(["search", str(corpus), *SMALL, *easy, "--run", str(run)]) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["valid_perplexity"] < 2.5 and sum(row["changes"] for row in rows) > 0


# ------------------------------------------------------------------- resume


def outcome(folder: Path) -> tuple[Any, ...]:
    """Everything that must be equal to the bit."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    clockless = [
        {key: value for key, value in row.items() if key not in ("seconds", "memory")}
        for row in rows
    ]
    return (
        (folder / "genotype.json").read_bytes(),
        clockless,
        {k: v for k, v in result.items() if k != "seconds"},
    )


@pytest.mark.parametrize("method", ["nasp", "darts-1st"])
def test_a_search_stopped_within_a_text_ends_the_same(
    method: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden states, dropout masks and window lengths go on where they were."""
    argv = ["search", str(corpus), *SMALL, "--epochs", "2", "--method", method, "--quiet", "--run"]
    assert main([*argv, str(tmp_path / "alone")]) == 0
    count = iter(range(1000))
    with monkeypatch.context() as patch:
        patch.setattr(
            Silent,
            "step",
            lambda *_: signal.raise_signal(signal.SIGTERM) if next(count) == 7 else None,
        )
        assert main([*argv, str(tmp_path / "stopped")]) == 143
    state = torch.load(tmp_path / "stopped" / "checkpoint.pt", weights_only=True)["state"]
    assert state["train"]["hidden"][0].shape == state["valid"]["hidden"][0].shape == (4, 8)
    assert main([*argv, str(tmp_path / "stopped"), "--resume"]) == 0
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "alone")


def test_a_run_keeps_its_words_and_refuses_others(
    corpus: Path, tmp_path: Path, capsys: Any
) -> None:
    text = tmp_path / "text"
    shutil.copytree(corpus, text)
    argv = ["search", str(text), *SMALL, "--epochs", "1", "--quiet", "--run", str(tmp_path / "run")]
    assert main(argv) == 0
    assert set(json.loads((tmp_path / "run" / "vocabulary.json").read_text())) == {
        *"abcde",
        "<eos>",
        "<unk>",
    }
    (tmp_path / "run" / "result.json").unlink()
    (text / "train.txt").write_text((text / "train.txt").read_text().replace("a", "z"))
    assert main([*argv, "--resume"]) == 2
    assert f"{tmp_path / 'run' / 'config.json'}: " in capsys.readouterr().err  # other data
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["fingerprint"]  # as runs of before have none
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert main([*argv, "--resume"]) == 2
    assert "the text has other words" in capsys.readouterr().err
