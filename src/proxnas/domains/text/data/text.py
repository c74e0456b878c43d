"""Text as numbers: three parts and the vocabulary of the first, checked before anything is built on
them."""

# N tokens of a part, V words of the vocabulary; train, valid and test are (N,), int64

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from numpy.typing import NDArray

from proxnas.common.errors import AboutOptions, InputError, escape
from proxnas.domains.text.data import vocabulary as words
from proxnas.domains.text.data.corpus import ACCEPTED, PARTS, Corpus, is_text, read_corpus
from proxnas.domains.text.data.options import LEAST_TOKENS, TextOptions
from proxnas.runs.fingerprint import Fingerprint, of_texts

Array = NDArray[Any]

__all__ = ["ACCEPTED", "Text", "TextOptions", "is_text", "load", "to_numbers"]


@dataclass(frozen=True, eq=False)
class Text:
    """A text in memory."""

    name: str
    """A short word, safe as part of a folder's name."""
    tokens: Literal["word", "char"]
    vocabulary: tuple[str, ...]
    train: Array
    valid: Array
    test: Array
    warnings: tuple[str, ...] = ()
    """What is odd about the text, a line each: it was said when it was read, and belongs into
    results."""
    fingerprint: Fingerprint = field(default_factory=dict)
    """Whether it is still the same text."""

    @property
    def num_words(self) -> int:
        return len(self.vocabulary)


def load(
    spec: str, options: TextOptions | None = None, vocabulary: Sequence[str] | None = None
) -> Text:
    """The text that DATA names, numbered by its own vocabulary, or by that of a model."""
    return to_numbers(read_corpus(spec), options or TextOptions(), vocabulary)


def to_numbers(
    corpus: Corpus, options: TextOptions, vocabulary: Sequence[str] | None = None
) -> Text:
    """Cut into tokens, count the words of the training part, and number them."""

    # an iterator twice over train: a list of its words takes many times its memory
    def tokens(part: str) -> Iterator[str]:
        found = words.split_tokens(getattr(corpus, part), options.tokens, f"{corpus.where}, {part}")
        limit = options.train_tokens if part == "train" else 0
        return islice(found, limit or None)

    if not vocabulary:
        vocabulary = words.build_vocabulary(tokens("train"), options.max_words, options.min_count)
    used = tuple(vocabulary)
    if len(set(used) - {words.UNKNOWN, words.END}) < 2:
        raise AboutOptions(
            f"{escape(corpus.where)}: the training part has fewer than two words that occur more"
            " than once: give a longer text, or {min_count} 1"
        )
    parts = {part: words.encode(tokens(part), used) for part in PARTS}
    _check_long_enough(parts, corpus.where)
    fingerprint = of_texts({part: getattr(corpus, part) for part in PARTS})
    return Text(
        corpus.name,
        options.tokens,
        used,
        **parts,
        warnings=corpus.warnings,
        fingerprint=fingerprint,
    )


def _check_long_enough(parts: Mapping[str, Array], where: str) -> None:
    """An InputError for a part of which nothing can be predicted."""
    for part, numbers in parts.items():
        if len(numbers) < LEAST_TOKENS:
            raise InputError(f"{where}: {len(numbers)} tokens in part {part}: give a longer text")
