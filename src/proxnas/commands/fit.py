"""`proxnas fit DATA`: search, train, test and export in one go."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from proxnas import text_commands
from proxnas.fit import fit, plan_fit
from proxnas.jobs import data_word
from proxnas.settings import parse, parse_resumed
from proxnas.train_config import FitConfig
from proxnas.train_settings import need, stored

PROG = "proxnas fit"


def main(argv: list[str]) -> None:
    """Parses the flags and does it all."""
    if text_commands.about_fitting_text(argv):
        text_commands.fit(argv)
        return
    config = parse(FitConfig, PROG, argv)
    folder = Path(config.run or default_folder(config))
    if config.resume and (folder / "config.json").exists():
        config = parse_resumed(argv, stored(folder, "fit", FitConfig), folder, PROG)
    need(config, "data")
    say = (lambda text: None) if config.quiet else print
    if config.dry_run:
        text_commands.print_plan(plan_fit(config), config.json)
        return
    _print_result(fit(config, folder, say), folder)


def default_folder(config: FitConfig) -> str:
    """runs/fit-<data>-<space>-<method>-<seed>."""
    return f"runs/fit-{data_word(config.data)}-{config.space}-{config.method}-{config.seed}"


def _print_result(result: dict[str, Any], folder: Path) -> None:
    from proxnas.genotype import Genotype
    from proxnas.report.cell import cell_text

    print(cell_text(Genotype.from_json(json.dumps(result["genotype"]))))
    print(f"test accuracy {result['test_accuracy']:.4f}  ({result['test_images']} images)")
    print(f"parameters {result['params']:,}  multiply-adds {result['flops']:,}")
    print(f"{folder / result['exported']} answers as the network does; see {folder / 'model_card.md'}")
    print(f"seconds: search {result['search']['seconds']:.1f}, training {result['train']['seconds']:.1f}"
          f"  run folder {folder}")  # fmt: skip
    if "warning" in result["search"]:
        print(f"proxnas: warning: {result['search']['warning']}", file=sys.stderr)
