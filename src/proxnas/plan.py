"""What a search would build, before it is run: sizes, time and memory, measured on a few steps."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from proxnas.complexity import multiply_adds, parameters
from proxnas.config import SearchConfig
from proxnas.data.images import load
from proxnas.memory import peak_memory
from proxnas.search import Search
from proxnas.selection import one_hot
from proxnas.supernet import Supernet
from proxnas.types import Matrices

STEPS = 3


def plan(config: SearchConfig) -> dict[str, Any]:
    """The figures of `--dry-run`."""
    search = Search(config, load(config.data, config.load_options()))
    smallest, largest = (search.final_network(search.space.genotype(A)) for A in extremes(search.net))
    seconds, peak = _measure(search)
    return {
        "space": config.space,
        "method": config.method,
        "images": list(search.images.shape),
        "classes": search.images.num_classes,
        "cells": config.cells,
        "channels": config.channels,
        "search_network_params": parameters(search.net.module),
        "final_cells": config.final_cells,
        "final_channels": config.final_channels,
        "params_smallest": parameters(smallest),
        "params_largest": parameters(largest),
        "flops_smallest": multiply_adds(smallest, search.images.shape),
        "flops_largest": multiply_adds(largest, search.images.shape),
        "epochs": config.epochs,
        "steps_per_epoch": len(search.train),
        "seconds_per_epoch": seconds,
        "peak_bytes": peak,
    }


def extremes(net: Supernet) -> tuple[Matrices, Matrices]:
    """The architectures with the fewest and the most parameters: row by row, then the node's inputs."""
    costs = {name: _row_costs(net, name) for name in net.groups}
    smallest = {name: one_hot(-cost, net.groups[name]) for name, cost in costs.items()}
    largest = {name: one_hot(cost, net.groups[name]) for name, cost in costs.items()}
    return smallest, largest


def _row_costs(net: Supernet, name: str) -> Tensor:
    """(E, K): parameters of each candidate, summed over the places that share its row."""
    costs = torch.zeros(net.groups[name].shape, dtype=torch.float64)
    for choice in net.choices.values():
        if choice.row and choice.row.group == name:
            costs[choice.row.edge] += torch.tensor([parameters(candidate) for candidate in choice.candidates])
    return costs


def _measure(search: Search) -> tuple[float, int]:
    """Seconds of an epoch, its evaluation included, and the peak memory of a step."""
    seconds = []
    with peak_memory(search.device) as peak:
        for _ in range(STEPS):
            start = search.clock.now()
            search.totals.add(search.method.step())
            seconds.append(search.clock.now() - start)
    start = search.clock.now()
    search.method.validation()
    evaluation = search.clock.now() - start
    # the first step also sets things up, so the median, not the mean
    return statistics.median(seconds) * len(search.train) + evaluation, peak.bytes


def plan_text(figures: dict[str, Any]) -> str:
    """The figures for people."""
    channels, height, width = figures["images"]
    f = figures
    return "\n".join(
        [
            f"{f['method']} on {f['space']}: images {channels}x{height}x{width}, {f['classes']} classes",
            f"search network: {f['cells']} cells, {f['channels']} channels, {f['search_network_params']:,} parameters",
            f"final network:  {f['final_cells']} cells, {f['final_channels']} channels, "
            f"{f['params_smallest']:,} to {f['params_largest']:,} parameters, "
            f"{f['flops_smallest']:,} to {f['flops_largest']:,} multiply-adds",
            f"an epoch: {f['steps_per_epoch']} steps, about {f['seconds_per_epoch']:.1f} s; {f['epochs']} epochs: "
            f"about {f['epochs'] * f['seconds_per_epoch'] / 60:.1f} min; peak memory {f['peak_bytes'] / 2**20:.0f} MiB",
        ]
    )
