"""What a search would build, before it is run: sizes, time and memory, measured on a few steps."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from proxnas.bench import WARM, occasional_seconds
from proxnas.complexity import parameters
from proxnas.config import SearchConfig
from proxnas.loop import Job
from proxnas.memory import peak_memory
from proxnas.searching import Search
from proxnas.selection import one_hot
from proxnas.supernet import Supernet
from proxnas.tasks import load_data
from proxnas.types import Matrices

STEPS = 3


def plan(config: SearchConfig) -> dict[str, Any]:
    """The figures of `--dry-run`."""
    return plan_search(Search(dataclasses.replace(config, **WARM.get(config.method, {})), load_data(config)))


def plan_search(search: Search) -> dict[str, Any]:
    """The same for a search that is built; it makes some steps."""
    config = search.config
    smallest, largest = (search.final_network(search.space.genotype(A)) for A in extremes(search.net))
    seconds, peak = measure(search, search.method.validation)
    return {
        "space": config.space,
        "method": config.method,
        **search.task.describe(),
        "search_network_params": parameters(search.net.module),
        "params_smallest": parameters(smallest),
        "params_largest": parameters(largest),
        "flops_smallest": search.task.multiply_adds(smallest),
        "flops_largest": search.task.multiply_adds(largest),
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


def measure(job: Job, evaluate: Callable[[], object]) -> tuple[float, int]:
    """Seconds of an epoch behind any warm-up, its evaluation included, and the peak memory of a step."""
    seconds = []
    with peak_memory(job.device) as peak:
        for _ in range(STEPS):
            start = time.perf_counter()
            job.totals.add(job.step())
            job.totals.means()  # waits for an accelerator
            seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    evaluate()
    evaluation = time.perf_counter() - start
    # the first step also sets things up, so the median, not the mean
    step = statistics.median(seconds)
    if isinstance(job, Search):
        step += occasional_seconds(job, len(job), job.config.epochs)
    return step * len(job) + evaluation, peak.bytes


def epochs_text(f: dict[str, Any]) -> str:
    """Time and memory for people."""
    return (
        f"an epoch: {f['steps_per_epoch']} steps, about {f['seconds_per_epoch']:.1f} s; {f['epochs']} epochs: "
        f"about {f['epochs'] * f['seconds_per_epoch'] / 60:.1f} min; peak memory {f['peak_bytes'] / 2**20:.0f} MiB"
    )


def plan_text(figures: dict[str, Any]) -> str:
    """The figures for people."""
    f = figures
    if "images" in f:
        data = f"images {'x'.join(map(str, f['images']))}, {f['classes']} classes"
        searched, final = (f"{f[p + 'cells']} cells, {f[p + 'channels']} channels" for p in ("", "final_"))
    else:
        data = f"{f['train_tokens']:,} and {f['valid_tokens']:,} tokens ({f['tokens']}), {f['words']:,} different"
        searched, final = (f"{f[p + 'units']} units" for p in ("", "final_"))
    return "\n".join(
        [
            f"{f['method']} on {f['space']}: {data}",
            f"search network: {searched}, {f['search_network_params']:,} parameters",
            f"final network:  {final}, {f['params_smallest']:,} to {f['params_largest']:,} parameters, "
            f"{f['flops_smallest']:,} to {f['flops_largest']:,} multiply-adds",
            epochs_text(f),
        ]
    )
