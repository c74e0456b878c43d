"""What a trained model answers."""

from __future__ import annotations

from typing import NamedTuple


class Answer(NamedTuple):
    """A class, or a word, and how probable the network holds it."""

    name: str
    probability: float


class Value(NamedTuple):
    """A number that a model answers, and what it is of."""

    name: str
    value: float
