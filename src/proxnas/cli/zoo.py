"""`proxnas zoo [NAME]`: the published cells and networks, or one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from proxnas.cells import zoo
from proxnas.cells.designs import Design
from proxnas.common.say import say
from proxnas.common.words import command_line
from proxnas.report.cell import cell_text

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class ZooConfig:
    """List the published cells and networks, or show one: zoo:NAME stands for it wherever a cell is
    asked for."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[NAME]")] = ""
    """A cell to show; without one all are listed."""
    json: bool = False
    """Print JSON."""


def main(argv: list[str]) -> None:
    """Prints the list or the cell."""
    config = command_line(ZooConfig, "proxnas zoo", argv)
    if not config.name:
        rows = list(zoo.entries().values())
        if config.json:
            say(json.dumps([entry.summary() for entry in rows], indent=2))
        else:
            print_table(rows)
        return
    entry = zoo.zoo_entry(config.name)
    if config.json:
        cell = json.loads(entry.genotype.to_json())
        say(json.dumps({**entry.summary(), "genotype": cell}, indent=2))
        return
    genotype = entry.genotype
    what = "a network made by hand" if isinstance(genotype, Design) else cell_text(genotype)
    say(f"{entry.name}: {what}")
    say("\n".join(facts(entry)))


def print_table(entries: list[zoo.ZooEntry]) -> None:
    """All cells for people; what does not fit a narrow terminal is folded, never cut."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:  # wide enough for a file
        console = Console(width=160, highlight=False, markup=False)
    console.print(_table(entries))
    say(
        f"{zoo.PREFIX}{zoo.LSTM} (for `proxnas train` on text): an LSTM of the size of a recurrent"
        " cell with 8 nodes"
    )


def _table(entries: list[zoo.ZooEntry]) -> Table:
    from rich.table import Table

    caption = "error: CIFAR-10 test error in %, or PTB test perplexity (ppl), as published"
    table = Table(caption=caption, box=None)
    # no_wrap: what would be misread in two lines
    table.add_column("name", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("params", justify="right", no_wrap=True)
    table.add_column("published", justify="right", no_wrap=True)
    table.add_column("error", no_wrap=True)
    table.add_column("GPU days", justify="right")
    table.add_column("source", overflow="fold")
    for e in entries:
        days = e.published.get("gpu_days")
        table.add_row(
            *(e.name, e.genotype.kind, millions(e.params), millions(e.published.get("params"))),
            quality(e.published),
            "" if days is None else f"{days:g}",
            e.published.get("source", ""),
        )
    return table


def facts(entry: zoo.ZooEntry) -> list[str]:
    """What is known of a cell, a line each."""
    lines: dict[str, Any] = {"params here": entry.params}
    # texts, such as a source, speak for themselves; figures are those of the paper
    for name, value in entry.published.items():
        lines[("" if isinstance(value, str) else "published ") + name.replace("_", " ")] = value
    lines["notes"] = entry.notes
    width = max(map(len, lines))
    found = []
    for name, value in lines.items():
        if value:
            shown = f"{value:,}" if isinstance(value, int) else value
            found.append(f"{name:{width}}  {shown}")
    return found


def millions(count: int | None) -> str:
    """A parameter count for a narrow column."""
    return "" if count is None else f"{count / 1e6:.2f}M"


def quality(published: Mapping[str, Any]) -> str:
    """The published error with its spread, or the perplexity."""
    if "error" in published:
        return f"{published['error']:.2f}" + (
            f"±{published['error_std']:.2f}" if "error_std" in published else ""
        )
    return f"{published['test_perplexity']:.1f} ppl" if "test_perplexity" in published else ""
