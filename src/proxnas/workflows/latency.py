"""`proxnas latency build`: operations are measured at their places, whole networks beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from proxnas.common.environment import pick_device, set_threads
from proxnas.common.errors import InputError
from proxnas.common.files import make_folder, write_atomically
from proxnas.common.types import Matrices
from proxnas.core.selection import random_selection
from proxnas.core.size.latency_file import kept_place
from proxnas.core.size.latency_table import LatencyTable, fitted, machine, quality, selected_sum
from proxnas.core.size.nesting import best
from proxnas.domains import load_for_search, of_data, spaces
from proxnas.domains.images.task import ImageTask
from proxnas.searching.defaults import resolve
from proxnas.workflows.latency_options import LatencyConfig

Say = Callable[[str], None]


def build_table(config: LatencyConfig, say: Say) -> Path:
    """Measures, checks and keeps a table; where."""
    task = final_networks(config)
    table = measure_table(task, config.networks, say)
    path = Path(config.file) if config.file else kept_place(task.about, table.by, _threads())
    make_folder(path.parent)
    write_atomically(path, table.to_json(task.space.groups))
    return path


def final_networks(config: LatencyConfig) -> ImageTask:
    """The task of a search whose final networks are to be measured."""
    options = resolve(config.search_values())
    device = pick_device(config.device)
    set_threads(config.threads)
    data = load_for_search(options.space, options.data, options)
    task = of_data(data).task(options, data, spaces.find(options.space), device)
    if not isinstance(task, ImageTask):
        raise InputError(f"{config.data}: not images: give digits, a file or a folder of images")
    task.table = None  # a kept one is about to be replaced
    return task


def measure_table(task: ImageTask, networks: int, say: Say) -> LatencyTable:
    """The operations, the fit to some networks, and how well it predicts as many others."""
    runtime = task.watch.runtime
    say(f"operations of {task.space.name}, by {runtime.version}")
    operations = task.operations
    generator = torch.Generator().manual_seed(0)
    # half of them fit the line, the others judge it; the extremes are among the former
    chosen = [*_ends(task), *(_random(task, generator) for _ in range(2 * networks - 2))]
    sums = [selected_sum(operations, A_bar) for A_bar in chosen]
    genotypes = [task.space.genotype(A_bar) for A_bar in chosen]
    say(f"{len(chosen)} whole networks")
    seconds = task.seconds_of([task.final_network(genotype) for genotype in genotypes])
    # seconds of a network ~ a + b * sum of its operations
    fit = fitted(sums[:networks], seconds[:networks])
    predicted = [fit(total) for total in sums[networks:]]
    good = quality(predicted, seconds[networks:])
    return LatencyTable(task.about, runtime.by, machine(runtime), operations, fit, good)


def _ends(task: ImageTask) -> list[Matrices]:
    """The quickest and the slowest network, by the sums."""
    total, groups = task.operations.total, task.net.groups
    return [
        # the largest sum of -seconds is the quickest network
        best({name: sign * matrix for name, matrix in total.items()}, groups)
        for sign in (-1.0, 1.0)
    ]


def _random(task: ImageTask, generator: torch.Generator) -> Matrices:
    return {name: random_selection(group, generator) for name, group in task.net.groups.items()}


def _threads() -> int:
    return torch.get_num_threads()
