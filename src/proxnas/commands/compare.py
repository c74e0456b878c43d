"""`proxnas compare DATA`: several methods and seeds side by side."""

from __future__ import annotations

from pathlib import Path

from proxnas.compare_config import CompareConfig
from proxnas.executor import check_done
from proxnas.jobs import data_word, slug
from proxnas.settings import parse, parse_resumed
from proxnas.train_settings import need, stored

PROG = "proxnas compare"


def main(argv: list[str]) -> None:
    """Parses the flags, runs what is not finished, prints the tables."""
    config = parse(CompareConfig, PROG, argv)
    folder = Path(config.run or default_folder(config))
    if not config.force and (folder / "config.json").exists():
        config = parse_resumed(argv, stored(folder, "compare", CompareConfig), folder, PROG)
    need(config, "data")
    from proxnas.compare import compare

    outcomes = compare(config, folder)
    print((folder / "table.md").read_text(encoding="utf-8"))
    print(f"tables, tests and figures in {folder}")
    check_done(outcomes)


def default_folder(config: CompareConfig) -> str:
    """runs/compare-<data>-<space>-<methods>-<seeds>."""
    seeds = "-".join(map(str, config.all_seeds()))
    return f"runs/compare-{data_word(config.data)}-{config.space}-{slug(config.methods)}-{slug(seeds)}"
