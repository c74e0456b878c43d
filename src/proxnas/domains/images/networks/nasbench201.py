"""The network of NAS-Bench-201: three stages of equal cells at C, 2C, 4C channels, residual blocks
between them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError
from proxnas.domains.images.networks.cnn import Size, outputs_of, present, sum_of
from proxnas.domains.images.networks.parts import DropPath, conv_norm
from proxnas.domains.images.operations import (
    NASBENCH201,
    Norm,
    final_norm,
    relu_conv_norm,
    search_norm,
)

NODES = 4
EDGES = tuple((i, j) for j in range(1, NODES) for i in range(j))
"""(source, target) in the order of a cell string."""

CellBuilder = Callable[[int], nn.Module]
"""Makes a cell of C channels (called with one state)."""


class ResidualBlock(nn.Module):
    """Halves the image: two 3x3 convolutions beside average pooling and a 1x1 convolution."""

    def __init__(self, C_in: int, C_out: int, norm: Norm) -> None:
        super().__init__()
        self.first = relu_conv_norm(C_in, C_out, 3, 2, norm)
        self.second = relu_conv_norm(C_out, C_out, 3, 1, norm)
        # ceil_mode: an odd image side is rounded up, as by the convolutions
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(2, stride=2, ceil_mode=True), nn.Conv2d(C_in, C_out, 1, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.shortcut(x) + self.second(self.first(x))
        return y


class Stages(nn.Module):
    """Stem, three stages of `cells` cells each, normalisation, pooling, classifier."""

    def __init__(self, size: Size, build_cell: CellBuilder, norm: Norm) -> None:
        super().__init__()
        if size.stem != "cifar":
            raise InputError(
                f"a NAS-Bench-201 network has the stem cifar, not {size.stem}: train it by that"
                " protocol"
            )
        C = size.channels
        self.stem = nn.Sequential(*conv_norm(size.image_channels, C, 1, norm))
        self.body = nn.Sequential()
        for stage in range(3):
            if stage:
                self.body.append(ResidualBlock(C, 2 * C, norm))
                C *= 2
            self.body.extend(build_cell(C) for _ in range(size.cells))
        self.head = nn.Sequential(norm(C), nn.ReLU())
        self.classifier = nn.Linear(C, size.classes)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.head(self.body(self.stem(x)))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


class DiscreteCell(nn.Module):
    """A NAS-Bench-201 cell: edges that are `none` are left out, a node without any is zero."""

    def __init__(self, genotype: Genotype, C: int, norm: Norm) -> None:
        super().__init__()
        nodes = [present(node) for node in genotype.cells["cell"].nodes]
        self.edges = [[(edge.input, edge.value) for edge in node] for node in nodes]
        self.operations = nn.ModuleList(
            nn.ModuleList(NASBENCH201[edge.op](C, 1, norm) for edge in node) for node in nodes
        )
        self.drop_path = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        for edges, operations in zip(self.edges, self.operations, strict=True):
            outputs = outputs_of(states, edges, operations, self.drop_path)
            states.append(sum_of(outputs) if outputs else torch.zeros_like(x))
        return states[-1]


def nasbench201_network(genotype: Genotype, size: Size, searched: bool = False) -> Stages:
    """The discrete network of a NAS-Bench-201 genotype; size.cells is the number of cells a
    stage."""
    norm = search_norm if searched else final_norm
    return Stages(size, lambda C: DiscreteCell(genotype, C, norm), norm)
