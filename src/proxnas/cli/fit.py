"""`proxnas fit DATA`: search, train, test and export in one go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from proxnas.cli import text as text_commands
from proxnas.common.say import say
from proxnas.runs.processes import check_untimed
from proxnas.searching.settings import parse, parse_resumed
from proxnas.workflows.fit import fit, plan_fit
from proxnas.workflows.fit_options import FitConfig
from proxnas.workflows.folders import data_word, run_folder
from proxnas.workflows.train_settings import need, stored

PROG = "proxnas fit"


def main(argv: list[str]) -> None:
    """Parses the flags and does it all."""
    if text_commands.about_fitting_text(argv):
        text_commands.fit(argv)
        return
    config = parse(FitConfig, PROG, argv)
    of_flags = partial(parse, FitConfig, PROG)
    folder = run_folder(config, default_folder(config), of_flags, "data", "space", "method", "seed")
    if config.resume and (folder / "config.json").exists():
        config = parse_resumed(argv, stored(folder, "fit", FitConfig), folder, PROG)
    need(config, "data")
    check_untimed(config.processes, config.minutes)
    tell: Callable[[str], None] = (lambda text: None) if config.quiet else say
    if config.dry_run:
        text_commands.print_plan(plan_fit(config), config.json)
        return
    _print_result(fit(config, folder, tell), folder)


def default_folder(config: FitConfig) -> str:
    """runs/fit-<data>-<space>-<method>-<seed>."""
    return f"runs/fit-{data_word(config.data)}-{config.space}-{config.method}-{config.seed}"


def _print_result(result: dict[str, Any], folder: Path) -> None:
    from proxnas.report.terminal import print_cell, print_fit, print_warning

    print_cell(result)
    print_fit(result, folder)
    print_warning(result)
