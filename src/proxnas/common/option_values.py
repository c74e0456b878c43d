"""Which values an option may have: the type and the range of its field."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from proxnas.common.option_errors import OptionError


@dataclass(frozen=True)
class Range:
    """The numbers that a field may hold."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """Whether `low` itself is excluded."""
    below: bool = False
    """Whether `high` itself is excluded."""
    also: float | None = None
    """A number outside that stands for something else."""
    reason: str = ""
    """What other numbers would lead to, behind the advice."""

    def admits(self, value: float) -> bool:
        """Whether the number is finite and within."""
        if value == self.also:
            return True
        high_enough = value > self.low if self.above else value >= self.low
        low_enough = value < self.high if self.below else value <= self.high
        return is_finite(value) and high_enough and low_enough

    def advice(self) -> str:
        """What to give."""
        if math.isinf(self.high):
            words = f"above {_shown(self.low)}" if self.above else f"of at least {_shown(self.low)}"
        elif self.above:
            words = f"above {_shown(self.low)}, at most {_shown(self.high)}"
        elif self.below:
            words = f"from {_shown(self.low)} to below {_shown(self.high)}"
        else:
            words = f"from {_shown(self.low)} to {_shown(self.high)}"
        also = "" if self.also is None else f", or {_shown(self.also)}"
        return f"give a number {words}{also}" + (f", {self.reason}" if self.reason else "")


def is_finite(value: float) -> bool:
    """Whether it can be computed with: neither NaN nor infinite, nor a whole number past every
    float."""
    return abs(value) <= sys.float_info.max


def _shown(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


POSITIVE = Range(0, above=True)
NOT_NEGATIVE = Range(0)
SHARE = Range(0, 1, above=True)
BELOW_ONE = Range(0, 1, below=True)
COUNT = Range(1, 1_000_000)
COUNT_OR_NONE = Range(0, 1_000_000)


def check_value(name: str, value: Any, hint: Any) -> None:
    """An OptionError for a value of another type than the field's, or out of its range."""
    bare, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if not fits(value, bare):
        raise OptionError(name, _quoted(value), f"give {wanted(bare)}")
    for note in notes:
        if isinstance(note, Range) and is_number(value) and not note.admits(value):
            raise OptionError(name, value, note.advice())


def _quoted(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type; whole numbers are numbers too, but true is none."""
    origin = get_origin(hint)
    if origin is Annotated:
        return fits(value, get_args(hint)[0])
    if origin in (Union, UnionType):
        return any(fits(value, kind) for kind in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    if hint is float:
        return is_number(value) and is_finite(value)
    if hint is int:
        return is_number(value) and isinstance(value, Integral)
    if hint is None:
        return value is None
    return isinstance(value, origin or hint) if isinstance(origin or hint, type) else True


def is_number(value: Any) -> bool:
    """Whether it counts or measures something."""
    return isinstance(value, Real) and not isinstance(value, bool)


def wanted(hint: Any) -> str:
    """A field's type for people."""
    origin = get_origin(hint)
    if origin is Annotated:
        return wanted(get_args(hint)[0])
    if origin in (Union, UnionType):
        return " or ".join(wanted(kind) for kind in get_args(hint))
    if origin is Literal:
        choices = [str(choice) for choice in get_args(hint)]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))
