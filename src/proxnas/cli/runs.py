"""`proxnas runs [DIR]`: which runs there are and how they stand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proxnas.common.errors import InputError
from proxnas.common.say import say
from proxnas.common.words import command_line
from proxnas.report.listing import list_runs, table


@dataclass(frozen=True)
class RunsConfig:
    """List the runs in DIR and their parts: finished, running or stopped, accuracy, parameters,
    time."""

    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR")] = "runs"
    """A folder of runs, or a run."""
    json: bool = False
    """As a JSON list."""


def main(argv: list[str]) -> None:
    """Prints the list."""
    config = command_line(RunsConfig, "proxnas runs", argv)
    folder = Path(config.folder)
    if not folder.is_dir():
        raise InputError(f"{config.folder}: no such folder: give the folder that holds your runs")
    entries = list_runs(folder)
    if config.json:
        say(json.dumps(entries, indent=2))
    # no runs are no error: --json gives an empty list
    elif not entries:
        say(f"no runs in {folder}")
    else:
        say(table(entries))
