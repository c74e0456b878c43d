"""`proxnas sweep DATA`: size against accuracy, over the weight of the size regulariser or over limits."""

from __future__ import annotations

from pathlib import Path

from proxnas.executor import check_done
from proxnas.jobs import data_word, slug
from proxnas.settings import parse, parse_resumed
from proxnas.sweep_config import SweepConfig
from proxnas.train_settings import need, stored

PROG = "proxnas sweep"


def main(argv: list[str]) -> None:
    """Parses the flags, runs what is not finished, prints the table."""
    config = parse(SweepConfig, PROG, argv)
    folder = Path(config.run or default_folder(config))
    if not config.force and (folder / "config.json").exists():
        config = parse_resumed(argv, stored(folder, "sweep", SweepConfig), folder, PROG)
    need(config, "data")
    from proxnas.sweep import sweep

    outcomes = sweep(config, folder)
    print((folder / "table.md").read_text(encoding="utf-8"))
    print(f"tables and figures in {folder}")
    check_done(outcomes)


def default_folder(config: SweepConfig) -> str:
    """runs/sweep-<data>-<space>-<method>-<what>-<seeds>."""
    what = config.settings()[0].flag.replace("_", "-")
    seeds = "-".join(map(str, config.all_seeds()))
    return f"runs/sweep-{data_word(config.data)}-{config.space}-{config.method}-{what}-{slug(seeds)}"
