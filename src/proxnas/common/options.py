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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin, get_type_hints

from proxnas.common.errors import unknown
from proxnas.common.option_errors import (
    POSITIONAL,
    AboutOptions,
    OptionError,
    escape,
    flag_of,
    in_flags,
    unknown_value,
)
from proxnas.common.option_values import (
    BELOW_ONE,
    COUNT,
    COUNT_OR_NONE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Range,
    check_value,
    fits,
    is_finite,
    is_number,
    wanted,
)

__all__ = [
    "BELOW_ONE",
    "COUNT",
    "COUNT_OR_NONE",
    "NOT_NEGATIVE",
    "POSITIONAL",
    "POSITIVE",
    "SHARE",
    "AboutOptions",
    "AnyOptions",
    "Composed",
    "OptionError",
    "Options",
    "Parts",
    "Range",
    "build",
    "changed",
    "check_value",
    "escape",
    "fits",
    "flag_of",
    "flat_hints",
    "flatten",
    "hints_of",
    "in_flags",
    "is_finite",
    "is_number",
    "neutral_values",
    "parts_of",
    "unknown_value",
    "wanted",
]


@dataclass(frozen=True)
class Options:
    """What a component is told; checked when it is made."""

    def __post_init__(self) -> None:
        for name, hint in hints_of(type(self)).items():
            check_value(name, getattr(self, name), hint)
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
    return _build(cls, values, parts)


def _build(
    cls: type[AnyOptions], values: Mapping[str, Any], parts: Parts | None = None
) -> AnyOptions:
    given: dict[str, Any] = {}
    for name, hint in hints_of(cls).items():
        part = _part(name, hint, parts)
        if part is not None:
            given[name] = _build(part, values, parts)
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
            if part is not value:
                given[field.name] = part
        elif field.name in left:
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
