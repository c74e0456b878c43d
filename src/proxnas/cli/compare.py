"""`proxnas compare DATA`: several methods and seeds side by side."""

from __future__ import annotations

from pathlib import Path

from proxnas.runs.executors.tasks import Outcome
from proxnas.workflows.compare_options import CompareConfig
from proxnas.workflows.folders import data_word, slug
from proxnas.workflows.study_options import study_command


def main(argv: list[str]) -> None:
    """Parses the flags, runs what is not finished, prints the tables."""
    study_command(argv, CompareConfig, default_folder, _compare, "methods")


def _compare(config: CompareConfig, folder: Path) -> list[Outcome]:
    from proxnas.workflows.compare import compare

    return compare(config, folder)


def default_folder(config: CompareConfig) -> str:
    """runs/compare-<data>-<space>-<methods>-<seeds>."""
    seeds = "-".join(map(str, config.all_seeds()))
    return (
        f"runs/compare-{data_word(config.data)}-{config.space}-{slug(config.methods)}-{slug(seeds)}"
    )
