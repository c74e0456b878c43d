"""`proxnas.sweep`: several weights of R(A), or several limits, and what size costs in accuracy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proxnas.report import comparison, sweep_report
from proxnas.runs.executors.tasks import Outcome
from proxnas.workflows.study import Study, StudyResult, failures, fill, operations, study_in_python
from proxnas.workflows.sweep_options import SweepConfig, search_values


def sweep(
    data: Any, *, run: str | os.PathLike[str] | None = None, progress: bool = False, **options: Any
) -> StudyResult:
    """Searches with several weights of the size regulariser, or within several limits, and puts
    size beside accuracy, as `proxnas sweep` does. The same call goes on where its folder stands.

    Args:
        data: as `proxnas.fit` takes it.
        run: a folder for all runs, tables and figures; without it a new one in the system's place
            for such things.
        progress: say how far it is.
        options: as `proxnas sweep` takes them, with underscores, of which one is what is swept:
            eta=[0, 0.1, 1], max_params=["200k", "400k"], max_flops or max_latency; space, method,
            seeds=[0, 1, 2], epochs, minutes, train, workers, ...
    """
    return study_in_python(SweepConfig, sweep_in, data, run, progress, options)


def sweep_in(config: SweepConfig, folder: Path) -> StudyResult:
    """The sweep in its folder; an InputError if there is nothing to sweep over."""
    settings = config.settings()
    names = [setting.name for setting in settings]
    search = partial(search_values, config)
    # the smallest limit, which is the first, is the one that may be impossible
    study = Study(names, search, names[0], partial(write, config), partial(draw, config))
    return fill(study, config, folder)


def rows_of(config: SweepConfig, found: comparison.Comparison) -> list[comparison.Row]:
    """The rows of table.json: those of a comparison, with what was swept in place of the method's
    name."""
    settings = {setting.name: setting for setting in config.settings()}
    rows = []
    for row in comparison.rows(found, operations(config.space)):
        setting = settings[row["method"]]
        swept = (
            {"eta": setting.value}
            if setting.flag == "eta"
            else {"limit": setting.value, "of": setting.flag[4:]}
        )
        rows.append(row | {"setting": setting.name, "method": config.method} | swept)
    return sweep_report.with_front(rows)


def write(config: SweepConfig, folder: Path, outcomes: Sequence[Outcome]) -> list[comparison.Row]:
    """table.md, table.csv and table.json from the runs that are finished."""
    from proxnas.runs.folder import write_atomically

    found = comparison.read(folder)
    rows = rows_of(config, found)
    for name, content in sweep_report.files(found, rows, failures(outcomes)).items():
        write_atomically(folder / name, content)
    return rows


def draw(config: SweepConfig, folder: Path) -> list[Path]:
    """The figures, as .svg and .png."""
    found = comparison.read(folder)
    return sweep_report.draw(found, rows_of(config, found), folder)
