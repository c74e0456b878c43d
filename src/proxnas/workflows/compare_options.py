"""What `compare` is told: which methods. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from proxnas.common.errors import InputError, unknown
from proxnas.methods import METHODS
from proxnas.runs.options import require
from proxnas.searching.options import SearchConfig
from proxnas.searching.uses import PROXIMAL
from proxnas.workflows.study_options import StudyConfig, study_argv

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

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.all_methods()
        for name in names:
            if method_of(name)[0] not in METHODS:
                raise unknown("--methods", name, METHODS)
        require(len(set(names)) == len(names), "--methods", self.methods, "name each method once")

    def all_methods(self) -> list[str]:
        """As named, pa-2nd is one of its own; all: those that this version has for the space."""
        return claiming(self.space) if self.methods == "all" else self.methods.split(",")


def claiming(space: str) -> list[str]:
    """The methods that can search the space: those whose configuration is not refused."""
    found = []
    for method in METHODS:
        try:
            SearchConfig(space=space, method=method)
        except InputError:
            continue
        found.append(method)
    return found


def method_of(name: str) -> tuple[str, int]:
    """(method, order of its gradient) of a name in --methods."""
    base = name.removesuffix(SECOND)
    return (base, 2) if base != name and base in PROXIMAL else (name, 1)


def search_argv(config: CompareConfig, name: str, seed: int) -> list[str]:
    """The command line of one search, without the flags that say where and how it runs."""
    method, order = method_of(name)
    return study_argv(config, method, seed, {"order": 2} if order == 2 else {})
