"""A trained language model in a file: safetensors, with its cell, its size and its vocabulary as
JSON in the metadata.

As with image models nothing in the file is believed before it is checked. The vocabulary is part of
the file, so that the file alone is enough to test, generate and export.
"""

# T tokens of a window, B texts side by side, V words

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxnas import __version__
from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import RECURRENT
from proxnas.cells.zoo import LSTM
from proxnas.common.errors import AboutOptions, InputError, escape
from proxnas.domains.text.data import vocabulary as words
from proxnas.domains.text.data.corpus import read_corpus
from proxnas.domains.text.data.text import Text, TextOptions, to_numbers
from proxnas.domains.text.language import NOTHING, Dropouts, LanguageModel, LanguageSize
from proxnas.domains.text.network import lstm_network, recurrent_network
from proxnas.training.answers import Answer
from proxnas.training.model_file import metadata_entry, read_file, read_weights, write_weights

DOMAIN, SCHEMA = "text", 1
LIMITS = {"words": 10_000_000, "units": 65_536}
MOST_WEIGHTS = 20_000_000_000


@dataclass(frozen=True, eq=False)
class TextModel:
    """A trained language model and what belongs to it."""

    network: LanguageModel
    """In evaluation mode."""
    genotype: Genotype | None
    """None: the LSTM."""
    size: LanguageSize
    vocabulary: tuple[str, ...]
    options: TextOptions
    """How its text became tokens."""
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What is known of it: data, perplexity, params, flops, ...: JSON values."""

    @property
    def device(self) -> torch.device:
        return self.network.embedding.device

    def save(self, path: Path) -> None:
        """Write the model whole or not at all."""
        save_text_model(path, self)

    def whole(self, name: str, default: int) -> int:
        """A positive whole number of `info`, which a file may have filled with anything."""
        value = self.info.get(name)
        return value if type(value) is int and 0 < value < 2**31 else default

    def numbers(self, prompt: str) -> list[int]:
        """The tokens of a prompt; an empty one begins a line."""
        tokens = list(words.split_tokens(prompt, self.options.tokens, "the prompt"))
        if self.options.tokens == "word":
            tokens = tokens[:-1] or [words.END]  # the prompt's line goes on
        numbers: list[int] = words.encode(tokens or ["\n"], self.vocabulary).tolist()
        return numbers

    def unknown(self, prompt: str) -> list[str]:
        """The words of a prompt that the model does not know."""
        tokens = words.split_tokens(prompt, self.options.tokens, "the prompt")
        return [word for word in dict.fromkeys(tokens) if word not in {*self.vocabulary, words.END}]

    @torch.no_grad()
    def chances(self, prompt: str) -> Tensor:
        """(V,) on the host: how probable each word is behind a prompt."""
        feed = torch.tensor(self.numbers(prompt), device=self.device)[:, None]
        features = self.network.features(feed, self.network.initial(1))
        # the decoder shares the embedding's weights, (V, E)
        logits = self.network.embedding @ features.raw[-1, 0] + self.network.bias
        return logits.cpu().double().softmax(-1)

    def predict(self, prompts: Sequence[str], top: int = 1) -> list[list[Answer]]:
        """For each prompt the `top` most probable next words, best first."""
        rows = []
        for prompt in prompts:
            best = self.chances(prompt).topk(min(top, len(self.vocabulary)))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            rows.append([Answer(self.vocabulary[k], p) for k, p in pairs])
        return rows

    @torch.no_grad()
    def generate(
        self, prompt: str = "", count: int = 100, temperature: float = 1.0, seed: int = 0
    ) -> str:
        """The prompt and `count` more tokens, each drawn from what the model expects; <unk> is
        never drawn."""
        generator = torch.Generator().manual_seed(seed)
        said = self.numbers(prompt)
        hidden = self.network.initial(1)
        feed = torch.tensor(said, device=self.device)[:, None]
        spoken: list[int] = []
        for _ in range(count):
            features = self.network.features(feed, hidden)
            hidden = features.hidden
            # of the last position only
            logits = self.network.embedding @ features.raw[-1, 0] + self.network.bias
            spoken.append(self._draw(logits.cpu(), temperature, generator))
            feed = torch.tensor([[spoken[-1]]], device=self.device)
        written = words.join((self.vocabulary[number] for number in spoken), self.options.tokens)
        gap = ""
        if self.options.tokens == "word" and prompt.strip() and not prompt[-1:].isspace():
            gap = " "
        return prompt + gap + written

    def _draw(self, logits: Tensor, temperature: float, generator: torch.Generator) -> int:
        # it stands for words that are not known, and is none to write
        logits[self.vocabulary.index(words.UNKNOWN)] = -torch.inf
        if temperature == 0:
            return int(logits.argmax())
        # the likeliest first made 0: no overflow
        chances = ((logits - logits.max()).double() / temperature).softmax(-1)
        return int(torch.multinomial(chances, 1, generator=generator))


def language_network(
    cell: Genotype | None, size: LanguageSize, dropouts: Dropouts = NOTHING
) -> LanguageModel:
    """The language model of a recurrent genotype; None: the LSTM."""
    if cell is None:
        return lstm_network(size, dropouts)
    if cell.kind != RECURRENT:
        raise InputError(
            f"a cell of kind {cell.kind} makes no language model: give a recurrent one, or zoo:LSTM"
        )
    return recurrent_network(cell, size, dropouts)


def multiply_adds(network: LanguageModel) -> int:
    """Of one token: every matrix of the core and the decoder's takes part in one product."""
    return (
        sum(w.numel() for w in network.core.parameters() if w.ndim > 1) + network.embedding.numel()
    )


