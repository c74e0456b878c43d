"""`proxnas sweep DATA`: size against accuracy, over the weight of the size regulariser or over
limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from proxnas.cli.compare import study_command
from proxnas.workflows.folders import data_word, slug
from proxnas.workflows.sweep import SweepConfig

if TYPE_CHECKING:
    from proxnas.workflows.study import StudyResult


def main(argv: list[str]) -> None:
    """Parses the flags, runs what is not finished, prints the table."""
    study_command(argv, SweepConfig, default_folder, _sweep, "method")


def _sweep(config: SweepConfig, folder: Path) -> StudyResult:
    from proxnas.workflows.sweep import sweep_in

    return sweep_in(config, folder)


def default_folder(config: SweepConfig) -> str:
    """runs/sweep-<data>-<space>-<method>-<what>-<seeds>."""
    # all settings are of one flag
    what = config.settings()[0].flag.replace("_", "-")
    seeds = "-".join(map(str, config.all_seeds()))
    return (
        f"runs/sweep-{data_word(config.data)}-{config.space}-{config.method}-{what}-{slug(seeds)}"
    )
