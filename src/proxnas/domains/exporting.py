"""What every export needs: places to write to, what was written, how exact it must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proxnas.common.errors import AboutOptions, InputError, escape
from proxnas.common.onnx_runtime import onnx_available

TOLERANCE = 1e-4  # of a logit, relative to 1 + its size


@dataclass(frozen=True)
class Exported:
    """Files that were written, and how far they are from the model."""

    files: Mapping[str, Path]
    """onnx, torch or card -> file."""
    differences: Mapping[str, float]
    """onnx or torch -> largest difference of an answer from the model's."""
    checked_on: str = ""
    """What the files were held to the model on."""


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


ONNX, PROGRAM, CARD = "model.onnx", "model.pt2", "model_card.md"
