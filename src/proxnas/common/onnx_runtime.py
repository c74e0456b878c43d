"""ONNX Runtime, where the extra `onnx` is installed: exporters kept quiet, and sessions."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch

EXTRA = ("onnx", "onnxscript", "onnxruntime")


def onnx_available() -> bool:
    """Whether the extra `onnx` is installed."""
    return all(find_spec(name) is not None for name in EXTRA)


def onnx_session(file: bytes) -> Any:
    """An onnxruntime.InferenceSession on the host, with torch's number of threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def traced_onnx(
    module: torch.nn.Module, args: tuple[Any, ...], inputs: Sequence[str], **more: Any
) -> bytes:
    """A module as an ONNX file by torch's older exporter, which takes 0.1 s where the newer one
    takes 5; `more`: of its arguments."""
    file: Any = io.BytesIO()  # which it takes, whatever its types say
    with quiet():
        # about this exporter, and that shapes are taken for constants, which they are
        warnings.simplefilter("ignore")
        torch.onnx.export(module, args, file, dynamo=False, input_names=list(inputs), **more)
    content: bytes = file.getvalue()
    return content


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
