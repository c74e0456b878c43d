"""A trained language model as a file that needs no proxnas: one step, its states as inputs and
outputs.

The file reads the number of a word for each of N texts and the states that the step before put out
(zeros at the start of a text), and gives the logits of the next word and the new states. Before a
file is put in its place it is read back and run through a text: its answers must be those of the
network.
"""

# N texts, T steps, V words; states are (N, units)

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proxnas import __version__
from proxnas.common.onnx_runtime import onnx_session, quiet
from proxnas.domains.exporting import TOLERANCE, check_places
from proxnas.domains.text.language import Hidden, LanguageModel
from proxnas.domains.text.model import TextModel
from proxnas.domains.text.network import LSTM
from proxnas.runs.folder import write_atomically

WORDS, LOGITS = "words", "logits"
STEPS, TEXTS = 12, 3
"""An export is checked on so many texts of so many words."""

Run = Callable[..., tuple[Tensor, ...]]


class PlainLSTM(nn.Module):
    """One step of the LSTM in plain products: not every exporter gets nn.LSTM right."""

    def __init__(self, core: LSTM) -> None:
        super().__init__()
        self.below, self.above = core.below, core.above
        self.widths = core.widths

    def forward(self, x: Tensor, hidden: Hidden, mask: None = None) -> tuple[Tensor, Hidden]:
        h, c = _lstm_step(self.below, x[0], *hidden[:2])
        h_above, c_above = _lstm_step(self.above, h, *hidden[2:])
        return h_above[None], (h, c, h_above, c_above)


def _lstm_step(layer: nn.LSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    # gates in torch's order: input, forget, cell, output
    w = dict(layer.named_parameters())
    z = x @ w["weight_ih_l0"].t() + w["bias_ih_l0"] + h @ w["weight_hh_l0"].t() + w["bias_hh_l0"]
    i, f, g, o = z.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


class Step(nn.Module):
    """words (N,), states -> logits (N, V), states."""

    def __init__(self, network: LanguageModel) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu().requires_grad_(False)
        if isinstance(self.network.core, LSTM):
            self.network.core = PlainLSTM(self.network.core)

    def forward(self, words: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        logits, *after = self.network(words[None], *states)
        return logits[0], *after


def export_text_model(
    model: TextModel, onnx: Path | None = None, program: Path | None = None
) -> dict[Path, float]:
    """Write the files asked for; file -> the largest difference of a logit from the network's."""
    check_places(onnx, program)
    step, original = Step(model.network).eval(), copy.deepcopy(model.network).cpu()
    metadata = _metadata(model)
    differences = {onnx: export_onnx(step, original, onnx, metadata)} if onnx else {}
    return differences | (
        {program: export_torch(step, original, program, metadata)} if program else {}
    )


def export_onnx(
    step: Step, original: LanguageModel, path: Path, metadata: Mapping[str, str]
) -> float:
    """Write an ONNX file; the largest difference that onnxruntime showed."""
    words, states = _example(original)
    befores, afters = state_names(original)
    with quiet():
        made = torch.onnx.export(
            step,
            (words, states),
            dynamo=True,
            verbose=False,
            dynamic_shapes=_any_number(states),
            input_names=[WORDS, *befores],
            output_names=[LOGITS, *afters],
        )
    assert made is not None  # only without dynamo
    made.model.metadata_props.update(metadata)
    file = made.model_proto.SerializeToString()
    difference = _check(_onnx_runner(file, original), original, str(path))
    write_atomically(path, file)
    return difference


def export_torch(
    step: Step, original: LanguageModel, path: Path, metadata: Mapping[str, str]
) -> float:
    """Write a torch.export program; the largest difference once it was reloaded."""
    words, states = _example(original)
    file = io.BytesIO()
    with quiet():
        made = torch.export.export(step, (words, states), dynamic_shapes=_any_number(states))
        torch.export.save(made, file, extra_files=dict(metadata))
        reloaded = torch.export.load(io.BytesIO(file.getvalue())).module()
    difference = _check(lambda words, *states: reloaded(words, states), original, str(path))
    write_atomically(path, file.getvalue())
    return difference


def state_names(network: LanguageModel) -> tuple[list[str], list[str]]:
    """The names of the states that go in and of those that come out."""
    number = len(network.initial(1))
    return [f"state_{i}" for i in range(number)], [f"next_state_{i}" for i in range(number)]


def _example(network: LanguageModel) -> tuple[Tensor, tuple[Tensor, ...]]:
    return torch.zeros(TEXTS, dtype=torch.long), network.initial(TEXTS)


def _any_number(states: tuple[Tensor, ...]) -> tuple[Any, ...]:
    batch = torch.export.Dim("batch")
    return {0: batch}, tuple({0: batch} for _ in states)


@torch.no_grad()
def _check(run: Run, network: LanguageModel, what: str) -> float:
    """The largest difference over a text, the states fed back; several texts at once and one
    alone."""
    largest = 0.0
    for texts in (TEXTS, 1):
        # words from all over the vocabulary: 7919 is prime
        x = torch.arange(STEPS * texts).reshape(STEPS, texts) * 7919 % network.size.words
        expected, *_ = network(x)
        states: tuple[Tensor, ...] = network.initial(texts)
        for words, logits in zip(x, expected, strict=True):
            got, *states_after = run(words, *states)
            states = tuple(states_after)
            difference = (got - logits).abs()
            # also if it is not a number
            if not bool((difference <= TOLERANCE * (1 + logits.abs())).all()):
                raise RuntimeError(
                    f"{what}: answers differ by {difference.max():g}; nothing was written"
                )
            largest = max(largest, float(difference.max()))
    return largest


def _onnx_runner(file: bytes, network: LanguageModel) -> Run:
    session = onnx_session(file)
    befores, afters = state_names(network)

    def run(words: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        feed = {WORDS: words.numpy()} | {
            name: s.numpy() for name, s in zip(befores, states, strict=True)
        }
        return tuple(torch.from_numpy(output) for output in session.run([LOGITS, *afters], feed))

    return run


def _metadata(model: TextModel) -> dict[str, str]:
    """What the files carry besides the network."""
    befores, _ = state_names(model.network)
    return {
        "proxnas": __version__,
        "vocabulary": json.dumps(model.vocabulary, ensure_ascii=False),
        "tokens": model.options.tokens,
        "input": (
            f"{WORDS}: int64 (N,), numbers of the vocabulary; {', '.join(befores)}: float32, zeros"
            " at the start"
        ),
        "genotype": model.genotype.to_json() if model.genotype else "LSTM",
    }
