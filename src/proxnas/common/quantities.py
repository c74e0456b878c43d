"""Sizes, times and lists of numbers as people write them: 500k, 20M, 2ms, 0,1,2. No torch here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proxnas.common.errors import OptionError

COUNTS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
NUMBER = r"(\d{1,15}(?:\.\d{0,9})?|\.\d{1,9})"


def count(name: str, text: str) -> int:
    """A whole number: 500000, 500k, 1.5M, 2G."""
    found = re.fullmatch(NUMBER + r"([kKMG]?)", text.strip())
    # 1.001M is 1000999.9999999999 in floats: a millionth more before the fraction is cut off
    value = int(float(found[1]) * COUNTS[found[2]] + 1e-6) if found else 0
    if value <= 0:
        raise OptionError(name, text, "give a number above 0, for example 500k or 20M")
    return value


def seconds(name: str, text: str) -> float:
    """Seconds: 2ms, 800us, 0.01s."""
    found = re.fullmatch(NUMBER + r"(s|ms|us|µs)", text.strip())
    value = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if value <= 0:
        advice = "give a time above 0 with its unit, for example 2ms, 800us or 0.01s"
        raise OptionError(name, text, advice)
    return value


def shown_budget(budget: Mapping[str, Any]) -> str:
    """The `budget` of result.json for people."""
    limit, smallest, largest = (
        shown(budget["of"], budget[name]) for name in ("limit", "smallest", "largest")
    )
    return f"{limit}  (smallest network {smallest}, largest {largest})"


def shown(of: str, value: float) -> str:
    """A size for people."""
    if of == "latency":
        return f"{1e3 * value:.3g} ms"
    return f"{value:,.0f} {'parameters' if of == 'params' else 'multiply-adds'}"


def whole_numbers(name: str, text: str) -> list[int]:
    """The seeds of --seeds."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        advice = "give whole numbers with commas between, for example 0,1,2"
        raise OptionError(name, repr(text), advice)
    numbers = [int(number) for number in text.split(",")]
    if len(set(numbers)) < len(numbers):
        raise OptionError(name, text, "name each seed once")
    return numbers
