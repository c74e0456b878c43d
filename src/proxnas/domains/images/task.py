"""Searching image classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.common.errors import OptionError
from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Source
from proxnas.core.size import costs
from proxnas.core.size.complexity import multiply_adds
from proxnas.core.size.latency_file import find_table
from proxnas.core.size.latency_table import About, LatencyTable
from proxnas.core.size.stopwatch import ROUNDS, Stopwatch, choose
from proxnas.core.size.wiring import nodes_of
from proxnas.core.space import NoSums, NoSumsOfSeconds, Space
from proxnas.core.supernet import Supernet
from proxnas.domains.images.data.augment import Augment
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.data.stream import ImageBatches, Stream
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.parts import search_parts
from proxnas.domains.images.spaces import space_traits
from proxnas.domains.images.targets import require_classes
from proxnas.runs.folder import Run
from proxnas.runs.job import PRECISIONS
from proxnas.runs.messages import total
from proxnas.runs.metrics import Validation


class ImageSearch(Protocol):
    """What a search of image classifiers is told, as far as data and networks go."""

    cells: int
    channels: int
    final_cells: int
    final_channels: int
    max_skip: int
    cutout: int
    channel_part: int
    latency_by: str
    batch_size: int
    precision: str
    seed: int


class ImageTask:
    """Half of the training images for w, half for A."""

    def __init__(
        self, config: ImageSearch, images: Images, space: Space[Size], device: torch.device
    ) -> None:
        require_classes(images.target, images.name)
        self.config, self.images, self.space, self.device = config, images, space, device
        # only the search network reads a part of the channels: what is counted and trained reads
        # all
        searched = with_part(space, config.channel_part)
        module = channels_last(
            searched.search_network(self._size(config.cells, config.channels)).to(device)
        )
        # negative: no limit
        limit = None if config.max_skip < 0 else config.max_skip
        groups = {name: replace(group, max_skip=limit) for name, group in space.groups.items()}
        self.net = Supernet(module, groups, precision=PRECISIONS[config.precision])
        for_w, for_A = search_parts(images, config.seed)
        augment = Augment(cutout=config.cutout)  # both halves alike, as in the public codes
        self.part = ImageBatches(images, for_A, augment, device=device)
        part = ImageBatches(images, for_w, augment, device=device)
        self.train = Stream(part, config.batch_size, config.seed, "w")
        self.valid = Stream(self.part, config.batch_size, config.seed, "A")

    def _size(self, cells: int, channels: int) -> Size:
        return Size(cells, channels, self.images.shape[0], self.images.num_classes)

    @torch.no_grad()
    def evaluate(self, batches: int | None = None) -> Validation:
        """The network in use on the half for A, normalised by the batch."""
        # (loss, right answers), summed over images
        sums, images = torch.zeros(2, device=self.device), 0
        for batch in self.part.evaluation_batches(max(self.config.batch_size, 64), batches):
            loss, right = self.net.objective.measure(*self.net.loss(batch), batch)
            sums += torch.stack([loss * len(batch.y), right.to(sums.dtype)])
            images += len(batch.y)
        # over all processes, each of which has its share of the batches
        loss, right, count = total(torch.cat([sums, sums.new_tensor([images])]))
        return Validation(*(torch.stack([loss, right]) / count).tolist())

    def final_network(self, genotype: Genotype) -> nn.Module:
        # shapes are enough to count: no memory, and no random numbers drawn for weights
        with torch.device("meta"):
            return self.space.network(
                genotype, self._size(self.config.final_cells, self.config.final_channels)
            )

    def bare_network(self, genotype: Genotype) -> nn.Module:
        size = self._size(self.config.cells, self.config.channels)
        return channels_last(self.space.network(genotype, size, searched=True).to(self.device))

    def loss(self, network: nn.Module, batch: Batch, of_weights: bool = True) -> Tensor:
        # without those of weights the gradient of the input makes the backward pass run through all
        network.requires_grad_(of_weights)
        return nn.functional.cross_entropy(network(batch.x.requires_grad_(not of_weights)), batch.y)

    def multiply_adds(self, network: nn.Module) -> int:
        return multiply_adds(network, self.images.shape)

    def score(self, measured: Validation) -> float:
        return measured.figure

    @property
    def about(self) -> About:
        """The final networks of this search."""
        c, images = self.config, self.images
        sizes = (c.final_cells, c.final_channels)
        return About(self.space.name, images.shape, images.num_classes, *sizes)

    @cached_property
    def table(self) -> LatencyTable | None:
        """The table of latencies that is asked for, or kept; None: everything is measured."""
        return find_table(self.config.latency_by, self.about, self.space.groups, self.device)

    @cached_property
    def watch(self) -> Stopwatch:
        """What times networks."""
        by = self.table.by if self.table else self.config.latency_by
        return Stopwatch(choose(by, self.device))

    def seconds(self, network: nn.Module) -> float:
        return self.seconds_of([network])[0]

    def seconds_of(self, networks: Sequence[nn.Module]) -> list[float]:
        """Of each of them for one image, measured in turn."""
        with torch.device("meta"):
            one = Source.of((torch.empty(1, *self.images.shape),), {})
        found: list[float] = []
        for _ in range(ROUNDS):
            # round by round through all networks, so that a slow moment hits everybody alike
            found = [self.watch.seconds(channels_last(network), one) for network in networks]
        return found

    def total_seconds(self, A_bar: Matrices) -> float:
        if self.table:
            return self.table.seconds(A_bar)
        return self.seconds(self.final_network(self.space.genotype(A_bar)))

    def entries(self, of: str) -> Matrices:
        if of == "latency":
            return self.table.entries if self.table else self.operations.total
        return costs.entries(*self._final_choices(), of, self.watch.added)

    @cached_property
    def operations(self) -> costs.Sums:
        """Seconds of all candidates in the final network, for one image."""
        if any(group.wired for group in self.space.groups.values()):
            raise NoSumsOfSeconds(self.space.name)
        if self.table:
            return self.table.operations
        net, x = self._final_choices()
        met = costs.places(net, x)
        # the watch keeps the best of all rounds, so the last has it
        return [costs.sums(net, met, self.watch.added) for _ in range(ROUNDS)][-1]

    def _final_choices(self) -> tuple[Supernet, Tensor]:
        """The final network with all candidates, without memory behind it, and an image for it."""
        with torch.device("meta"):
            module = self.space.choice_network(
                self._size(self.config.final_cells, self.config.final_channels)
            )
            if module is None:
                raise NoSums(self.space.name)
            x = torch.empty(1, *self.images.shape)
        return Supernet(module.eval(), nodes_of(self.net.groups)), x

    def candidate_costs(self, of: str) -> dict[str, Tensor]:
        if of == "latency":
            return costs.means(self.operations)
        # two images: the statistics of one would be undefined where it is a single pixel
        x = torch.zeros(2, *self.images.shape, device=self.device)
        return costs.candidate_costs(self.net, x, of, self.watch.added)

    def figures(self, part: str, measured: Validation) -> dict[str, float]:
        return {f"{part}_loss": measured.loss, f"{part}_accuracy": measured.figure}

    def keep(self, run: Run) -> None:
        """Nothing: class names are found in the data."""

    def describe(self) -> dict[str, Any]:
        c = self.config
        return {
            "images": list(self.images.shape),
            "classes": self.images.num_classes,
            "cells": c.cells,
            "channels": c.channels,
            "final_cells": c.final_cells,
            "final_channels": c.final_channels,
        }


def with_part(space: Space[Size], part: int) -> Space[Size]:
    """The space with search networks whose candidates read a part of the channels."""
    if part == 1:
        return space
    if not space_traits(space.name).parted or not is_dataclass(space):
        raise OptionError(
            "channel_part", part, f"is not for {{space}} {space.name}: leave it out, or give 1"
        )
    parted: Space[Size] = replace(space, part=part)
    return parted
