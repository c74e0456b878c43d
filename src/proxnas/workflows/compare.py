"""`proxnas.compare`: several methods and seeds side by side; and which methods it is told. No torch
here: `--help` must be quick."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from proxnas import methods
from proxnas.common.errors import InputError, OptionError, unknown_value
from proxnas.common.options import flat_hints
from proxnas.report import comparison, tables
from proxnas.runs.executors.tasks import Outcome
from proxnas.searching.options import SearchOptions
from proxnas.workflows.study import Study, StudyResult, failures, fill, operations, study_in_python
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
    # asked, not looked up: a method of another package says itself what it can search
    for method in methods.names():
        try:
            SearchOptions.from_values({"space": space, "method": method})
        except InputError:
            continue
        found.append(method)
    return found


def method_of(name: str) -> tuple[str, int]:
    """(method, order of its gradient) of a name in --methods."""
    # darts-2nd is a method by itself: none is called darts
    base = name.removesuffix(SECOND)
    if base != name and base in methods.names() and "order" in flat_hints(methods.options_of(base)):
        return base, 2
    return name, 1


def search_values(config: CompareConfig, name: str, seed: int) -> dict[str, Any]:
    """What one search is asked for, without where and how it runs."""
    method, order = method_of(name)
    return study_values(config, method, seed, {"order": 2} if order == 2 else {})


def compare(
    data: Any,
    methods: str | Sequence[str] = "all",
    *,
    run: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **options: Any,
) -> StudyResult:
    """Searches with several methods and seeds and puts the figures side by side, as `proxnas
    compare` does. The same call goes on where its folder stands.

    Args:
        data: as `proxnas.fit` takes it.
        methods: their names, or all that can search the space.
        run: a folder for all runs, tables and figures; without it a new one in the system's place
            for such things.
        progress: say how far it is.
        options: as `proxnas compare` takes them, with underscores: space, seeds=[0, 1, 2], epochs,
            minutes, train, workers, search_config={"cells": 4}, ...
    """
    asked = {"methods": methods} | options
    return study_in_python(CompareConfig, compare_in, data, run, progress, asked)


def compare_in(config: CompareConfig, folder: Path) -> StudyResult:
    """The comparison in its folder."""
    names = config.all_methods()
    search = partial(search_values, config)
    study = Study(names, search, names[0], partial(_write, config.space), _draw)
    return fill(study, config, folder)


def _write(space: str, folder: Path, outcomes: Sequence[Outcome]) -> list[comparison.Row]:
    """table.md, table.csv, table.json and tests.json from the runs that are finished."""
    from proxnas.runs.folder import write_atomically

    found = comparison.read_comparison(folder)
    rows = comparison.rows(found, operations(space))
    for name, content in tables.files(found, rows, failures(outcomes)).items():
        write_atomically(folder / name, content)
    return rows


def _draw(folder: Path) -> object:
    from proxnas.report import comparison_figures

    return comparison_figures.draw_comparison(comparison.read_comparison(folder), folder)
