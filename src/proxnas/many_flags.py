"""The flags of commands that make several runs. No torch here: `--help` must be quick."""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxnas.errors import InputError


@dataclass(frozen=True)
class ManyFlags:
    """How many runs at once, and how long each."""

    minutes: float = 0.0
    """In place of --epochs: as many as take about so long, at most those of the protocol; 0: all of them."""
    workers: int = 1
    """Runs at the same time, each in a process of its own; they share the cores, or take --threads each."""


def whole_numbers(flag: str, text: str) -> list[int]:
    """The seeds of --seeds."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise InputError(f"{flag} {text!r}: give whole numbers with commas between, for example 0,1,2")
    numbers = [int(number) for number in text.split(",")]
    if len(set(numbers)) < len(numbers):
        raise InputError(f"{flag} {text}: name each seed once")
    return numbers


def check_many(minutes: float, workers: int) -> None:
    """An InputError for impossible values."""
    if not 0 <= minutes < 1e7:
        raise InputError(f"--minutes {minutes}: give a number of at least 0")
    if not 1 <= workers <= 1024:
        raise InputError(f"--workers {workers}: give a number from 1 to 1024")
