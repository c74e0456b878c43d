"""`proxnas fit DATA`: search, train, test and export in one go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxnas.common.say import say
from proxnas.common.words import parse_options
from proxnas.domains.fitting import FitOptions
from proxnas.runs.lengthening import parse_resumed
from proxnas.runs.options import stored
from proxnas.runs.processes import check_untimed
from proxnas.workflows.about import fitting_domain
from proxnas.workflows.fitting import fit_by, plan_by
from proxnas.workflows.folders import data_word, run_folder
from proxnas.workflows.train import need

PROG = "proxnas fit"


def main(argv: list[str]) -> None:
    """Parses the flags and does it all."""
    cls = fitting_domain(argv).fitting.options
    config = parse_options(cls, PROG, argv)
    folder = run_folder(
        config, default_folder(config), cls.from_values, "data", "space", "method", "seed"
    )
    # only images can be finished early
    goes_on = config.resume or getattr(config, "finish", False)
    if goes_on and (folder / "config.json").exists():
        config = parse_resumed(argv, stored(folder, "fit", cls), folder, PROG)
    # after the folder was read, which may know DATA
    need(config, "data")
    check_untimed(config.processes, config.minutes)
    tell: Callable[[str], None] = (lambda text: None) if config.quiet else say
    if config.dry_run:
        _print_plan(plan_by(config), config.json)
        return
    _print_result(fit_by(config, folder, tell), folder)


def _print_result(result: dict[str, Any], folder: Path) -> None:
    from proxnas.report.terminal import print_cell, print_fit, print_warning

    print_cell(result)
    print_fit(result, folder)
    # only a language model has written something
    if "sample" in result:
        say(
            f"exported logits differ by at most {result['export_difference']:.1e}; it"
            f" writes:\n{result['sample']}"
        )
    print_warning(result)


def default_folder(config: FitOptions) -> str:
    """runs/fit-<data>-<space>-<method>-<seed>."""
    return f"runs/fit-{data_word(config.data)}-{config.space}-{config.method}-{config.seed}"


def _print_plan(figures: dict[str, Any], as_json: bool) -> None:
    from proxnas.workflows.plan import plan_text

    train = (
        f"training: {figures['train_epochs']} epochs, about"
        f" {figures['train_seconds_per_epoch']:.1f} s each; all together about"
        f" {figures['minutes']:.1f} min"
    )
    say(json.dumps(figures, indent=2) if as_json else f"{plan_text(figures)}\n{train}")
