"""Time and memory of one search iteration, method beside method, and the floor that no method can
go below.

    limit.weight   forward and backward of the bare discrete network
    limit.arch     forward and backward of it without gradients of weights, and a forward of every
                   other candidate
    opponent       darts-2nd over five forward-backward passes of the mixture: how well the rival is
                   written
    cell_ratio     of a recurrent space: darts-2nd to nasp on a vocabulary of two words, so that
                   only the cell counts

Methods that do not do the same in every step: asap and bayesnas are timed as after their warm-up,
with all candidates alive; of what enas and bayesnas do after an epoch and random-ws at the end, one
piece is timed and the share that falls to a step is added to `arch` (for 50 epochs of 25,000
images).

All are timed in interleaved rounds on the same data, and medians are reported: a machine's moods
hit everybody alike. Each method's memory is measured in a process of its own.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from proxnas.common.memory import peak_memory
from proxnas.common.types import Batch
from proxnas.core.choice import Call
from proxnas.core.groups import NONE
from proxnas.core.supernet import Supernet
from proxnas.methods.base import Occasional
from proxnas.runs.threads import threads_for
from proxnas.searching.job import Search
from proxnas.workflows.bench_options import BenchConfig
from proxnas.workflows.bench_searches import MEMORY_STEPS, build_bench_search

EPOCH_IMAGES, EPOCHS = 25_000, 50
"""The search on CIFAR-10 over which occasional work is spread."""
PARTS = ("arch", "forward", "backward", "other")
PASSES_OF_SECOND_ORDER = 5
"""Unrolled step, validation at w', two finite differences, weight step."""

Timer = Callable[[], dict[str, float]]


def bench(config: BenchConfig, say: Callable[[str], None]) -> dict[str, Any]:
    """The whole measurement, as CONTRACT describes its JSON."""
    searches = {name: build_bench_search(config, name) for name in config.all_methods()}
    reference = searches.get("nasp") or next(iter(searches.values()))
    settle_threads(config, reference)
    timers: dict[str, Timer] = {name: step_timer(search) for name, search in searches.items()}
    timers |= {"limit": limit_timer(reference), "supernet": supernet_timer(reference)}
    timers |= {f"cell {name}": step_timer(search) for name, search in cells_alone(config).items()}
    medians = time_interleaved(timers, config.rounds, say)
    limit, supernet = medians.pop("limit"), medians.pop("supernet")["total"]
    cell = {
        name.removeprefix("cell "): medians.pop(name)["total"]
        for name in timers
        if name.startswith("cell ")
    }
    for name in searches:
        say(f"memory of {name}")
        medians[name]["peak_bytes"] = in_own_process(peak_of_steps, config, name)
    say("memory of the bare network")
    limit["peak_bytes"] = in_own_process(peak_of_training, config)
    figures = _figures(config, medians, limit, supernet)
    return figures | (
        {"cell": cell, "cell_ratio": cell["darts-2nd"] / cell["nasp"]} if cell else {}
    )


def settle_threads(config: BenchConfig, search: Search) -> None:
    """The same number of threads for all methods: the quickest for the steps of this one, unless
    one is asked for."""
    threads = threads_for(config.threads, search.device)
    # the number of threads is tried out over some steps, whose times do not count
    while not threads.settled:
        with threads.step(0, 0):
            search.totals.add(search.method.step())


def cells_alone(config: BenchConfig) -> dict[str, Search]:
    """The searches whose ratio is that of the recurrent cell: with a decoder of two words, which
    costs nothing."""
    compared = ("nasp", "darts-2nd")
    if not config.on_text or not set(compared) <= set(config.all_methods()):
        return {}
    return {
        name: build_bench_search(dataclasses.replace(config, words=2), name) for name in compared
    }


def _figures(
    config: BenchConfig,
    methods: dict[str, dict[str, float]],
    limit: dict[str, float],
    supernet: float,
) -> dict[str, Any]:
    nasp = methods.get("nasp", {}).get("total")
    second = methods.get("darts-2nd", {}).get("total")
    return {
        "space": config.space,
        "config": dataclasses.asdict(config),
        "threads": torch.get_num_threads(),
        "methods": methods,
        "limit": limit,
        "supernet_pass": supernet,
        "ratio": (
            {name: figures["total"] / nasp for name, figures in methods.items()} if nasp else None
        ),
        "ratio_to_limit": nasp / limit["total"] if nasp else None,
        "opponent": second / (PASSES_OF_SECOND_ORDER * supernet) if second else None,
    }


def time_interleaved(
    timers: dict[str, Timer], rounds: int, say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Medians over rounds in which every timer runs once; a first round warms up and is not
    counted."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in timers}
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}" if number else "warm-up")
        for name, timer in timers.items():
            seconds = timer()
            if number:
                taken[name].append(seconds)
    medians = {}
    for name, rows in taken.items():
        medians[name] = {part: statistics.median(row[part] for row in rows) for part in rows[0]}
    return medians


