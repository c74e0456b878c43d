"""Training of language models: what it does, that it can stop anywhere, and that `test` says what
training said."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.common.errors import InputError
from proxnas.domains.text import training
from proxnas.domains.text.data.text import Text, TextOptions
from proxnas.domains.text.domain import TEXT
from proxnas.domains.text.language import LanguageSize, Spoken, speak
from proxnas.domains.text.model import TextModel, language_network, load_text_model, save_text_model
from proxnas.domains.text.options import TEXT_PROTOCOLS, TextTrainOptions
from proxnas.domains.text.perplexity import perplexity, read_through, text_figures
from proxnas.domains.text.training import TextTraining
from proxnas.runs.divergence import Diverged
from proxnas.runs.folder import open_run
from proxnas.runs.job import Totals
from proxnas.runs.progress import Silent
from proxnas.training.job import train
from proxnas.training.optimizer import Average, mean

CELL = Genotype("rnn", {"recurrent": Cell(((Edge("relu", 0),), (Edge("tanh", 1),)), (1, 2))})


def rhyme(tokens: int, words: int = 6) -> Any:
    """A text in which each word follows from the one before, but for a few."""
    random = np.random.RandomState(0)
    text = np.arange(tokens) * 2 % words
    return np.where(
        random.random_sample(tokens) < 0.1, random.randint(0, words, tokens), text
    ).astype(np.int64)


@pytest.fixture(scope="module")
def text() -> Text:
    vocabulary = ("a", "b", "c", "d", "<eos>", "<unk>")
    numbers = rhyme(700)
    return Text("rhyme", "word", vocabulary, numbers[:500], numbers[500:600], numbers[600:])


def config(**changes: Any) -> TextTrainOptions:
    small = TEXT_PROTOCOLS["quick"] | {
        "units": 5,
        "epochs": 3,
        "batch_size": 4,
        "bptt": 12,
        "device": "cpu",
        "threads": 1,
        "data": "rhyme",
    }
    return TextTrainOptions(**(small | {"average_after": 1, "learning_rate": 5.0} | changes))


def job(text: Text, cell: Genotype | None = CELL, **changes: Any) -> TextTraining:
    return TextTraining(config(**changes), text, cell)


def epoch(this: TextTraining) -> dict[str, Any]:
    while this.totals.steps < len(this):
        this.totals.add(this.step())
    row = this.row(0.0).to_json()
    this.epochs_done += 1
    this.totals = Totals(this.device)
    return row


def weights(this: TextTraining) -> list[Tensor]:
    return [w.clone() for w in this.network.state_dict().values()]


def equal(a: Any, b: Any) -> bool:
    """Nested states are equal to the bit."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


# what a step does


@pytest.mark.parametrize("cell", [CELL, None], ids=["cell", "LSTM"])
def test_it_learns(text: Text, cell: Genotype | None) -> None:
    this = job(text, cell, epochs=16, units=12, drop_output=0.0, drop_input=0.0, average_after=0)
    rows = [epoch(this) for _ in range(16)]
    assert (
        rows[-1]["valid_perplexity"] < 2.5 < rows[0]["valid_perplexity"]
    )  # three words are frequent
    assert rows[-1]["valid_perplexity"] == pytest.approx(math.exp(rows[-1]["valid_loss"]))


def test_a_step_is_clipped_sgd_scaled_by_the_length_of_the_window(text: Text) -> None:
    this = job(
        text,
        drop_output=0.0,
        drop_hidden=0.0,
        drop_input=0.0,
        drop_embedding=0.0,
        weight_decay=0.01,
        clip=0.1,
    )
    for _ in range(3):  # the hidden state of the third window comes from the second
        before, hidden = weights(this), this.hidden
        start = sum(this.train._bounds[this.train.delivered : this.train.delivered + 1])
        this.step()
    stop = this.train._bounds[this.train.delivered]
    columns, parameters = this.train.columns, list(this.network.parameters())
    after = weights(this)
    for w, old in zip(this.network.state_dict().values(), before, strict=True):
        w.copy_(old)
    spoken = speak(
        this.network, columns[start:stop], columns[start + 1 : stop + 1], hidden, slowness=1e-3
    )
    gradients = torch.autograd.grad(spoken.loss, parameters)
    norm = torch.stack([g.norm() for g in gradients]).norm()
    rate = 5.0 * (stop - start) / 12
    assert norm > 0.1 and stop - start != 12
    for old, g, new in zip(before, gradients, after, strict=True):
        torch.testing.assert_close(new, old - rate * (g * 0.1 / norm + 0.01 * old))


