"""Stacks of convolutional cells: the skeleton that search and final networks share, and cells from
a Genotype.

The network of DARTS, which the paper uses: a stem, L cells, of which those at L/3 and 2L/3 halve
the image and double the channels, global average pooling and a linear classifier. Cell k reads the
outputs of cells k-2 and k-1. Stems are those for CIFAR (32 x 32 pixels or fewer), ImageNet (224 x
224) and Tiny ImageNet (64 x 64).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.common.errors import unknown
from proxnas.domains.images.networks.parts import STEMS, AuxiliaryHead, DropPath
from proxnas.domains.images.operations import (
    FINAL,
    SEARCHED,
    FactorizedReduce,
    Norm,
    Zero,
    relu_conv_norm,
)


@dataclass(frozen=True)
class Size:
    """How large a stack of cells is, what it reads and tells apart, and what it has besides
    cells."""

    cells: int
    channels: int
    image_channels: int
    classes: int
    stem: str = "cifar"
    auxiliary: bool = False
    mirror: bool = False
    """Answers are means over an image and its mirror image (in chains of residual stages)."""

    def __post_init__(self) -> None:
        if self.stem not in STEMS:
            raise unknown("stem", str(self.stem), STEMS)


@dataclass(frozen=True)
class CellPlace:
    """Where a cell stands: the channels of its two inputs and its own, and whether it or the one
    before halves."""

    C_before_last: int
    C_last: int
    C: int
    reduction: bool
    reduction_last: bool


CellBuilder = Callable[[CellPlace], tuple[nn.Module, int]]
"""Makes a cell (called with two states) and says how many channels it puts out."""


class Stack(nn.Module):
    """Stem, cells, pooling, classifier; in training perhaps an auxiliary classifier after two
    thirds of the cells."""

    def __init__(self, size: Size, build_cell: CellBuilder, norm: Norm) -> None:
        super().__init__()
        self.stem = STEMS[size.stem](size.image_channels, size.channels, norm)
        self.cells = nn.ModuleList()
        self.auxiliary: AuxiliaryHead | None = None
        self.auxiliary_place = 2 * size.cells // 3
        # what the first cell reads: both outputs of the stem
        C_before_last, C_last, reduction_last = self.stem.C_out, self.stem.C_out, self.stem.halves
        for k, (C, reduction) in enumerate(widths(size.cells, size.channels)):
            place = CellPlace(C_before_last, C_last, C, reduction, reduction_last)
            cell, C_out = build_cell(place)
            self.cells.append(cell)
            C_before_last, C_last, reduction_last = C_last, C_out, reduction
            if size.auxiliary and k == self.auxiliary_place:
                deep = size.stem != "cifar"
                self.auxiliary = AuxiliaryHead(
                    C_last, size.classes, stride=2 if deep else 3, last_norm=not deep
                )
        self.classifier = nn.Linear(C_last, size.classes)

    def forward(self, x: Tensor) -> Tensor:
        return self._run(x)[0]

    def forward_auxiliary(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """(logits, logits of the auxiliary classifier, or None without one)."""
        logits, two_thirds = self._run(x)
        return logits, None if self.auxiliary is None else self.auxiliary(two_thirds)

    def _run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(logits, the map that the auxiliary classifier reads)."""
        before_last, last = self.stem(x)
        two_thirds = last
        for k, cell in enumerate(self.cells):
            before_last, last = last, cell(before_last, last)
            # the output of cell 2 L / 3, counted from 0
            two_thirds = last if k == self.auxiliary_place else two_thirds
        return self.classifier(last.mean((2, 3))), two_thirds


