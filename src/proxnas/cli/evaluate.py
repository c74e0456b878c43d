"""`proxnas evaluate --run RUN/evaluations/NUMBER`: one cell of a search; what workers of sampling
methods run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from proxnas.common.errors import InputError
from proxnas.common.words import parse_options
from proxnas.runs.options import RunConfig


@dataclass(frozen=True)
class EvaluateConfig(RunConfig):
    """Evaluate one cell of a search that was begun with --workers or --ray; the search itself calls
    this."""

    resume: bool = False
    """Allowed for uniformity: an evaluation always goes on where its folder stands."""


def main(argv: list[str]) -> None:
    """Parses the flags and evaluates the cell."""
    config = parse_options(EvaluateConfig, "proxnas evaluate", argv)
    if not config.run:
        raise InputError(
            "--run: give RUN/evaluations/NUMBER of a search that was begun with --workers or --ray"
        )
    folder = Path(config.run)
    from proxnas.searching.evaluation import read_cell

    read_cell(folder)  # before a folder is made
    from rich.console import Console

    from proxnas.runs.folder import open_run
    from proxnas.runs.progress import shown
    from proxnas.searching.evaluation import evaluate

    # a worker that was killed is started again by the search: it goes on
    with open_run(folder, resume=True) as run:
        if not run.finished:
            with shown(
                Console(highlight=False), f"evaluation {folder.name}", config.quiet
            ) as progress:
                evaluate(folder, run, config.device, config.threads, progress)
