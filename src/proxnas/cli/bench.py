"""`proxnas bench`: the paper's timing table, measured here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from proxnas.common.errors import InputError
from proxnas.common.files import make_folder, write_atomically
from proxnas.common.words import parse_options
from proxnas.workflows.bench_options import BenchConfig

MIB = 2**20


def main(argv: list[str]) -> None:
    """Measures, prints the table, writes the JSON."""
    config = parse_options(BenchConfig, "proxnas bench", argv)
    if config.run:
        make_folder(Path(config.run))
    # before the measurement, which takes minutes
    for target in _targets(config):
        if not target.parent.is_dir():
            raise InputError(
                f"{target}: there is no folder {target.parent}: make it or choose another"
            )
    from proxnas.workflows.bench import bench

    console = Console(highlight=False)
    say = (lambda text: None) if config.quiet else (lambda text: console.print(text, style="dim"))
    figures = bench(config, say)
    for target in _targets(config):
        write_atomically(target, json.dumps(figures, indent=2) + "\n")
    console.print(table(figures))
    console.print(verdict(figures))


def _targets(config: BenchConfig) -> list[Path]:
    run = [Path(config.run) / "bench.json"] if config.run else []
    return run + ([Path(config.json)] if config.json else [])


def table(figures: dict[str, Any]) -> Table:
    """Seconds an iteration, by part, as the paper's timing table; ratio to NASP; peak memory."""
    rows = Table(title=f"{figures['space']}: seconds an iteration ({figures['threads']} threads)")
    for heading in (
        "method",
        "update A",
        "forward",
        "backward",
        "other",
        "total",
        "to nasp",
        "MiB",
    ):
        rows.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for name, part in figures["methods"].items():
        ratio = f"{figures['ratio'][name]:.2f}" if figures["ratio"] else "-"
        seconds = [f"{part[key]:.3f}" for key in ("arch", "forward", "backward", "other", "total")]
        rows.add_row(name, *seconds, ratio, f"{part['peak_bytes'] / MIB:.0f}")
    # the floor has two passes: for A and for w
    limit = figures["limit"]
    rows.add_row(
        "limit",
        f"{limit['arch']:.3f}",
        "",
        f"{limit['weight']:.3f}",
        "",
        f"{limit['total']:.3f}",
        "",
        f"{limit['peak_bytes'] / MIB:.0f}",
    )
    return rows


def verdict(figures: dict[str, Any]) -> str:
    """How near the floor NASP is, and how well the opponent is written."""
    lines = []
    if figures["ratio_to_limit"]:
        lines.append(f"nasp is {figures['ratio_to_limit']:.2f} times the limit")
    if figures["opponent"]:
        lines.append(f"darts-2nd is {figures['opponent']:.2f} times five passes of the mixture")
    if "cell_ratio" in figures:
        lines.append(
            f"without the decoder darts-2nd takes {figures['cell_ratio']:.2f} times as long as nasp"
        )
    return "; ".join(lines)
