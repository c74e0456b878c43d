"""What `compare` is told: which methods. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from proxnas import methods
from proxnas.common.errors import InputError
from proxnas.common.options import OptionError, flat_hints, unknown_value
from proxnas.searching.options import SearchOptions
from proxnas.workflows.study_options import StudyConfig, study_values

SECOND = "-2nd"
"""After the name of a proximal method: with the gradient of second order. darts-2nd is a method by
itself."""


@dataclass(frozen=True)
class CompareConfig(StudyConfig):
    """Search with several methods and seeds, and put the figures side by side: tables, tests and
    drawings.

    The same command goes on where the folder stands: nothing that is finished is run again.
    """

    COMMAND: ClassVar[str] = "compare"

    methods: str = "all"
    """Methods with commas between, or all that can search the space. nasp-2nd, pa-2nd and
    lazy-pa-2nd take the gradient of second order."""

    def check(self) -> None:
        """Methods that exist, each once."""
        super().check()
        names = self.all_methods()
        for name in names:
            if method_of(name)[0] not in methods.names():
                raise unknown_value("methods", name, methods.names())
        if len(set(names)) < len(names):
            raise OptionError("methods", self.methods, "name each method once")

    def all_methods(self) -> list[str]:
        """As named, pa-2nd is one of its own; all: those that this version has for the space."""
        return claiming(self.space) if self.methods == "all" else self.methods.split(",")


def claiming(space: str) -> list[str]:
    """The methods that can search the space: those whose configuration is not refused."""
    found = []
    for method in methods.names():
        try:
            SearchOptions.from_values({"space": space, "method": method})
        except InputError:
            continue
        found.append(method)
    return found


def method_of(name: str) -> tuple[str, int]:
    """(method, order of its gradient) of a name in --methods."""
    base = name.removesuffix(SECOND)
    if base != name and base in methods.names() and "order" in flat_hints(methods.options_of(base)):
        return base, 2
    return name, 1


def search_values(config: CompareConfig, name: str, seed: int) -> dict[str, Any]:
    """What one search is asked for, without where and how it runs."""
    method, order = method_of(name)
    return study_values(config, method, seed, {"order": 2} if order == 2 else {})
