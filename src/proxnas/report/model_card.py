"""A model card: what a trained network is for, how good, how large and how fast it is, how it was
made, how to use it.

Markdown; names that a user gave (data, classes, files) are escaped, so that they can be anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxnas.cells.designs import Architecture, Design
from proxnas.report.cell import cell_text


@dataclass(frozen=True)
class Card:
    """What a model card tells; the domain of the model fills it in, and what is not known is left
    out."""

    figures: Mapping[str, str]
    """Rows of the first table, as Markdown: task, data, how good, how large, how fast."""
    genotype: Architecture | None
    network: str = ""
    """What the network is, if no genotype tells."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Of the training: protocol, epochs, seed."""
    found: Mapping[str, Any] = field(default_factory=dict)
    """Of the search: method, space, data, epochs, seed, seconds; or cell, where the cell came
    from."""
    use: Sequence[str] = ()
    """How to use the exported files, paragraph by paragraph."""
    limits: str = ""
    version: str = ""
    made: Sequence[str] = ()
    """How it was made, a sentence each, where that is not a search and then a training."""


def model_card(card: Card) -> str:
    """The text of model_card.md."""
    parts = ["# Model card", _table(card.figures), "## How it was made", _making(card)]
    parts += _network(card)
    if card.use:
        parts += ["## How to use it", *card.use]
    if card.limits:
        parts += ["## Limits", card.limits]
    return "\n\n".join(parts) + "\n"


def _network(card: Card) -> list[str]:
    if card.genotype is None:
        return ["## The network", card.network]
    if isinstance(card.genotype, Design):
        return ["## The network", f"{escape(card.genotype.name)}, made by hand."]
    title = "## The network" if card.genotype.kind == "chain" else "## The cell"
    return [title, f"```text\n{cell_text(card.genotype).rstrip()}\n```"]


def escape(text: object) -> str:
    """Any text as plain words in a paragraph or a table of Markdown."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    # everything that Markdown could read as markup, HTML or a formula
    return re.sub(r"([\\`*_\[\]<>|~&#!$])", r"\\\1", line)


def _table(rows: Mapping[str, str]) -> str:
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items() if text)]
    )


def _making(card: Card) -> str:
    # a network made by hand was not searched
    found_one = card.genotype is not None and not isinstance(card.genotype, Design)
    if card.made:
        lines = [f"- {sentence}" for sentence in card.made]
    else:
        lines = [_search_line(card.found) if found_one else "", _training_line(card.info)]
    lines += [f"- Written by proxnas {escape(card.version)}."] if card.version else []
    return "\n".join(line for line in lines if line)


def _search_line(found: Mapping[str, Any]) -> str:
    if "method" in found:
        numbers = _numbers(found, ("epochs", "seed"))
        if isinstance(found.get("seconds"), int | float):
            numbers += [f"{found['seconds']:.0f} seconds"]
        place = f"in space {escape(found.get('space', '?'))} on {escape(found.get('data', '?'))}"
        return f"- The cell was found by {escape(found['method'])} {place}{_bracket(numbers)}."
    return f"- The cell: {escape(found['cell'])}." if found.get("cell") else ""


def _training_line(info: Mapping[str, Any]) -> str:
    protocol = f" by the protocol {escape(info['protocol'])}" if info.get("protocol") else ""
    return (
        "- Its network was trained from"
        f" scratch{protocol}{_bracket(_numbers(info, ('epochs', 'seed')))}."
    )


def _numbers(values: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [f"{name} {values[name]}" for name in names if isinstance(values.get(name), int)]


def _bracket(words: Sequence[str]) -> str:
    return f" ({', '.join(words)})" if words else ""
