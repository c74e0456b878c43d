"""`proxnas latency build DATA` and `proxnas latency show [FILE]`: tables of measured operations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from proxnas.common.errors import InputError, unknown
from proxnas.common.say import note, say
from proxnas.common.words import command_line, parse_options
from proxnas.workflows.latency_options import LatencyConfig
from proxnas.workflows.train import need

USAGE = """usage: proxnas latency build DATA ...   measure the operations of a space, keep them
       proxnas latency show [FILE]      show a table, or list those that are kept

--help behind either lists its flags."""


@dataclass(frozen=True)
class LatencyShowConfig:
    """Show a table of latencies."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")] = ""
    """A table; without it those that are kept are listed."""
    json: bool = False
    """Print JSON."""


def main(argv: list[str]) -> None:
    """Runs one of the two."""
    if not argv or argv[0] in ("-h", "--help"):
        say(USAGE)
        return
    parts: dict[str, Callable[[list[str]], None]] = {"build": build_command, "show": show}
    if argv[0] not in parts:
        raise unknown("part of latency", argv[0], parts)
    parts[argv[0]](argv[1:])


def build_command(argv: list[str]) -> None:
    """Measures and keeps a table."""
    config = parse_options(LatencyConfig, "proxnas latency build", argv)
    need(config, "data")
    from proxnas.workflows.latency import build_table

    # progress goes to stderr: stdout is the table
    path = build_table(config, note)
    say("\n".join(head_lines(json.loads(path.read_text(encoding="utf-8")))))
    say(f"kept in {path}")


def show(argv: list[str]) -> None:
    """Prints a table, or the names of all."""
    config = command_line(LatencyShowConfig, "proxnas latency show", argv)
    from proxnas.core.size.latency_file import kept_folder, read_rows

    # one table in full, or the heads of all that are kept
    if config.file:
        data, rows = read_rows(Path(config.file))
        if config.json:
            say(json.dumps(data, indent=2))
        else:
            say("\n".join([*head_lines(data), "", *row_lines(rows)]))
        return
    found = sorted(kept_folder().glob("*.json")) if kept_folder().is_dir() else []
    if not found:
        raise InputError(
            f"{kept_folder()}: no table is kept: build one: proxnas latency build DATA"
        )
    if config.json:
        say(json.dumps({str(path): read_rows(path)[0]["quality"] for path in found}, indent=2))
    else:
        say("\n\n".join("\n".join([str(p), *head_lines(read_rows(p)[0])]) for p in found))


def head_lines(data: Mapping[str, Any]) -> list[str]:
    """What a table is for, and how well it predicts."""
    about, machine, quality = data["about"], data["machine"], data["quality"]
    image = "x".join(map(str, about["image"]))
    sizes = f"{about['cells']} cells, {about['channels']} channels, {about['classes']} classes"
    speeds = f"{1e3 * quality['fastest']:.3g} to {1e3 * quality['slowest']:.3g} ms"
    return [
        f"networks   {about['space']}, images {image}, {sizes}",
        f"machine    {machine['processor']}, {machine['device']}, threads: {machine['threads']},"
        f" {machine['runtime']}",
        f"predicts   {quality['networks']} other networks ({speeds}): rank correlation"
        f" {quality['rank_correlation']:.2f}, mean error {quality['mean_relative_error']:.1%}",
    ]


def row_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Microseconds of every operation on every edge."""
    width = max(len(row["operation"]) for row in rows)
    lines = [f"{'edge':16} {'operation':{width}} {'places':>6} {'us':>9}"]
    for row in rows:
        edge = f"{row['group']} {row['edge']}"
        seconds = f"{1e6 * row['seconds']:9.1f}"
        lines.append(f"{edge:16} {row['operation']:{width}} {row['places']:6} {seconds}")
    return lines
