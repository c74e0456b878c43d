"""Whose an option is: the classes of options that the space and the method choose, and the error
for one that they do not have."""

from __future__ import annotations

from typing import Any

from proxnas import methods
from proxnas.cells.kinds import CUSTOM
from proxnas.common.errors import AboutOptions, OptionError, escape, unknown_value
from proxnas.common.options import Options, Parts, flat_hints, neutral_values
from proxnas.domains.domain import every_domain, of_space
from proxnas.domains.search_options import DomainOptions
from proxnas.domains.spaces import SPACES


def domain_options(space: str) -> type[DomainOptions]:
    """The class of the options that the domain of a space has."""
    return of_space(space).search_options


def check_names(space: str, method: str) -> None:
    """An InputError for a space or a method that there is not."""
    if space not in (*SPACES, CUSTOM):
        raise unknown_value("space", space, SPACES)
    if method not in methods.names():
        raise unknown_value("method", method, methods.names())


def parts_for(space: str, method: str) -> Parts:
    """The classes of the parts that the space and the method choose."""
    check_names(space, method)
    return {"method_options": methods.options_of(method), "domain": domain_options(space)}


def asks_for_nothing(name: str) -> Any:
    """The value that an option of some method or domain was declared with."""
    for cls in all_parts():
        values = neutral_values(cls)
        if name in values:
            return values[name]
    return None


def foreign(name: str, value: object, space: str, method: str) -> AboutOptions:
    """The error for an option that this method, or the domain of this space, does not have."""
    owners = [each for each in methods.names() if name in flat_hints(methods.options_of(each))]
    if owners:
        return not_for(name, value, owners, method)
    for domain in every_domain().values():
        if name in flat_hints(domain.search_options):
            where = f"not for {{space}} {space}"
            if len(domain.spaces) == 1:
                where = f"for {{space}} {next(iter(domain.spaces))}"
            return OptionError(name, value, f"is {where}: leave it out")
    return AboutOptions(escape(f"unknown option {name!r}"))


def not_for(name: str, value: object, owners: list[str], method: str) -> OptionError:
    """The error for an option of other methods."""
    return OptionError(name, value, f"is for {', '.join(owners)}, not for {method}: leave it out")


def all_parts() -> list[type[Options]]:
    """The classes of options of all methods and domains."""
    found: list[type[Options]] = [methods.options_of(name) for name in methods.names()]
    return [*found, *(domain.search_options for domain in every_domain().values())]
