"""`proxnas report RUN...`: one HTML file that shows runs, and figures for papers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proxnas.common.errors import InputError
from proxnas.common.say import say
from proxnas.common.words import command_line
from proxnas.report.page import FILE, write_report
from proxnas.report.reading import find_runs


@dataclass(frozen=True)
class ReportConfig:
    """Write a report of runs: one HTML file that needs no network; several runs are compared."""

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...")]
    """Run folders; a folder of runs (of fit, compare, --seeds) stands for all of them."""
    out: str = ""
    """The file; default report.html in the run folder, for several runs in the current one."""
    figures: str = ""
    """Also write figures into this folder, as .svg and .png."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise InputError("RUN: give at least one run folder (proxnas runs lists them)")


def main(argv: list[str]) -> None:
    """Reads the runs, writes the report."""
    config = command_line(ReportConfig, "proxnas report", argv)
    records = [record for run in config.runs for record in find_runs(run)]
    # beside a run that is alone; several belong to none of their folders
    out = Path(config.out or (Path(config.runs[0]) / FILE if len(config.runs) == 1 else FILE))
    say(f"report in {write_report(records, out)}")
    if config.figures:
        from proxnas.report.figures import write_figures  # matplotlib takes a while

        for path in write_figures(records, Path(config.figures)):
            say(f"figure in {path}")
