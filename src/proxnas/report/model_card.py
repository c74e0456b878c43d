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

MOST_CLASSES = 50  # that are listed by name


@dataclass(frozen=True)
class Card:
    """What a model card tells; what is not known is left out."""

    genotype: Architecture
    classes: Sequence[str]
    shape: tuple[int, int, int]
    """(C, H, W) of the images."""
    pixels: str
    """uint8 or float32: what it was trained on."""
    params: int
    flops: int
    info: Mapping[str, Any] = field(default_factory=dict)
    """Of the training: data, protocol, epochs, seed, cell, valid_accuracy, test_accuracy,
    test_top5, test_images."""
    found: Mapping[str, Any] = field(default_factory=dict)
    """Of the search: method, space, data, epochs, seed, seconds; or cell, where the cell came
    from."""
    latency: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """torch or onnx -> as latency.py measures it, and processor."""
    files: Mapping[str, str] = field(default_factory=dict)
    """onnx or torch -> name of the exported file."""
    version: str = ""


def model_card(card: Card) -> str:
    """The text of model_card.md."""
    parts = ["# Model card", _table(_figures(card)), "## How it was made", _making(card)]
    parts += _network(card.genotype)
    if card.files:
        parts += ["## How to use it", _input(card), *_use(card)]
    parts += [
        "## Limits",
        (
            "The accuracy holds for images like those that it was tested on. Every image gets one"
            " of the classes, also one that shows none of them; the probabilities are not"
            " calibrated."
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _network(genotype: Architecture) -> list[str]:
    if isinstance(genotype, Design):
        return ["## The network", f"{escape(genotype.name)}, made by hand."]
    return ["## The cell", f"```text\n{cell_text(genotype).rstrip()}\n```"]


def escape(text: object) -> str:
    """Any text as plain words in a paragraph or a table of Markdown."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return re.sub(r"([\\`*_\[\]<>|~&#!$])", r"\\\1", line)


def _table(rows: Mapping[str, str]) -> str:
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items() if text)]
    )


def _figures(card: Card) -> dict[str, str]:
    C, H, W = card.shape
    return {
        "task": f"tells {len(card.classes)} classes of images apart",
        "data": escape(card.info.get("data", "")),
        "test accuracy": _accuracy(card.info),
        "validation accuracy": _percent(card.info.get("valid_accuracy")),
        "parameters": f"{card.params:,}",
        "multiply-adds of an image": f"{card.flops:,}",
        "latency": _latency(card.latency.get("torch", {})),
        "latency of the ONNX file": _latency(card.latency.get("onnx", {})),
        "images": f"{W} x {H} pixels, {C} channel{'s' * (C != 1)}",
        "classes": _classes(card.classes),
    }


def _percent(share: Any) -> str:
    return f"{100 * share:.2f}%" if isinstance(share, int | float) else ""


def _accuracy(info: Mapping[str, Any]) -> str:
    top5, images = _percent(info.get("test_top5")), info.get("test_images")
    words = [_percent(info.get("test_accuracy")), top5 and f"(among the first five: {top5})"]
    return " ".join(
        word
        for word in [*words, f"on {images:,} images" if isinstance(images, int) else ""]
        if word
    )


def _latency(latency: Mapping[str, Any]) -> str:
    if not latency:
        return ""
    where = f"{latency['device']}, threads: {latency['threads']}"
    where += f", {latency['processor']}" if latency.get("processor") else ""
    return (
        f"{1e3 * latency['seconds']:.3g} ms, batch {latency['batch']}, median of {latency['runs']}"
        f" ({escape(where)})"
    )


def _classes(classes: Sequence[str]) -> str:
    names = ", ".join(map(escape, classes[:MOST_CLASSES]))
    return names + (
        f" and {len(classes) - MOST_CLASSES} more" if len(classes) > MOST_CLASSES else ""
    )


def _making(card: Card) -> str:
    searched = "" if isinstance(card.genotype, Design) else _search_line(card.found)
    lines = [searched, _training_line(card.info)]
    lines += [f"- Written by proxnas {escape(card.version)}."] if card.version else []
    return "\n".join(line for line in lines if line)


def _search_line(found: Mapping[str, Any]) -> str:
    if "method" in found:
        numbers = _numbers(found, ("epochs", "seed")) + (
            [f"{found['seconds']:.0f} seconds"]
            if isinstance(found.get("seconds"), int | float)
            else []
        )
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


def _input(card: Card) -> str:
    C, H, W = card.shape
    values = "bytes divided by 255" if card.pixels == "uint8" else "values as in the data"
    return (
        f"Input `images`: float32, (N, {C}, {H}, {W}), {values}; normalisation is inside. Output"
        f" `logits`: (N, {len(card.classes)}), in the order of the classes above. Any number N of"
        " images. proxnas is not needed."
    )


def _use(card: Card) -> list[str]:
    scale = " / 255" if card.pixels == "uint8" else ""
    axes = f"pictures: (N, {card.shape[1]}, {card.shape[2]}, {card.shape[0]})"
    images = f'images = np.asarray(pictures, "float32").transpose(0, 3, 1, 2){scale}  # {axes}'
    blocks = []
    if "onnx" in card.files:
        session = f"session = onnxruntime.InferenceSession({card.files['onnx']!r})"
        run = 'logits = session.run(["logits"], {"images": np.ascontiguousarray(images)})[0]'
        blocks.append(
            ["import numpy as np, onnxruntime", session, images, run, "answers = logits.argmax(1)"]
        )
    if "torch" in card.files:
        load = f"program = torch.export.load({card.files['torch']!r}).module()"
        run = "logits = program(torch.from_numpy(images))"
        blocks.append(
            ["import numpy as np, torch", load, images, run, "answers = logits.argmax(1)"]
        )
    return ["```python\n" + "\n".join(lines) + "\n```" for lines in blocks]
