"""What every export needs: places to write to, ONNX Runtime, silence."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from proxnas.common.errors import InputError
from proxnas.common.options import AboutOptions, escape

TOLERANCE = 1e-4  # of a logit, relative to 1 + its size


EXTRA = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class Exported:
    """Files that were written, and how far they are from the model."""

    files: Mapping[str, Path]
    """onnx, torch or card -> file."""
    differences: Mapping[str, float]
    """onnx or torch -> largest difference of an answer from the model's."""
    checked_on: str = ""
    """What the files were held to the model on."""


def onnx_available() -> bool:
    """Whether the extra `onnx` is installed."""
    return all(find_spec(name) is not None for name in EXTRA)


def check_places(onnx: Path | None, program: Path | None) -> None:
    """An InputError unless the files can be written."""
    if onnx and not onnx_available():
        raise AboutOptions(
            f"{escape(onnx)}: ONNX needs more packages: pip install 'proxnas[onnx]', or use"
            " {torch} FILE"
        )
    for path in (onnx, program):
        if path and (path.is_dir() or not path.parent.is_dir()):
            raise InputError(
                f"{path}: not a file in an existing folder: make the folder or give another name"
            )


def onnx_session(file: bytes) -> Any:
    """An onnxruntime.InferenceSession on the host, with torch's number of threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


CHATTY = (
    "torch.onnx._internal.exporter._registration",  # that torchvision is not installed
    "onnxscript.optimizer._constant_folding",  # what it leaves as it is
)


@contextmanager
def quiet() -> Iterator[None]:
    """What the exporters say that a user can do nothing about is left out; all else is let
    through."""
    levels = {name: logging.getLogger(name).level for name in CHATTY}
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # torch's own exporter, about its own code
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
            # inputs that share their number of rows share its name
            warnings.filterwarnings(
                "ignore", r".*The axis name: batch will not be used", UserWarning
            )
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


ONNX, PROGRAM, CARD = "model.onnx", "model.pt2", "model_card.md"
