"""A network of bytes: an ONNX file whose convolutions run in int8, made of the float one.

Weights are quantised a channel each, activations by the range that they have on training images.
Weights take 7 of the 8 bits: on processors without VNNI the sum of two products of bytes saturates
at 16 bits otherwise, which cost more accuracy than all the rest (docs/export.md).
"""

# N images, H height, W width, C channels

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from proxnas.common.files import write_atomically
from proxnas.common.onnx_runtime import onnx_session
from proxnas.common.seeds import Array, stable_seed
from proxnas.domains.images.data.pixels import Pixels
from proxnas.domains.images.export import INPUT

CALIBRATED = 256
"""Training images that ranges are taken from."""
BATCH = 32
DIFFERENT = 0.1
"""How far answers may move, as a share of their spread; else layers are left in float."""


def some_of(x: Pixels, count: int) -> Array:
    """So many of the images, the same every time, of all classes where these lie in order."""
    random = np.random.RandomState(stable_seed(0, "calibration") % 2**32)
    return np.asarray(x[np.sort(random.permutation(len(x))[:count])])


def quantise(source: Path, target: Path, images: Array) -> None:
    """Writes the int8 version of an ONNX file, calibrated on images (N, H, W, C) as the network was
    trained on. Where its answers are too far off the first and the last layer stay in float, and of
    the two the better is kept."""
    expected = answers(onnx_session(source.read_bytes()), images)
    ends, tail = _ends(source)
    tried: list[tuple[float, bytes]] = []
    # first all layers in int8, then all but the first and the last
    for kept in (tail, ends + tail):
        file = _quantised(source, images, kept)
        error = answers(onnx_session(file), images) - expected
        # root mean square error of the answers, as a share of their standard deviation
        different = float(np.sqrt(np.mean(error**2)) / max(expected.std(), 1e-12))
        tried.append((different, file))
        if different <= DIFFERENT:
            break
    write_atomically(target, min(tried, key=lambda pair: pair[0])[1])


def answers(session: Any, images: Array) -> Array:
    """What the network of an ONNX session says of images, in batches."""
    parts = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    return np.concatenate([session.run(None, {INPUT: part})[0] for part in parts])


def _ends(source: Path) -> tuple[list[str], list[str]]:
    """The first and the last layer with weights; and what comes after the last, which brings
    numbers to their units: bytes of one scale for all of them would be too coarse."""
    import onnx

    nodes = list(onnx.load(source).graph.node)
    layers = [k for k, node in enumerate(nodes) if node.op_type in ("Conv", "Gemm", "MatMul")]
    first, last = layers[0], layers[-1]
    return [nodes[first].name, nodes[last].name], [node.name for node in nodes[last + 1 :]]


def _quantised(source: Path, images: Array, kept: Sequence[str]) -> bytes:
    """The int8 version, with the layers `kept` in float."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    with tempfile.TemporaryDirectory() as folder, _quiet():
        place = Path(folder) / "int8.onnx"
        # QDQ: pairs of quantise and dequantise nodes, which runtimes fuse into operations on bytes
        quantize_static(
            str(source),
            str(place),
            _Batches(images),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            nodes_to_exclude=list(kept),
        )
        made, original = onnx.load(place), onnx.load(source)
    # quantisation drops what the file tells of classes and input: it is put back
    del made.metadata_props[:]
    made.metadata_props.extend(original.metadata_props)
    content: bytes = made.SerializeToString()
    return content


class _Batches:
    """Images for onnxruntime's calibration."""

    def __init__(self, images: Array) -> None:
        self._parts = iter(images[i : i + BATCH] for i in range(0, len(images), BATCH))

    def get_next(self) -> dict[str, Any] | None:
        part = next(self._parts, None)
        return None if part is None else {INPUT: part}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the advice to preprocess, which the exporter has done."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
