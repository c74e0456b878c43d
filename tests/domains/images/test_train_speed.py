"""What makes training fast changes nothing: shared ReLUs and paths dropped in place, against the
plain way."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.core.sharing import shared_relu
from proxnas.domains.images import networks
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.parts import DropPath
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.domains.images.training import ImageTraining
from support.places import ROOT

NODES = [
    [["sep_conv_3x3", 0], ["dil_conv_3x3", 0]],
    [["conv_1x1", 0], ["skip_connect", 1], ["sep_conv_3x3", 2]],
    [["max_pool_3x3", 1], ["conv_3x3", 2]],
]
CELL = {"nodes": NODES, "concat": [2, 3, 4]}
GENOTYPE = Genotype.from_json(
    json.dumps({"schema": 1, "kind": "cnn", "cells": {"normal": CELL, "reduce": CELL}})
)


@pytest.mark.usefixtures("double")
def test_shared_relus_change_nothing() -> None:
    network = networks.build_network(
        GENOTYPE, Size(cells=4, channels=2, image_channels=3, classes=3)
    ).train()
    x, weights = torch.randn(3, 3, 12, 12), list(network.parameters())
    expected = network(x)
    with shared_relu():
        found = network(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for a, b in zip(
        *(torch.autograd.grad(y.square().sum(), weights) for y in (found, expected)), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_a_training_step_computes_a_relu_once_a_state(
    monkeypatch: pytest.MonkeyPatch, tiny_images: Images
) -> None:
    config = ImageTrainOptions(cells=1, channels=2, batch_size=4, threads=1, device="cpu")
    training, seen, relu = ImageTraining(config, tiny_images, GENOTYPE), [], nn.functional.relu

    def noted(x: Tensor, inplace: bool = False) -> Tensor:
        seen.append(x)
        return relu(x, inplace)

    monkeypatch.setattr(nn.functional, "relu", noted)
    training.step()
    shared = (
        1 + 3
    )  # the stem's output for both inputs; states 0, 1 (the skip of a reduction cell) and 2
    assert len(seen) == shared + 2  # and the ones within the two separable convolutions


@pytest.mark.usefixtures("double")
def test_paths_dropped_in_place_have_the_right_gradient() -> None:
    drop = DropPath().train()
    drop.probability = 0.5
    x = torch.randn(6, 2, 3, 3, requires_grad=True)
    torch.manual_seed(3)
    norm = nn.BatchNorm2d(2)
    y = drop(norm(x))
    torch.manual_seed(3)
    norm_again = nn.BatchNorm2d(2)
    kept = (torch.rand(6, 1, 1, 1) >= 0.5) * 2.0
    assert 0 < kept.sum() < 12
    expected = norm_again(x) * kept
    torch.testing.assert_close(y, expected)
    a, b = (torch.autograd.grad(out.pow(3).sum(), x)[0] for out in (y, expected))
    torch.testing.assert_close(a, b)


def test_the_benchmark_runs(capsys: Any) -> None:
    path = ROOT / "benchmarks" / "training.py"
    spec = importlib.util.spec_from_file_location("benchmarks_training", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sizes = {
        "cells": 2,
        "channels": 2,
        "batch-size": 4,
        "image-size": 16,
        "rounds": 1,
        "threads": 1,
    }
    figures = module.main([f"--{name}={n}" for name, n in sizes.items()])
    assert figures["ratio"] == figures["proxnas"] / figures["plain"] > 0
    assert json.loads(capsys.readouterr().out) == figures
