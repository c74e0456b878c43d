"""The files that a trained model is handed on as: the exported network and the model card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from proxnas import __version__
from proxnas.common.clock import Clock
from proxnas.common.environment import describe
from proxnas.common.say import say
from proxnas.core.size.complexity import multiply_adds, parameters
from proxnas.core.size.latency import Latency, latency, summary, warm_runs
from proxnas.domains.exporting import CARD, ONNX, PROGRAM, onnx_available
from proxnas.domains.images.export import export_model, onnx_runner
from proxnas.domains.images.model import Model
from proxnas.report.model_card import Card, model_card
from proxnas.report.reading import read_result
from proxnas.runs.folder import write_atomically

IMAGES = 16
"""So many are enough to check an export on."""


def deliver(
    model: Model,
    images: Any,
    folder: Path,
    found: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = say,
) -> dict[str, Path]:
    """Write model.onnx (model.pt2 without the extra `onnx`) and model_card.md; onnx, torch or card
    -> file.

    `images`: arrays as trained on, to check the export with. `found`: the result of the search, for
    the card.
    """
    if onnx_available():
        files = {"onnx": folder / ONNX}
        export_model(model, images[:IMAGES], onnx=files["onnx"])
    else:
        files = {"torch": folder / PROGRAM}
        export_model(model, images[:IMAGES], program=files["torch"])
        say(f"{PROGRAM} written instead of {ONNX}: pip install 'proxnas[onnx]' to have that")
    write_atomically(folder / CARD, card_text(model, files, found))
    return files | {"card": folder / CARD}


def card_text(
    model: Model, files: Mapping[str, Path], found: Mapping[str, Any] | None = None
) -> str:
    """The model card, with the latency measured now, on the device where the network is."""
    processor = {"processor": describe(model.device)["processor"]}
    measured = {"torch": latency(model.network, model.shape)}
    if "onnx" in files:
        measured["onnx"] = onnx_latency(files["onnx"], model.shape)
    return model_card(
        Card(
            genotype=model.genotype,
            classes=model.classes,
            shape=model.shape,
            pixels=model.pixels,
            params=parameters(model.network),
            flops=multiply_adds(model.network, model.shape),
            info=model.info,
            found=found or {},
            latency={kind: figures.to_json() | processor for kind, figures in measured.items()},
            files={kind: path.name for kind, path in files.items()},
            version=__version__,
        )
    )


def onnx_latency(path: Path, shape: tuple[int, int, int]) -> Latency:
    """Of one image, by onnxruntime on the host."""
    run, x = onnx_runner(path.read_bytes()), torch.rand(1, *shape)
    return summary(warm_runs(lambda: run(x), Clock(torch.device("cpu"))), 1, "cpu")


def found_by(folder: Path) -> dict[str, Any]:
    """How the cell was found that the train run in `folder` trained: its search's result, or the
    `cell` it was given.

    `fit` keeps the search beside the training; `train` may have been given the folder of a search.
    """
    cell = read_result(folder).get("cell")
    places = [folder.parent / "search", *([Path(cell)] if isinstance(cell, str) and cell else [])]
    for place in places:
        if "method" in (result := read_result(place)):
            return result
    return {"cell": cell} if isinstance(cell, str) else {}
