"""`proxnas.compare`: several methods and seeds side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proxnas.report import comparison, tables
from proxnas.runs.executors.tasks import Outcome
from proxnas.workflows.compare_options import CompareConfig, search_values
from proxnas.workflows.study import Study, StudyResult, failures, fill, operations, study_in_python


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

    found = comparison.read(folder)
    rows = comparison.rows(found, operations(space))
    for name, content in tables.files(found, rows, failures(outcomes)).items():
        write_atomically(folder / name, content)
    return rows


def _draw(folder: Path) -> object:
    from proxnas.report import comparison_figures

    return comparison_figures.draw(comparison.read(folder), folder)
