"""`proxnas train CELL DATA`: the network of a cell, trained from scratch and tested."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from proxnas.common.launch import check_flags
from proxnas.common.say import say
from proxnas.common.stored import read_json
from proxnas.common.words import epochs_given
from proxnas.domains import TrainableDomain, of_options
from proxnas.runs.lengthening import parse_resumed
from proxnas.runs.options import stored
from proxnas.runs.processes import run_together, to_start
from proxnas.training.options import TrainOptions
from proxnas.workflows.folders import data_word, run_folder, slug
from proxnas.workflows.train import (
    PROG,
    build_training,
    need,
    parse_train,
    resolve_training,
    train_in_folder,
)


def main(argv: list[str]) -> None:
    """Parses the flags and trains."""
    options = parse_train(argv)
    domain = of_options(options)
    if number := to_start(options.processes):
        run_together(["train", *argv], number)
        return
    check_flags(dry_run=options.dry_run, minutes=options.minutes)
    if options.dry_run:
        _dry_run(domain, options)
        return
    folder = run_folder(
        options, default_folder(options), partial(resolve_training, domain), "cell", "data", "seed"
    )
    if options.resume and (folder / "config.json").exists():
        known = stored(folder, "train", domain.train_options)
        # what the run was begun with, and of this call only what may change
        options = parse_resumed(argv, known, folder, PROG)
    need(options, "cell", "data")
    # whoever names epochs gets them; else --minutes chooses
    choose = not epochs_given(argv, domain.train_options)
    result = train_in_folder(domain, options, folder, None, choose)
    from proxnas.report.terminal import print_summary, print_warning  # later than its errors

    print_summary(result, folder)
    print_warning(result)


def default_folder(options: TrainOptions) -> str:
    """runs/train-<data>-<space>-<method>-<seed> for the cell of a search, else with the cell's
    name."""
    return f"runs/train-{data_word(options.data)}-{_cell_word(options.cell)}-{options.seed}"


def _cell_word(cell: str) -> str:
    try:
        # the folder of a search: what it searched says more than its name
        found = read_json(Path(cell) / "config.json")
        return slug(f"{found['space']}-{found['method']}")
    except (OSError, ValueError, TypeError, KeyError):
        return slug(Path(cell.removeprefix("zoo:")).stem) or "cell"


def _dry_run(domain: TrainableDomain, options: TrainOptions) -> None:
    from proxnas.workflows.plan import plan_training, training_text

    need(options, "cell", "data")
    training = build_training(options, domain.read_cell(options.cell))
    figures = plan_training(training)
    say(json.dumps(figures, indent=2) if options.json else training_text(training, figures))