def forward_auxiliary(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(logits, logits of the auxiliary classifier); None for networks without one, whatever their
    Size asks for."""
    return network.forward_auxiliary(x) if isinstance(network, Stack) else (network(x), None)


def widths(cells: int, channels: int) -> Iterator[tuple[int, bool]]:
    """(channels, reduction?) of each cell."""
    for k in range(cells):
        # of one cell both places are the same, and it halves once
        reduction = k in (cells // 3, 2 * cells // 3)
        channels *= 2 if reduction else 1
        yield channels, reduction


class Preprocess(nn.Module):
    """Brings the two inputs of a cell to its channels and to one image size."""

    def __init__(self, place: CellPlace, norm: Norm) -> None:
        super().__init__()
        if place.reduction_last:  # the state before last is twice as large
            self.before_last: nn.Module = FactorizedReduce(place.C_before_last, place.C, norm)
        else:
            self.before_last = relu_conv_norm(place.C_before_last, place.C, 1, 1, norm)
        self.last = relu_conv_norm(place.C_last, place.C, 1, 1, norm)

    def forward(self, before_last: Tensor, last: Tensor) -> list[Tensor]:
        return [self.before_last(before_last), self.last(last)]


class DiscreteCell(nn.Module):
    """A cell of a Genotype: node = sum of its operations' outputs, output = its concatenated
    nodes."""

    def __init__(self, cell: Cell, place: CellPlace, searched: bool) -> None:
        super().__init__()
        build, norm = SEARCHED if searched else FINAL
        self.preprocess = Preprocess(place, norm)
        # a node without any is zero: one `none` makes it
        nodes = [present(node) or node[:1] for node in cell.nodes]
        self.edges = [[(edge.input, edge.value) for edge in node] for node in nodes]
        self.concat = list(cell.concat)
        self.operations = nn.ModuleList()
        for node in nodes:
            # the inputs of a reduction cell are halved
            strides = [2 if place.reduction and edge.input < 2 else 1 for edge in node]
            pairs = zip(node, strides, strict=True)
            self.operations.append(nn.ModuleList(build(e.op, place.C, s) for e, s in pairs))
        self.drop_path = DropPath()
        # an input that is part of the output of a reduction cell is halved too, as its inventors do
        whole = [i for i in cell.concat if place.reduction and i < 2]
        self.halved = nn.ModuleDict(
            {str(i): FactorizedReduce(place.C, place.C, norm) for i in whole}
        )

    def forward(self, before_last: Tensor, last: Tensor) -> Tensor:
        states: list[Tensor] = self.preprocess(before_last, last)
        for edges, operations in zip(self.edges, self.operations, strict=True):
            states.append(sum_of(outputs_of(states, edges, operations, self.drop_path)))
        for i, reduce in self.halved.items():
            states[int(i)] = reduce(states[int(i)])
        return torch.cat([states[i] for i in self.concat], dim=1)


def present(node: Sequence[Edge]) -> list[Edge]:
    """The edges of a node that are not `none`."""
    return [edge for edge in node if edge.op != "none"]


def outputs_of(
    states: list[Tensor],
    edges: list[tuple[int, float]],
    operations: nn.Module,
    drop_path: nn.Module,
) -> list[Tensor]:
    """The outputs of a node's operations, times their factors (1 unless the search kept a_k), some
    paths dropped."""
    outputs = []
    for (i, value), operation in zip(edges, operations.children(), strict=True):
        y = operation(states[i])
        y = y if isinstance(operation, nn.Identity | Zero) else drop_path(y)
        outputs.append(y if value == 1 else y * value)
    return outputs


def sum_of(tensors: list[Tensor]) -> Tensor:
    """The sum, started by the first tensor rather than by a zero."""
    total = tensors[0]
    for x in tensors[1:]:
        total = total + x
    return total


def channels_last(module: nn.Module) -> nn.Module:
    """The module with its weights in channels_last: twice as fast on CPUs, and what tensor cores
    want."""
    for w in module.parameters():
        if w.ndim == 4:
            w.data = w.data.contiguous(memory_format=torch.channels_last)
    return module


def cell_network(genotype: Genotype, size: Size, searched: bool = False) -> Stack:
    """The discrete network of a CNN genotype; `searched`: normalised as in a search network."""

    def build(place: CellPlace) -> tuple[nn.Module, int]:
        cell = genotype.cells["reduce" if place.reduction else "normal"]
        return DiscreteCell(cell, place, searched), place.C * len(cell.concat)

    return Stack(size, build, (SEARCHED if searched else FINAL).norm)
