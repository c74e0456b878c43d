"""Words (or characters) and their numbers: from text to an array and back."""

# N tokens of a text, V words of the vocabulary; arrays of tokens are (N,), int64

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from proxnas.common.errors import AboutOptions, InputError, escape

Array = NDArray[Any]
Kind = Literal["word", "char"]
UNKNOWN, END = "<unk>", "<eos>"
LONGEST_WORD = 10_000
LONGEST_LINE = 20_000_000


def split_tokens(text: str, kind: Kind, where: str) -> Iterator[str]:
    """The tokens of a text: characters, or what white space separates with <eos> at the end of each
    line."""
    return iter(text) if kind == "char" else _words(text, where)


def _words(text: str, where: str) -> Iterator[str]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        if len(line) > LONGEST_LINE:
            raise InputError(
                f"{where}: line {number} has over {LONGEST_LINE:,} characters: break it into lines"
            )
        words = line.split()
        if len(line) > LONGEST_WORD and max(map(len, words), default=0) > LONGEST_WORD:
            raise AboutOptions(
                f"{escape(where)}: line {number} has a word of over {LONGEST_WORD:,} characters, so"
                " this is no text in words: give {tokens} char"
            )
        yield from words
        yield END


def build_vocabulary(
    tokens: Iterable[str], max_words: int = 0, min_count: int = 0
) -> tuple[str, ...]:
    """The words of the training text, the most frequent first; <unk> is among them, at the end if
    it never occurs.

    A text without <unk> gives a model nothing to learn it from, so (min_count 0) words that occur
    once stand for the unknown ones then; a text that has it, like PTB, keeps all its words.
    """
    counts = Counter(tokens)
    least = min_count or (1 if UNKNOWN in counts else 2)
    words = [word for word, count in counts.most_common() if count >= least or word == UNKNOWN]
    if max_words:
        # <unk> is one of them, however rare
        kept = {UNKNOWN, *[word for word in words if word != UNKNOWN][: max_words - 1]}
        words = [word for word in words if word in kept]
    return tuple(words) if UNKNOWN in counts else (*words, UNKNOWN)


def encode(tokens: Iterable[str], vocabulary: Sequence[str]) -> Array:
    """The numbers of the tokens; a word that is not in the vocabulary gets the number of <unk>."""
    index = {word: number for number, word in enumerate(vocabulary)}
    unknown = index[UNKNOWN]
    return np.fromiter((index.get(token, unknown) for token in tokens), dtype=np.int64)


def join(words: Iterable[str], kind: Kind) -> str:
    """Text from tokens, <eos> as the end of a line."""
    if kind == "char":
        return "".join(words)
    lines = " ".join("\n" if word == END else word for word in words)
    return lines.replace(" \n ", "\n").replace(" \n", "\n").replace("\n ", "\n")


def check_vocabulary(vocabulary: object, where: str) -> tuple[str, ...]:
    """A vocabulary read from a file: distinct strings, <unk> among them."""
    if not isinstance(vocabulary, list) or not all(isinstance(word, str) for word in vocabulary):
        raise InputError(f"{where}: the vocabulary is not a list of words: train again")
    if len(set(vocabulary)) != len(vocabulary) or UNKNOWN not in vocabulary:
        raise InputError(f"{where}: the vocabulary has a word twice, or no {UNKNOWN}: train again")
    return tuple(vocabulary)
