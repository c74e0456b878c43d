"""The files that a fit on images leaves for other programs: the exported network, its int8 version
with what that costs, a program that uses them, the model card."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.common.errors import in_one_line
from proxnas.common.files import write_atomically
from proxnas.domains.fitting import Say, names_of

if TYPE_CHECKING:
    from proxnas.common.seeds import Array
    from proxnas.domains.images.data.images import Images
    from proxnas.domains.trained import TrainedModel

INT8, PROGRAM = "model_int8.onnx", "use_model.py"
MOST_TESTED, TEST_SECONDS = 2000, 1.0
"""Test images that both versions are held to each other on, or as many as there is time for."""
LOSS = 0.01
"""Accuracy that the int8 version may lose in silence."""
FEWEST = 2.5
"""Images, too: one or two of a small test part are chance."""


def write_files(
    model: TrainedModel, folder: Path, images: Images, found: Mapping[str, Any], say: Say
) -> tuple[dict[str, Any], list[str]]:
    """Writes them all; what result.json says of them, and warnings. `found`: of the search."""
    import numpy as np

    from proxnas.domains.images.deliver import IMAGES, onnx_latency

    made: dict[str, Any] = {"int8": {"skipped": "needs the extra onnx"}, "use_model": None}

    # called when the network is written and the card is not: the card tells of these files too
    def more(written: Mapping[str, Path]) -> Mapping[str, Any]:
        if "onnx" in written:
            made["int8"] = write_int8(model, written["onnx"], images)
            made["latency_ms"] = 1000 * onnx_latency(written["onnx"], model.model).seconds
            made["use_model"] = write_program(model, folder)
        return {name: made[name] for name in ("int8", "use_model")}

    checked = np.asarray(images.x_test[:IMAGES])
    made |= names_of(model.deliver(folder, checked, found, say, more))
    return made, warnings_about(made["int8"])


def write_int8(model: TrainedModel, onnx: Path, images: Images) -> dict[str, Any]:
    """Makes the int8 version, and measures it beside the float one; or why there is none."""
    from proxnas.domains.images.deliver import onnx_latency
    from proxnas.domains.images.quantise import CALIBRATED, quantise, some_of

    target = onnx.with_name(INT8)
    start = time.monotonic()
    try:
        quantise(onnx, target, some_of(images.x_train, CALIBRATED))
        figures = compare_files(onnx, target, images)
        figures["latency_ms"] = 1000 * onnx_latency(target, model.model).seconds
    except Exception as error:  # the network that was trained for so long is there without it
        # a half-made file would be taken for a good one
        target.unlink(missing_ok=True)
        return {"skipped": in_one_line(error)}
    figures["bytes"] = target.stat().st_size
    return {"file": target.name, **figures, "seconds": time.monotonic() - start}


def compare_files(onnx: Path, int8: Path, images: Images) -> dict[str, Any]:
    """The accuracy, or what there is in its place, of both versions on the same test images."""
    import numpy as np

    from proxnas.common.onnx_runtime import onnx_session
    from proxnas.domains.images.quantise import answers, some_of

    count = min(MOST_TESTED, len(images.y_test))
    rows = some_of(np.arange(len(images.y_test)), count)
    np.random.RandomState(0).shuffle(rows)  # of all classes, wherever the time ends
    sessions = [onnx_session(path.read_bytes()) for path in (onnx, int8)]
    begin, done = time.monotonic(), 0
    found: list[list[Array]] = [[], []]
    # at least one piece, whatever the time: both versions answer the same images
    while done < count and (not done or time.monotonic() - begin < TEST_SECONDS):
        part = rows[done : done + 250]
        x = np.asarray(images.x_test[part])
        for session, said in zip(sessions, found, strict=True):
            said.append(answers(session, x))
        done += len(part)
    y = images.y_test[rows[:done]]
    in_float, in_int8 = (images.target.score(np.concatenate(said), y) for said in found)
    return {"test_accuracy": in_int8, "float_accuracy": in_float, "test_images": done}


def warnings_about(int8: Mapping[str, Any]) -> list[str]:
    """A loud line if the int8 version is no substitute."""
    if "file" not in int8:
        return []
    lost = int8["float_accuracy"] - int8["test_accuracy"]
    # said only where both hold: more than a point, and more images than chance makes
    if lost <= LOSS or lost * int8["test_images"] < FEWEST:
        return []
    return [
        f"{INT8} is {lost:.4f} worse than model.onnx"
        f" ({int8['test_accuracy']:.4f} against {int8['float_accuracy']:.4f} on"
        f" {int8['test_images']} test images): use model.onnx"
    ]


def write_program(model: TrainedModel, folder: Path) -> str | None:
    """A program of a few lines that answers image files by model.onnx; None where files do not tell
    what the model reads."""
    if getattr(model.model, "pixels", "") != "uint8":
        return None
    text = resources("proxnas.domains.images").joinpath("use_model.txt").read_text("utf-8")
    write_atomically(folder / PROGRAM, text)
    return PROGRAM
