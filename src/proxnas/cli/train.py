"""`proxnas train CELL DATA`: the network of a cell, trained from scratch and tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proxnas.cells.designs import Architecture
from proxnas.cells.reading import read_architecture
from proxnas.cli import text as text_commands
from proxnas.common.launch import check_flags
from proxnas.common.say import say
from proxnas.common.stored import read_json
from proxnas.domains.text.settings import about_text
from proxnas.runs.deadline import deadline_of
from proxnas.runs.processes import run_together, to_start
from proxnas.searching.settings import epochs_given, parse_resumed
from proxnas.training.options import TrainConfig
from proxnas.workflows.folders import data_word, run_folder, slug
from proxnas.workflows.jobs import build_training, run_training, training_fitted_to_minutes
from proxnas.workflows.train_settings import PROG, need, parse_train, stored


def main(argv: list[str]) -> None:
    """Parses the flags and trains."""
    if about_text(argv, TrainConfig):
        text_commands.train(argv)
        return
    config = parse_train(argv)
    if number := to_start(config.processes):
        run_together(["train", *argv], number)
        return
    check_flags(dry_run=config.dry_run, minutes=config.minutes)
    if config.dry_run:
        _dry_run(config)
        return
    folder = run_folder(config, default_folder(config), parse_train, "cell", "data", "seed")
    exists = (folder / "config.json").exists()
    if config.resume and exists:
        config = parse_resumed(argv, stored(folder, "train", TrainConfig), folder, PROG)
    need(config, "cell", "data")
    genotype = _genotype(config, folder)
    deadline = deadline_of(config.minutes)
    new = config.force or not exists
    if new and config.minutes and not epochs_given(argv, TrainConfig):
        config = training_fitted_to_minutes(config, genotype, deadline)
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one,
    # and is told first
    built = build_training(config, genotype) if new or not config.resume else None
    _print_result(run_training(config, genotype, folder, built, deadline), folder)


def _genotype(config: TrainConfig, folder: Path) -> Architecture:
    """The cell of the run that is resumed, whatever became of CELL, else CELL."""
    kept = folder / "genotype.json"
    return read_architecture(kept if config.resume and kept.exists() else config.cell)


def default_folder(config: TrainConfig) -> str:
    """runs/train-<data>-<space>-<method>-<seed> for the cell of a search, else with the cell's
    name."""
    return f"runs/train-{data_word(config.data)}-{_cell_word(config.cell)}-{config.seed}"


def _cell_word(cell: str) -> str:
    try:
        found = read_json(Path(cell) / "config.json")
        return slug(f"{found['space']}-{found['method']}")
    except (OSError, ValueError, TypeError, KeyError):
        return slug(Path(cell.removeprefix("zoo:")).stem) or "cell"


def _print_result(result: dict[str, Any], folder: Path) -> None:
    from proxnas.report.terminal import print_summary, print_warning

    print_summary(result, folder)
    print_warning(result)


def _dry_run(config: TrainConfig) -> None:
    from proxnas.workflows.plan_train import plan_text, plan_training

    need(config, "cell", "data")
    figures = plan_training(build_training(config, read_architecture(config.cell)))
    say(json.dumps(figures, indent=2) if config.json else plan_text(figures))