def step_timer(search: Search) -> Timer:
    """One whole iteration of a method: streams, selection, optimizers and all, and its share of
    occasional work."""

    def measure() -> dict[str, float]:
        start = search.clock.now()
        search.totals.add(search.method.step())
        total = search.clock.now() - start
        parts = dict.fromkeys(PARTS, 0.0) | search.clock.take()
        parts["other"] = total - sum(parts.values())
        extra = occasional_seconds(search, EPOCH_IMAGES // search.config.batch_size, EPOCHS)
        return parts | {"arch": parts["arch"] + extra, "total": total + extra}

    return measure


def occasional_seconds(search: Search, steps: int, epochs: int) -> float:
    """What falls to one step, in a search of so many, of the work that is done now and then
    only."""
    if not isinstance(search.method, Occasional):
        return 0.0
    work, times = search.method.occasional(steps, epochs)
    start = search.clock.now()
    work()
    return (search.clock.now() - start) * times


def limit_timer(search: Search) -> Timer:
    """The floor at the architecture that the search stands at."""
    now = search.clock.now

    def measure() -> dict[str, float]:
        train, valid = search.train.next(), search.valid.next()
        # built outside the timing
        network = bare_network(search)
        run_others = others(search.net, valid)
        start = now()
        search.task.loss(network, train).backward()
        weight = now() - start
        start = now()
        search.task.loss(network, valid, of_weights=False).backward()
        run_others()
        arch = now() - start
        return {"arch": arch, "weight": weight, "total": arch + weight}

    return measure


def bare_network(search: Search) -> nn.Module:
    """The selected network as plain modules, normalised like the search network."""
    return search.task.bare_network(search.genotype())


def others(net: Supernet, batch: Batch) -> Callable[[], None]:
    """Runs every candidate that is not selected, on what it would read in this batch."""
    if net.choices:
        # with one forward pass, what every candidate would read is known
        pairs = recorded_sources(net, batch.x)
        return lambda: run_all(pairs)
    with net.taped() as tape:
        net.loss(batch, weights=False)

    @torch.no_grad()
    def run() -> None:
        for call in tape:
            if not isinstance(call, Call):
                call.run_others()

    return run


def recorded_sources(net: Supernet, x: Tensor) -> list[tuple[nn.Module, Tensor]]:
    """Every candidate that is not selected, with the tensor it would read."""
    with torch.no_grad(), net.taped() as tape:
        net(x)
    pairs = []
    for call in (call for call in tape if isinstance(call, Call)):
        for choice, source in zip(call.choices, call.sources, strict=True):
            active = choice.active()
            for k, candidate in enumerate(choice.candidates):
                # `none` costs nothing, and the selected ones run anyhow
                if k not in active and choice.names[k] != NONE:
                    pairs.append((candidate, source.args[0].detach()))
    return pairs


@torch.no_grad()
def run_all(pairs: list[tuple[nn.Module, Tensor]]) -> None:
    """One forward of each, nothing kept."""
    for candidate, x in pairs:
        candidate(x)


def supernet_timer(search: Search) -> Timer:
    """One forward and backward of the mixture of all candidates, for A and w."""
    net, now = search.net, search.clock.now

    def measure() -> dict[str, float]:
        batch = search.train.next()
        A = {
            name: torch.zeros(group.shape, requires_grad=True) for name, group in net.groups.items()
        }
        start = now()
        # a mixture of all candidates, as DARTS has it: A and w get gradients in one pass
        net.use({name: a.softmax(-1) for name, a in A.items()}, weighted=True)
        net.loss(batch)[0].backward()
        total = now() - start
        net.module.zero_grad(set_to_none=True)
        return {"total": total}

    return measure


def in_own_process(measure: Callable[..., int], *arguments: Any) -> int:
    """The figure as a fresh process measures it."""
    # spawn: a fork would begin with the memory of this process
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments)


def peak_of_steps(config: BenchConfig, method: str) -> int:
    """Peak memory of a few steps, beyond what the built search takes."""
    search = build_bench_search(config, method)
    with peak_memory(search.device) as peak:
        for _ in range(MEMORY_STEPS):
            search.totals.add(search.method.step())
        occasional_seconds(search, 1, 1)
    return peak.bytes


def peak_of_training(config: BenchConfig) -> int:
    """Peak memory of a few training steps of the bare network that NASP starts from."""
    search = build_bench_search(config, "nasp")
    network = bare_network(search)
    sgd = torch.optim.SGD(network.parameters(), 0.025, momentum=0.9)
    with peak_memory(search.device) as peak:
        for _ in range(MEMORY_STEPS):
            batch = search.train.next()
            search.task.loss(network, batch).backward()
            sgd.step()
            sgd.zero_grad()
    return peak.bytes
