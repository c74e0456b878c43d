"""What goes with the exported network: images to check it on, and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proxnas import __version__
from proxnas.common.clock import Clock
from proxnas.common.environment import describe
from proxnas.common.errors import InputError
from proxnas.core.size.complexity import multiply_adds, parameters
from proxnas.core.size.latency import Latency, latency, summary, warm_runs
from proxnas.domains.images.card import ImageFacts, image_card
from proxnas.domains.images.data.images import load
from proxnas.domains.images.data.options import LoadOptions
from proxnas.domains.images.export import onnx_runner
from proxnas.domains.images.model import Model
from proxnas.report.model_card import model_card
from proxnas.report.reading import read_config

IMAGES = 16
"""So many are enough to check an export on."""


def card_text(
    model: Model, files: Mapping[str, Path], found: Mapping[str, Any] | None = None
) -> str:
    """The model card, with the latency measured now, on the device where the network is."""
    processor = {"processor": describe(model.device)["processor"]}
    measured = {"torch": latency(model.network, model.shape)}
    if "onnx" in files:
        measured["onnx"] = onnx_latency(files["onnx"], model)
    facts = ImageFacts(
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
        task=model.target.task,
        output=model.target.output,
        kind=model.target.kind,
    )
    return model_card(image_card(facts))


def onnx_latency(path: Path, model: Any) -> Latency:
    """Of one image, by onnxruntime on the host."""
    C, H, W = model.shape
    x = torch.zeros(1, H, W, C, dtype=getattr(torch, model.pixels))
    run = onnx_runner(path.read_bytes())
    return summary(warm_runs(lambda: run(x), Clock(torch.device("cpu"))), 1, "cpu")


def images_for(model: Model, data: Any, folder: Path | None) -> tuple[Any, str]:
    """(arrays as the model was trained on, what they are): of DATA, which may be such arrays, of
    the run's data, or, if there are none, noise."""
    if data is not None and not isinstance(data, str):
        return data[:IMAGES], f"{len(data[:IMAGES])} images"
    spec = data or (read_config(folder).get("data", "") if folder else "")
    try:
        if isinstance(spec, str) and spec:
            return real_images(model, spec), f"{IMAGES} images of {spec}"
    except InputError:
        if data:  # else it is not the user's doing that the run's data are gone
            raise
    C, H, W = model.shape
    # the same noise each time: what was checked can be checked again
    noise = np.random.default_rng(0).integers(0, 256, (IMAGES, H, W, C))
    if model.pixels == "float32":
        mean, std = np.asarray(model.mean), np.asarray(model.std)
        # 2 standard deviations either way about the mean of each channel
        return (mean + std * (noise / 64 - 2)).astype(np.float32), "noise (no DATA given)"
    return noise.astype(np.uint8), "noise (no DATA given)"


def real_images(model: Model, data: str) -> Any:
    """Some images of DATA, of its test part if it has one, as arrays of the size that the model
    reads."""
    C, H, W = model.shape
    images = load(data, LoadOptions(for_model=model.shape))
    if images.shape != model.shape or str(images.x_test.dtype) != model.pixels:
        found = f"{'x'.join(map(str, images.shape))} {images.x_test.dtype}"
        raise InputError(
            f"{data}: images are {found}, the model reads {C}x{H}x{W} {model.pixels}: give such"
            " images"
        )
    return np.asarray((images.x_test if len(images.y_test) else images.x_train)[:IMAGES])
