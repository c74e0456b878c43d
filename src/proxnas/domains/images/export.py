"""A trained network as a file that needs no proxnas: ONNX, or a program of torch.export.

The file reads images (N, H, W, C) of any number N as they are: bytes, or float32 where the data are
such; normalisation is inside. Before a file is put in its place it is read back and run on the
images given: its answers must be those of the network.
"""

# N images, H height, W width, C channels, K classes

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proxnas import __version__
from proxnas.common.onnx_runtime import onnx_session, quiet, traced_onnx
from proxnas.domains.exporting import TOLERANCE, check_places
from proxnas.domains.images.model import Model
from proxnas.domains.images.targets import CLASSES, Target
from proxnas.runs.folder import write_atomically

INPUT, OUTPUT = "images", "logits"

Run = Callable[[Tensor], Tensor]


class Deployed(nn.Module):
    """A network behind its preprocessing: pixels (N, H, W, C) as they are, with `mean` and `std` of
    each channel in their unit."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        target: Target = CLASSES,
    ) -> None:
        super().__init__()
        self.network, self.target = network, target
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        # (N, H, W, C) -> (N, C, H, W)
        x = (images.permute(0, 3, 1, 2).float() - self.mean) / self.std
        outputs: Tensor = self.network(x.contiguous(memory_format=torch.channels_last))
        return self.target.exported(outputs)


def deployed(model: Model) -> Deployed:
    """The model's network as it is exported: a copy on the host, without what only training
    needs."""
    # the caller's model stays where it is, and whole
    network = copy.deepcopy(model.network).cpu().eval()
    if getattr(network, "auxiliary", None) is not None:
        network.auxiliary = None  # type: ignore[assignment]
    # (x / 255 - mean) / std = (x - 255 mean) / (255 std): the file reads bytes as they are
    unit = 255.0 if model.pixels == "uint8" else 1.0
    mean, std = ([unit * value for value in values] for values in (model.mean, model.std))
    return Deployed(network, mean, std, model.target).eval()


def as_input(images: Any) -> Tensor:
    """Arrays (N, H, W, C), or (N, H, W) of grey images, as the exported file reads them."""
    x = torch.from_numpy(np.array(images))  # a copy: torch wants arrays that can be written to
    return x[..., None] if x.ndim == 3 else x


def export_model(
    model: Model, images: Any, onnx: Path | None = None, program: Path | None = None
) -> dict[Path, float]:
    """Write the files asked for; file -> the largest difference of a logit on the images (arrays as
    trained on)."""
    check_places(onnx, program)
    network, example = deployed(model), as_input(images)
    with torch.no_grad():
        # the normalisation too is held to the model's own
        _check(
            network,
            example,
            model.target.exported(model.network(model.normalised(images))).cpu(),
            "the network made for export",
        )
    metadata = _metadata(model)
    differences = (
        {onnx: export_onnx(network, example, onnx, metadata, model.target.output)} if onnx else {}
    )
    return differences | (
        {program: export_torch(network, example, program, metadata)} if program else {}
    )


def export_onnx(
    network: nn.Module,
    example: Tensor,
    path: Path,
    metadata: Mapping[str, str] | None = None,
    output: str = OUTPUT,
) -> float:
    """Write an ONNX file of a network in evaluation mode; the largest difference that onnxruntime
    showed."""
    answers = _answers(network, example)
    try:
        proto = _traced(network, _several(example), output)
        difference = _check(onnx_runner(_file(proto, metadata)), example, answers, str(path))
    except Exception:  # what it does not know, or takes for a constant
        proto = _captured(network, _several(example), output)
        difference = _check(onnx_runner(_file(proto, metadata)), example, answers, str(path))
    write_atomically(path, _file(proto, metadata))
    return difference


def _traced(network: nn.Module, x: Tensor, output: str) -> Any:
    """By torch's older exporter: the newer one takes 5 s of a fit that may have 30."""
    import onnx

    any_number = {INPUT: {0: "batch"}, output: {0: "batch"}}
    file = traced_onnx(network, (x,), [INPUT], output_names=[output], dynamic_axes=any_number)
    return onnx.load_model_from_string(file)


def _captured(network: nn.Module, x: Tensor, output: str) -> Any:
    """By torch's newer exporter, which knows more."""
    with quiet():
        made = torch.onnx.export(
            network,
            (x,),
            dynamo=True,
            verbose=False,
            dynamic_shapes=_any_number(),
            input_names=[INPUT],
            output_names=[output],
        )
    assert made is not None  # only without dynamo
    return made.model_proto


def _file(proto: Any, metadata: Mapping[str, str] | None) -> bytes:
    """The content of a file that carries these."""
    import onnx

    onnx.helper.set_model_props(proto, dict(metadata or {}))
    content: bytes = proto.SerializeToString()
    return content


def export_torch(
    network: nn.Module, example: Tensor, path: Path, metadata: Mapping[str, str] | None = None
) -> float:
    """Write a torch.export program of a network in evaluation mode; the largest difference once it
    was reloaded."""
    file = io.BytesIO()
    with quiet():
        # the program that is checked is the one that was reloaded from the bytes to be written
        made = torch.export.export(
            _contiguous(network), (_several(example),), dynamic_shapes=_any_number()
        )
        torch.export.save(made, file, extra_files=dict(metadata or {}))
        reloaded = torch.export.load(io.BytesIO(file.getvalue())).module()
    difference = _check(reloaded, example, _answers(network, example), str(path))
    write_atomically(path, file.getvalue())
    return difference


def _contiguous(network: nn.Module) -> nn.Module:
    """A copy with weights in the default format: torch.export warns of others, which it stores in a
    roundabout way."""
    network = copy.deepcopy(network)
    for w in network.parameters():
        w.data = w.data.contiguous()
    return network


def _several(example: Tensor) -> Tensor:
    """At least two images: the exporters take a batch of one for a constant."""
    return example if len(example) > 1 else torch.cat([example, example])


def _any_number() -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("batch")},)


@torch.no_grad()
def _answers(run: Run, x: Tensor) -> Tensor:
    return run(x)


def _check(run: Run, example: Tensor, expected: Tensor, what: str) -> float:
    """The largest difference on all images at once and on the first alone, which must be small."""
    # one image alone too: whether the file really reads any number
    got = torch.cat([_answers(run, example), _answers(run, example[:1])]).cpu()
    expected = torch.cat([expected, expected[:1]])
    difference = (got - expected).abs()
    # also if it is not a number
    if not bool((difference <= TOLERANCE * (1 + expected.abs())).all()):
        raise RuntimeError(
            f"{what}: answers differ from the network's by {difference.max():g}; nothing was"
            " written"
        )
    return float(difference.max())


def onnx_runner(file: bytes) -> Run:
    """The network in an ONNX file."""
    session = onnx_session(file)
    return lambda x: torch.from_numpy(session.run(None, {INPUT: x.numpy()})[0])


def _metadata(model: Model) -> dict[str, str]:
    """What the files carry besides the network."""
    C, H, W = model.shape
    return {
        "proxnas": __version__,
        "classes": json.dumps(model.classes),
        "target": model.target.kind,
        "input": f"{INPUT}: {model.pixels} (N, {H}, {W}, {C}); normalised inside",
        "genotype": model.genotype.to_json(),
    }