def test_the_hidden_state_is_carried_over_and_forgotten_where_a_pass_starts(
    text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    returned: list[Any] = []

    def listening(network: Any, x: Tensor, y: Tensor, hidden: Any, *rest: Any) -> Spoken:
        given.append(hidden)
        spoken = speak(network, x, y, hidden, *rest)
        returned.append(spoken.hidden)
        return spoken

    this = job(text)
    monkeypatch.setattr(training, "speak", listening)
    windows = len(this)
    epoch(this)
    this.step()
    assert not given[0][0].any() and not given[windows][0].any()
    assert all(equal(given[i], returned[i - 1]) and given[i][0].any() for i in range(1, windows))


def test_the_mean_of_weights_is_the_mean() -> None:
    network = torch.nn.Linear(2, 1)
    average, seen = Average(network, mean), []
    for _ in range(5):
        torch.nn.init.normal_(network.weight)
        seen.append(network.weight.detach().clone())
        average.update(network)
    torch.testing.assert_close(average.network.weight.detach(), torch.stack(seen).mean(0))


# when averaging begins, what is kept, when it stops


def losses(this: TextTraining, values: list[float], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Epochs with these validation losses; for each whether the mean of the weights was
    evaluated."""
    found = iter(values)
    evaluated: list[bool] = []

    def reading(network: Any, *_: Any) -> Any:
        evaluated.append(network is not this.network)
        return type("R", (), {"loss": (loss := next(found)), "perplexity": perplexity(loss)})

    monkeypatch.setattr(training, "read_through", reading)
    for _ in values:
        epoch(this)
    return evaluated


@pytest.mark.parametrize(
    ("after", "values", "averaged_from"),
    [
        (2, [5, 4, 3, 4, 4.5], 5),  # 4.5 > min(5, 4), for the last two do not count
        (2, [5, 4, 3, 3.5, 3.4], 0),
        (5, [3, 4, 4, 4, 4, 4, 4, 2], 7),
        (5, [3, 4, 4, 4, 4, 4], 0),
        (0, [1, 2, 3, 4, 5, 6, 7], 0),
    ],
)
def test_averaging_begins_when_validation_stops_improving(
    text: Text, after: int, values: list[float], averaged_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = job(text, average_after=after, epochs=100)
    evaluated = losses(this, values, monkeypatch)
    assert this.averaged_from == averaged_from
    assert evaluated == [
        bool(averaged_from) and epoch > averaged_from for epoch in range(1, len(values) + 1)
    ]


def test_the_best_weights_are_kept_and_patience_ends_it(
    text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = job(text, average_after=0, epochs=100, patience=2)
    losses(this, [5.0, 3.0], monkeypatch)
    best = weights(this)
    losses(this, [4.0], monkeypatch)
    assert not this.done()
    losses(this, [3.5], monkeypatch)
    assert this.done() and this.best["epoch"] == 2
    assert equal(list(this.best_network().state_dict().values()), best)


# divergence


def test_a_loss_that_is_not_finite_moves_nothing_and_is_told_at_once(text: Text) -> None:
    this = job(text, epochs=4)
    epoch(this)
    with torch.no_grad():
        this.network.embedding.view(-1)[0] = torch.nan
    before = {name: w.clone() for name, w in this.network.state_dict().items()}
    this.step()
    after = this.network.state_dict()
    assert all(
        torch.equal(w.nan_to_num(7), after[name].nan_to_num(7)) for name, w in before.items()
    )
    with pytest.raises(Diverged, match="the loss or its gradient is not finite"):
        this.guard.check()


def test_the_learning_rate_falls_with_every_return(text: Text) -> None:
    this = job(text)
    this.guard.go_back(2)
    assert this.rate == this.config.learning_rate / 4
    assert epoch(this)["learning_rate"] == this.rate


# stopping and going on; the clock aside, all is equal to the bit


@pytest.mark.parametrize("cell", [CELL, None], ids=["cell", "LSTM"])
def test_a_training_goes_on_from_its_state_after_any_step(
    text: Text, cell: Genotype | None
) -> None:
    options = {"epochs": 3, "average_after": 1, "bptt": 30}
    alone, resumed = job(text, cell, **options), job(text, cell, **options)
    for this in (alone, resumed):
        this.history = [0.0, 0.0]  # so good once that averaging begins after the first epoch
    while not alone.done():
        while alone.totals.steps < len(alone):
            alone.totals.add(alone.step())
            resumed.totals.add(resumed.step())
            state = resumed.state_dict()
            resumed = job(text, cell, **options)
            resumed.load_state_dict(state)
        rows = [this.row(0.0).to_json() for this in (alone, resumed)]
        for this, row in zip((alone, resumed), rows, strict=True):
            row.pop("seconds")
            this.epochs_done += 1
            this.totals = Totals(this.device)
        assert rows[0] == rows[1]
    assert equal(alone.state_dict(), resumed.state_dict())
    assert alone.average is not None and alone.average.t > 0


# the whole: files, model, test


class Listener(Silent):
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def epoch(self, row: dict[str, Any]) -> None:
        self.rows.append(row)


def trained(
    text: Text, folder: Path, cell: Genotype | None = CELL, **changes: Any
) -> dict[str, Any]:
    with open_run(folder, resume=True) as run:
        run.write_json("config.json", {"proxnas": "", "command": "train"})
        return train(job(text, cell, **changes), run, Listener())[0].to_json()


@pytest.mark.parametrize("cell", [CELL, None], ids=["cell", "LSTM"])
def test_a_run_folder_holds_a_model_that_tests_as_training_said(
    text: Text, tmp_path: Path, cell: Genotype | None
) -> None:
    result = trained(text, tmp_path, cell)
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert json.loads((tmp_path / "vocabulary.json").read_text()) == list(text.vocabulary)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert (
        len(rows) == 3
        and min(row["valid_perplexity"] for row in rows) == result["valid_perplexity"]
    )
    model = load_text_model(tmp_path)
    assert model.genotype == cell and model.vocabulary == text.vocabulary
    assert (
        text_figures(model, text, "test")["perplexity"] == result["test_perplexity"]
    )  # to the bit
    assert text_figures(model, text, "valid")["perplexity"] == result["valid_perplexity"]
    assert result["params"] == sum(w.numel() for w in model.network.parameters())


def test_what_is_odd_about_a_text_stands_in_the_result(text: Text, tmp_path: Path) -> None:
    odd = dataclasses.replace(text, warnings=("no part test: cut", "short"))
    assert trained(odd, tmp_path / "odd", epochs=1)["warning"] == "no part test: cut; short"
    assert "warning" not in trained(text, tmp_path / "plain", epochs=1)


def test_the_text_may_not_change_between_start_and_resumption(text: Text, tmp_path: Path) -> None:
    trained(text, tmp_path, epochs=1)
    other = Text("rhyme", "word", ("z", *text.vocabulary[1:]), text.train, text.valid, text.test)
    with pytest.raises(InputError, match=r"vocabulary\.json: the text has other words"):
        trained(other, tmp_path, epochs=1)


def test_perplexity_is_that_of_a_plain_loop(text: Text) -> None:
    this = job(text)
    epoch(this)
    network, tokens = this.network, torch.from_numpy(text.valid)
    logits, *_ = network(tokens[:-1, None])
    plain = torch.nn.functional.cross_entropy(logits[:, 0], tokens[1:])
    for bptt in (7, 99, 1000):
        found = read_through(network, text.valid, 1, bptt)
        assert found.tokens == 99 and found.loss == pytest.approx(plain.item(), rel=1e-5)
        assert found.accuracy == pytest.approx(
            (logits[:, 0].argmax(-1) == tokens[1:]).float().mean().item()
        )


def test_perplexity_of_a_huge_loss_is_a_number() -> None:
    assert perplexity(1e6) == perplexity(700) < math.inf


# cells and configurations


def test_cells_by_name() -> None:
    assert TEXT.read_cell("zoo:LSTM") is TEXT.read_cell("zoo:lstm") is None
    found = TEXT.read_cell("zoo:RNN_DARTS_V2")
    assert found is not None and found.kind == "rnn"
    with pytest.raises(InputError, match="kind cnn makes no language model"):
        job(
            Text("t", "word", ("a", "<unk>"), *[np.zeros(99, np.int64)] * 3),
            TEXT.read_cell("zoo:DARTS_V2"),
        )


@pytest.mark.parametrize(
    ("protocol", "words", "params"), [("ptb", 10_000, 22_960_000), ("wt2", 33_278, 33_127_878)]
)
def test_published_sizes(protocol: str, words: int, params: int) -> None:
    with torch.device("meta"):
        size = LanguageSize(words, TEXT_PROTOCOLS[protocol]["units"])
        cell, lstm = (
            language_network(TEXT.read_cell(f"zoo:{name}"), size)
            for name in ("RNN_DARTS_V2", "LSTM")
        )
    count = sum(w.numel() for w in cell.parameters())
    assert count == params
    assert sum(w.numel() for w in lstm.parameters()) == pytest.approx(count, rel=0.002)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"units": 0}, "units 0"),
        ({"drop_words": 1.0}, "drop_words 1"),
        ({"learning_rate": math.nan}, "learning_rate nan"),
        ({"bptt": 0}, "bptt 0"),
        ({"resume": True, "force": True}, "force"),
    ],
)
def test_bad_configurations(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        config(**changes)


@pytest.mark.parametrize("protocol", TEXT_PROTOCOLS)
def test_protocols_are_sound(protocol: str) -> None:
    made = TextTrainOptions(**TEXT_PROTOCOLS[protocol])
    assert made.units == {"quick": 128, "ptb": 850, "wt2": 700}[protocol]


# generating


@pytest.fixture(scope="module")
def model(text: Text) -> TextModel:
    this = job(text, epochs=12, units=12, drop_output=0.0, drop_input=0.0)
    for _ in range(12):
        epoch(this)
    return TextModel(this.best_network(), CELL, this.size, text.vocabulary, TextOptions(), {})


def test_generated_text_follows_the_rhyme(model: TextModel) -> None:
    assert (
        model.generate("a", 6, temperature=0) == "a c\na c\na"
    )  # 0 2 4 0 2 4 ...: <eos> ends the line


def test_generating_repeats_by_seed_and_varies_with_it(model: TextModel) -> None:
    texts = {model.generate("a c", 30, temperature=3.0, seed=seed) for seed in (0, 0, 1)}
    assert len(texts) == 2 and all(text.startswith("a c") and "<unk>" not in text for text in texts)


def test_tiny_temperatures_are_the_likeliest(model: TextModel) -> None:
    assert model.generate("b", 9, temperature=1e-300) == model.generate("b", 9, temperature=0)


def test_prompts(model: TextModel) -> None:
    assert model.numbers("") == [4] and model.numbers("a zebra c") == [0, 5, 2]
    assert model.unknown("a zebra c zebra") == ["zebra"]


def changed(model: TextModel, **changes: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        save_text_model(path, model)
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata()
        save_file(tensors, path, {k: v for k, v in (metadata | changes).items() if v})

    return write


DAMAGE = {
    "vocabulary": ["", "nonsense", '["a", "b"]', '["a", "<unk>"]'],
    "genotype": ["", "{}", '"GRU"'],
    "size": [
        "",
        "[]",
        '{"words": 6, "units": 0}',
        '{"words": 6, "units": 1e9}',
        '{"words": 6, "units": 60000}',
    ],
    "options": [
        "",
        '{"tokens": "word"}',
        '{"tokens": 3, "max_words": 0, "min_count": 0, "train_tokens": 0}',
    ],
    "info": ["", "[]"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in DAMAGE.items() for value in values]
)
def test_damaged_model_files_are_one_line(
    model: TextModel, tmp_path: Path, name: str, value: str
) -> None:
    changed(model, **{name: value})(tmp_path / "model.safetensors")
    with pytest.raises(InputError) as caught:
        load_text_model(tmp_path)
    assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)


def test_a_model_survives_its_file(model: TextModel, tmp_path: Path) -> None:
    changed(model)(tmp_path / "model.safetensors")
    again = load_text_model(tmp_path)
    assert equal(dict(again.network.state_dict()), dict(model.network.state_dict()))
    assert (again.genotype, again.vocabulary, again.options) == (
        CELL,
        model.vocabulary,
        model.options,
    )
