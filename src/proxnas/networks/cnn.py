"""Stacks of convolutional cells: the skeleton that search and final networks share, and cells from a Genotype.

The network of DARTS, which the paper uses: a stem, L cells, of which those at L/3 and 2L/3 halve the image and double
the channels, global average pooling and a linear classifier. Cell k reads the outputs of cells k-2 and k-1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proxnas.genotype import Cell, Genotype
from proxnas.ops import (
    FactorizedReduce,
    Norm,
    final_norm,
    final_operation,
    relu_conv_norm,
    search_norm,
    search_operation,
)

STEM_MULTIPLIER = 3


@dataclass(frozen=True)
class Size:
    """How large a stack of cells is, and what it reads and tells apart."""

    cells: int
    channels: int
    image_channels: int
    classes: int


@dataclass(frozen=True)
class CellPlace:
    """Where a cell stands: the channels of its two inputs and its own, and whether it or the one before halves."""

    C_before_last: int
    C_last: int
    C: int
    reduction: bool
    reduction_last: bool


CellBuilder = Callable[[CellPlace], tuple[nn.Module, int]]
"""Makes a cell (called with two states) and says how many channels it puts out."""


class Stack(nn.Module):
    """Stem, cells, pooling, classifier."""

    def __init__(self, size: Size, build_cell: CellBuilder, norm: Norm) -> None:
        super().__init__()
        C_stem = STEM_MULTIPLIER * size.channels
        self.stem = nn.Sequential(nn.Conv2d(size.image_channels, C_stem, 3, padding=1, bias=False), norm(C_stem))
        self.cells = nn.ModuleList()
        C_before_last, C_last, reduction_last = C_stem, C_stem, False
        for C, reduction in widths(size.cells, size.channels):
            place = CellPlace(C_before_last, C_last, C, reduction, reduction_last)
            cell, C_out = build_cell(place)
            self.cells.append(cell)
            C_before_last, C_last, reduction_last = C_last, C_out, reduction
        self.classifier = nn.Linear(C_last, size.classes)

    def forward(self, x: Tensor) -> Tensor:
        before_last = last = self.stem(x)
        for cell in self.cells:
            before_last, last = last, cell(before_last, last)
        logits: Tensor = self.classifier(last.mean((2, 3)))
        return logits


def widths(cells: int, channels: int) -> Iterator[tuple[int, bool]]:
    """(channels, reduction?) of each cell."""
    for k in range(cells):
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
    """A cell of a Genotype: node = sum of its operations' outputs, output = its concatenated nodes."""

    def __init__(self, cell: Cell, place: CellPlace, searched: bool) -> None:
        super().__init__()
        self.preprocess = Preprocess(place, search_norm if searched else final_norm)
        build = search_operation if searched else final_operation
        self.edges = [[(edge.input, edge.value) for edge in node] for node in cell.nodes]
        self.concat = list(cell.concat)
        self.operations = nn.ModuleList(
            nn.ModuleList(build(edge.op, place.C, 2 if place.reduction and edge.input < 2 else 1) for edge in node)
            for node in cell.nodes
        )

    def forward(self, before_last: Tensor, last: Tensor) -> Tensor:
        states: list[Tensor] = self.preprocess(before_last, last)
        for edges, operations in zip(self.edges, self.operations, strict=True):
            states.append(sum_of(outputs_of(states, edges, operations)))
        return torch.cat([states[i] for i in self.concat], dim=1)


def outputs_of(states: list[Tensor], edges: list[tuple[int, float]], operations: nn.Module) -> list[Tensor]:
    """The outputs of a node's operations, times their factors (1 unless the search kept a_k)."""
    outputs = [op(states[i]) for (i, _), op in zip(edges, operations.children(), strict=True)]
    return [y if value == 1 else y * value for y, (_, value) in zip(outputs, edges, strict=True)]


def sum_of(tensors: list[Tensor]) -> Tensor:
    """The sum, started by the first tensor rather than by a zero."""
    total = tensors[0]
    for x in tensors[1:]:
        total = total + x
    return total


def channels_last(module: nn.Module) -> nn.Module:
    """The module with its weights in channels_last: twice as fast on CPUs, and what tensor cores want."""
    for w in module.parameters():
        if w.ndim == 4:
            w.data = w.data.contiguous(memory_format=torch.channels_last)
    return module


def cell_network(genotype: Genotype, size: Size, searched: bool = False) -> nn.Module:
    """The discrete network of a CNN genotype; `searched`: normalised as in a search network."""

    def build(place: CellPlace) -> tuple[nn.Module, int]:
        cell = genotype.cells["reduce" if place.reduction else "normal"]
        return DiscreteCell(cell, place, searched), place.C * len(cell.concat)

    return Stack(size, build, search_norm if searched else final_norm)