def text_for(model: TextModel, data: str, other_text: bool = False) -> Text:
    """DATA as tokens of the model; with another vocabulary only if that is what is wanted."""
    corpus = read_corpus(data)
    text = to_numbers(corpus, model.options)
    if text.vocabulary == model.vocabulary:
        return text
    if not other_text:
        new = len(set(text.vocabulary) - set(model.vocabulary))
        raise AboutOptions(
            f"{escape(data)}: its vocabulary ({text.num_words:,} {model.options.tokens}s, {new:,}"
            f" of them unknown to the model) is not the model's ({len(model.vocabulary):,}, from"
            f" {escape(model.info.get('data', 'another text'))}): test on the text that it was"
            " trained on, or give {other_text} to count unknown ones as <unk>"
        )
    return to_numbers(corpus, model.options, model.vocabulary)


def save_text_model(path: Path, model: TextModel) -> None:
    """Write the model whole or not at all."""
    metadata = {
        "proxnas": __version__,
        "schema": str(SCHEMA),
        "domain": json.dumps(DOMAIN),
        "genotype": model.genotype.to_json() if model.genotype else json.dumps(LSTM),
        "size": json.dumps(dataclasses.asdict(model.size)),
        "options": json.dumps(dataclasses.asdict(model.options)),
        "vocabulary": json.dumps(model.vocabulary, ensure_ascii=False),
        "info": json.dumps(dict(model.info)),
    }
    write_weights(path, model.network, metadata)


def load_text_model(place: str | os.PathLike[str], device: torch.device | str = "cpu") -> TextModel:
    """The language model in a file or run folder, ready to use; an InputError says what is wrong
    with it."""
    return read_file(place, lambda file, metadata: read_model(file, metadata, torch.device(device)))


def read_model(file: Any, metadata: Mapping[str, str], device: torch.device) -> TextModel:
    """The model of an open file and its metadata."""
    if "vocabulary" not in metadata or "genotype" not in metadata:
        raise InputError(
            "not a language model written by proxnas: give the model of a train run on text"
        )
    genotype = None
    if metadata_entry(metadata, "genotype") != LSTM:
        genotype = Genotype.from_json(metadata["genotype"])
    vocabulary = words.check_vocabulary(metadata_entry(metadata, "vocabulary"), "its metadata")
    size = _size(metadata_entry(metadata, "size"), vocabulary, genotype)
    info = metadata_entry(metadata, "info")
    if not isinstance(info, dict):
        raise InputError("info in its metadata is not an object: the file is damaged")
    with torch.device("meta"):
        network = language_network(genotype, size)
    network = read_weights(file, network).to(device).eval()
    return TextModel(
        network, genotype, size, vocabulary, _options(metadata_entry(metadata, "options")), info
    )


def _size(values: Any, vocabulary: Sequence[str], genotype: Genotype | None) -> LanguageSize:
    """Known fields, whole numbers no larger than can be meant, a word for each row of the
    embedding."""
    if not isinstance(values, dict) or values.keys() != LIMITS.keys():
        raise InputError(
            f"size in its metadata is not an object of {' and '.join(LIMITS)}: the file is damaged"
        )
    for name, limit in LIMITS.items():
        if type(values[name]) is not int or not 1 <= values[name] <= limit:
            raise InputError(
                f"size in its metadata has {name} {values[name]!r:.40}: the file is damaged"
            )
    if values["words"] != len(vocabulary):
        raise InputError(
            f"a vocabulary of {len(vocabulary)} words for a network of {values['words']}: damaged"
        )
    nodes = len(genotype.cells["recurrent"].nodes) if genotype and genotype.kind == RECURRENT else 8
    # a first node of 2H x 2H and H x 2H a node: 2 (n + 2) H^2 weights
    if 2 * (nodes + 2) * values["units"] ** 2 > MOST_WEIGHTS:
        raise InputError("a network of so many weights cannot be meant: the file is damaged")
    return LanguageSize(**values)


def _options(values: Any) -> TextOptions:
    known = {field.name: type(field.default) for field in dataclasses.fields(TextOptions)}
    if (
        not isinstance(values, dict)
        or {name: type(value) for name, value in values.items()} != known
    ):
        raise InputError(
            f"options in its metadata are not an object of {', '.join(known)}: the file is damaged"
        )
    return TextOptions(**values)
