"""A sweep: searches with several weights of R(A), or within several limits, and what size costs in
accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proxnas.report import comparison, sweep_report
from proxnas.runs.executors.tasks import Outcome
from proxnas.workflows.compare import Study, failures, fill, operations
from proxnas.workflows.sweep_options import SweepConfig, search_values


def sweep(config: SweepConfig, folder: Path) -> list[Outcome]:
    """Runs what is not finished and writes tables and figures; returns how each run ended."""
    settings = config.settings()
    # the smallest limit is the one that may be impossible
    study = Study(
        [setting.name for setting in settings],
        partial(search_values, config),
        settings[0].name,
        partial(write, config),
        partial(draw, config),
    )
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


def write(config: SweepConfig, folder: Path, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
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
