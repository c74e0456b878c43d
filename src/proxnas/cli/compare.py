"""`proxnas compare DATA`: several methods and seeds side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from proxnas.common.say import say
from proxnas.common.words import parse_options
from proxnas.runs.executors.choice import check_executor
from proxnas.runs.executors.tasks import check_done
from proxnas.runs.lengthening import parse_resumed
from proxnas.runs.options import stored
from proxnas.workflows.compare import CompareConfig
from proxnas.workflows.folders import data_word, run_folder, slug
from proxnas.workflows.study_options import AnyStudy
from proxnas.workflows.train import need

if TYPE_CHECKING:
    from proxnas.workflows.study import StudyResult


def main(argv: list[str]) -> None:
    """Parses the flags, runs what is not finished, prints the tables."""
    study_command(argv, CompareConfig, default_folder, _compare, "methods")


def _compare(config: CompareConfig, folder: Path) -> StudyResult:
    from proxnas.workflows.compare import compare_in

    return compare_in(config, folder)


def default_folder(config: CompareConfig) -> str:
    """runs/compare-<data>-<space>-<methods>-<seeds>."""
    seeds = "-".join(map(str, config.all_seeds()))
    return (
        f"runs/compare-{data_word(config.data)}-{config.space}-{slug(config.methods)}-{slug(seeds)}"
    )


def study_command(
    argv: list[str],
    cls: type[AnyStudy],
    default_folder: Callable[[AnyStudy], str],
    work: Callable[[AnyStudy, Path], StudyResult],
    *named: str,
) -> None:
    """Parses the flags, runs what is not finished, prints the tables and says where the rest is.

    `named`: fields that the default folder's name has besides those of every study.
    """
    prog = f"proxnas {cls.COMMAND}"
    config = parse_options(cls, prog, argv)
    plain = default_folder(config)
    folder = run_folder(config, plain, cls.from_values, "data", "space", *named, "seed", "seeds")
    # a study always goes on, so its folder says what was asked for at first
    if not config.force and (folder / "config.json").exists():
        config = parse_resumed(argv, stored(folder, cls.COMMAND, cls), folder, prog)
    need(config, "data")
    check_executor(config)
    result = work(config, folder)
    # tables first: runs that failed are an error, said last
    say(result.table)
    say(f"tables and figures in {result.path}")
    check_done(list(result.outcomes))
