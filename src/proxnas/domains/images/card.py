"""The model card of an image classifier: figures of its answers, how to feed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxnas.cells.designs import Architecture
from proxnas.report.model_card import Card, escape

MOST_CLASSES = 50  # that are listed by name
OTHERS = {
    "test R2": "test_r2",
    "test mean absolute error": "test_mae",
    "validation R2": "valid_r2",
    "test mean average precision": "test_map",
    "test F1": "test_f1",
    "validation mean average precision": "valid_map",
    "expected calibration error": "calibration_error",
}
"""Figures that a model may have besides its accuracy, or in its place."""
LIMITS = {
    "classes": "The accuracy holds for images like those that it was tested on. Every image gets"
    " one of the classes, also one that shows none of them; the probabilities are not calibrated.",
    "numbers": "The figures hold for images like those that it was tested on. Every image gets"
    " numbers, also one of something else; nothing tells how sure they are.",
    "labels": "The figures hold for images like those that it was tested on. A label is given where"
    " its probability is above one half; the probabilities are not calibrated.",
}
"""By the kind of target."""


@dataclass(frozen=True)
class ImageFacts:
    """What is known of an image classifier."""

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
    """Of the search, or where the cell came from."""
    latency: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """torch or onnx -> as latency.py measures it, and processor."""
    files: Mapping[str, str] = field(default_factory=dict)
    """onnx or torch -> name of the exported file."""
    version: str = ""
    task: str = "tells {} classes of images apart"
    output: str = "logits"
    kind: str = "classes"
    """Of target: classes, numbers, labels."""


def image_card(facts: ImageFacts) -> Card:
    """The card of an image classifier."""
    return Card(
        figures=_figures(facts),
        genotype=facts.genotype,
        info=facts.info,
        found=facts.found,
        use=[_input(facts), *_use(facts)] if facts.files else (),
        limits=LIMITS[facts.kind],
        made=_by_the_clock(facts),
        version=facts.version,
    )


def _by_the_clock(facts: ImageFacts) -> list[str]:
    """How a run by the clock made it, which searches and trains in one go."""
    # only a run by the clock has a line on what became of its search
    said = facts.found.get("said")
    if not said:
        return []
    epochs = [f"{name} {facts.info[name]}" for name in ("epochs", "seed") if name in facts.info]
    space, data = (escape(facts.found.get(name, "?")) for name in ("space", "data"))
    return [
        f"Its network was trained by the clock in space {space} on {data} ({', '.join(epochs)}).",
        f"{said[0].upper()}{escape(said[1:])}.",
    ]


def _figures(facts: ImageFacts) -> dict[str, str]:
    C, H, W = facts.shape
    return {
        "task": facts.task.format(len(facts.classes)),
        "data": escape(facts.info.get("data", "")),
        # empty texts are left out of the table
        "test accuracy" if facts.kind == "classes" else "tested": _accuracy(facts.info),
        "validation accuracy": _percent(facts.info.get("valid_accuracy")),
        **{name: _figure(facts.info.get(key)) for name, key in OTHERS.items()},
        "parameters": f"{facts.params:,}",
        "multiply-adds of an image": f"{facts.flops:,}",
        "latency": _latency(facts.latency.get("torch", {})),
        "latency of the ONNX file": _latency(facts.latency.get("onnx", {})),
        "int8 version": _int8(facts.found.get("int8")),
        "images": f"{W} x {H} pixels, {C} channel{'s' * (C != 1)}",
        facts.kind: _classes(facts.classes),
    }


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""


def _percent(share: Any) -> str:
    return f"{100 * share:.2f}%" if isinstance(share, int | float) else ""


def _accuracy(info: Mapping[str, Any]) -> str:
    top5, images = _percent(info.get("test_top5")), info.get("test_images")
    words = [_percent(info.get("test_accuracy")), top5 and f"(among the first five: {top5})"]
    if isinstance(images, int):
        words.append(f"on {images:,} images")
    return " ".join(filter(None, words))


def _latency(latency: Mapping[str, Any]) -> str:
    if not latency:
        return ""
    where = f"{latency['device']}, threads: {latency['threads']}"
    where += f", {latency['processor']}" if latency.get("processor") else ""
    return (
        f"{1e3 * latency['seconds']:.3g} ms, batch {latency['batch']}, median of {latency['runs']}"
        f" ({escape(where)})"
    )


def _int8(figures: Any) -> str:
    """What the int8 version costs and saves; or why there is none."""
    if not isinstance(figures, Mapping):
        return ""
    if "file" not in figures:
        return f"none: {escape(figures.get('skipped', ''))}"
    score, exact = figures["test_accuracy"], figures["float_accuracy"]
    return (
        f"{escape(figures['file'])}: {_figure(score)} on {figures['test_images']:,} test images,"
        f" where the float version has {_figure(exact)}; {figures['latency_ms']:.3g} ms"
    )


def _classes(classes: Sequence[str]) -> str:
    names = ", ".join(map(escape, classes[:MOST_CLASSES]))
    return names + (
        f" and {len(classes) - MOST_CLASSES} more" if len(classes) > MOST_CLASSES else ""
    )


def _input(facts: ImageFacts) -> str:
    C, H, W = facts.shape
    values = "bytes" if facts.pixels == "uint8" else "values as in the data"
    files = ""
    if facts.found.get("use_model"):
        files = f" `{facts.found['use_model']}` beside it answers image files."
    return (
        f"Input `images`: {facts.pixels}, (N, {H}, {W}, {C}), {values}; normalisation is inside."
        f" Output `{facts.output}`: (N, {len(facts.classes)}), in the order of the {facts.kind}"
        f" above. Any number N of images. proxnas is not needed.{files}"
    )


def _use(facts: ImageFacts) -> list[str]:
    axes = f"(N, {facts.shape[1]}, {facts.shape[2]}, {facts.shape[0]})"
    # "(N, H, W, C)"[4:-1] is "H, W, C"
    images = f'images = np.asarray(pictures, "{facts.pixels}").reshape(-1, {axes[4:-1]})  # {axes}'
    blocks = []
    if "onnx" in facts.files:
        # program text: names of files are quoted as Python does
        session = f"session = onnxruntime.InferenceSession({facts.files['onnx']!r})"
        run = f'{facts.output} = session.run(None, {{"images": images}})[0]'
        blocks.append(["import numpy as np, onnxruntime", session, images, run, *_best(facts)])
    if "torch" in facts.files:
        load = f"program = torch.export.load({facts.files['torch']!r}).module()"
        run = f"{facts.output} = program(torch.from_numpy(images))"
        blocks.append(["import numpy as np, torch", load, images, run, *_best(facts)])
    return ["```python\n" + "\n".join(lines) + "\n```" for lines in blocks]


def _best(facts: ImageFacts) -> list[str]:
    """The line that makes classes of logits; other outputs are answers themselves."""
    return ["answers = logits.argmax(1)"] if facts.output == "logits" else []
