"""Options: frozen dataclasses, each declared by the component that uses it.

    @dataclass(frozen=True)
    class GdasOptions(Options):
        tau_end: Annotated[float, POSITIVE] = 0.1
        "Temperature towards the last step."

A field says which numbers it may hold, the string below it is its help, and a wrong value is an
`OptionError` when the options are made. Options are composed of others; the names below one
composition all differ, so that they can be flags and keys of config.json without a prefix.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from proxnas.common.errors import OptionError, unknown


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
        # NaN fails every comparison, and with them this
        return is_finite(value) and high_enough and low_enough

    def advice(self) -> str:
        """What to give."""
        if math.isinf(self.high):
            words = f"{'above' if self.above else 'of at least'} {_number_text(self.low)}"
        elif self.above:
            words = f"above {_number_text(self.low)}, at most {_number_text(self.high)}"
        elif self.below:
            words = f"from {_number_text(self.low)} to below {_number_text(self.high)}"
        else:
            words = f"from {_number_text(self.low)} to {_number_text(self.high)}"
        also = "" if self.also is None else f", or {_number_text(self.also)}"
        return f"give a number {words}{also}" + (f", {self.reason}" if self.reason else "")


def is_finite(value: float) -> bool:
    """Whether it can be computed with: neither NaN nor infinite, nor a whole number past every
    float."""
    return abs(value) <= sys.float_info.max


def _number_text(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


POSITIVE = Range(0, above=True)
NOT_NEGATIVE = Range(0)
SHARE = Range(0, 1, above=True)
BELOW_ONE = Range(0, 1, below=True)
COUNT = Range(1, 1_000_000)
COUNT_OR_NONE = Range(0, 1_000_000)


def _quote(value: Any) -> str:
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


def describe_type(hint: Any) -> str:
    """A field's type for people."""
    origin = get_origin(hint)
    if origin is Annotated:
        return describe_type(get_args(hint)[0])
    if origin in (Union, UnionType):
        return " or ".join(describe_type(kind) for kind in get_args(hint))
    if origin is Literal:
        choices = [str(choice) for choice in get_args(hint)]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))


@dataclass(frozen=True)
class Options:
    """What a component is told; checked when it is made."""

    heading: ClassVar[str] = ""
    """Of its options in a help; {}: its docstring. Empty: they are the command's own."""

    def __post_init__(self) -> None:
        for name, hint in hints_of(type(self)).items():
            value = getattr(self, name)
            bare, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            if not fits(value, bare):
                raise OptionError(name, _quote(value), f"give {describe_type(bare)}")
            for note in notes:
                if isinstance(note, Range) and is_number(value) and not note.admits(value):
                    raise OptionError(name, value, note.advice())
        self.check()

    def check(self) -> None:
        """An error for values that do not go together."""

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Of flat values, by name."""
        return build(cls, values)

    @classmethod
    def all_hints(cls) -> dict[str, Any]:
        """Name -> type of all that a file of values may hold."""
        return flat_hints(cls)


AnyOptions = TypeVar("AnyOptions", bound=Options)


def hints_of(cls: type[Options]) -> dict[str, Any]:
    """Field -> its type with its range, in the order in which they are declared."""
    if cls not in _HINTS:
        # annotations are strings: reading them takes long enough to be done once a class
        hints = get_type_hints(cls, include_extras=True)
        _HINTS[cls] = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    return _HINTS[cls]


_HINTS: dict[type[Options], dict[str, Any]] = {}


def parts_of(options: Options) -> Iterator[Options]:
    """The options and all that they are composed of."""
    yield options
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, Options):
            yield from parts_of(value)


def flatten(options: Options) -> dict[str, Any]:
    """Name -> value of all options below a composition."""
    found: dict[str, Any] = {}
    for part in parts_of(options):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(value, Options):
                continue
            if field.name in found:
                raise TypeError(f"{type(options).__name__} has {field.name} twice")
            found[field.name] = value
    return found


Parts = Mapping[str, type[Options]]
"""Field -> the class that is taken for it, where a composition leaves that open."""


def flat_hints(cls: type[Options], parts: Parts | None = None) -> dict[str, Any]:
    """Name -> type of all options below a composition."""
    found: dict[str, Any] = {}
    for name, hint in hints_of(cls).items():
        part = _part(name, hint, parts)
        found |= {name: hint} if part is None else flat_hints(part, parts)
    return found


def build(
    cls: type[AnyOptions], values: Mapping[str, Any], parts: Parts | None = None
) -> AnyOptions:
    """The composition with these values, the others as declared; an error for a name it lacks."""
    known = flat_hints(cls, parts)
    for name in values:
        if name not in known:
            raise unknown("option", name, known)
    return _build_part(cls, values, parts)


def _build_part(
    cls: type[AnyOptions], values: Mapping[str, Any], parts: Parts | None = None
) -> AnyOptions:
    given: dict[str, Any] = {}
    for name, hint in hints_of(cls).items():
        part = _part(name, hint, parts)
        if part is not None:
            given[name] = _build_part(part, values, parts)
        elif name in values:
            given[name] = values[name]
    return cls(**given)


def _part(name: str, hint: Any, parts: Parts | None) -> type[Options] | None:
    """The class of a field that holds options; None for a plain one."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if not (isinstance(hint, type) and issubclass(hint, Options)):
        return None
    return (parts or {}).get(name, hint)


def changed(options: AnyOptions, **values: Any) -> AnyOptions:
    """The same composition with other values, by their flat names."""
    left = dict(values)
    found = _changed(options, left)
    if left:
        raise unknown("option", next(iter(left)), flatten(options))
    return found


def _changed(options: AnyOptions, left: dict[str, Any]) -> AnyOptions:
    given: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, Options):
            part = _changed(value, left)
            # parts that nothing changes in stay the same objects
            if part is not value:
                given[field.name] = part
        elif field.name in left:
            # taken out: what is left at the end no part has
            given[field.name] = left.pop(field.name)
    return dataclasses.replace(options, **given) if given else options


@dataclass(frozen=True)
class Composed(Options):
    """Options made of others. Names below a composition all differ, so what is none of its own is
    looked for in its parts: `options.epochs` is `options.course.epochs`."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            for field in dataclasses.fields(self):
                part = self.__dict__.get(field.name)
                if isinstance(part, Options) and hasattr(part, name):
                    return getattr(part, name)
        raise AttributeError(f"{type(self).__name__} has no option {name!r}")


def neutral_values(cls: type[Options]) -> dict[str, Any]:
    """Field -> the value that it was first declared with, before classes below chose others."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            for field in dataclasses.fields(base):
                if field.default is not dataclasses.MISSING:
                    found.setdefault(field.name, field.default)
    return found
