"""The searches that are measured: on noise, because the cost of a step does not depend on what it
sees, with the sizes of the public codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from proxnas import methods
from proxnas.common.options import flat_hints
from proxnas.domains.images.data.images import Images, from_arrays
from proxnas.domains.images.spaces.cnn import first_candidates
from proxnas.domains.text.data.text import Text
from proxnas.methods.proximal import Proximal
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.owners import domain_options, parts_for
from proxnas.workflows.bench_options import BenchConfig

MEMORY_STEPS = 3
"""How many steps a measurement of memory takes."""
UNMOVED = 1e-12
"""A learning rate of A that changes no selection."""


def random_images(config: BenchConfig) -> Images:
    """Noise in the shape of CIFAR-10."""
    generator = np.random.default_rng(0)
    # an epoch longer than the measurement: what is done between epochs is timed apart
    n = 3 * config.batch_size * (config.rounds + MEMORY_STEPS) + 40
    # (N, H, W, 3)
    x = generator.integers(0, 256, (n, config.image_size, config.image_size, 3), dtype=np.uint8)
    return from_arrays({"x_train": x, "y_train": np.arange(n) % 10}, "noise", "noise", flip=True)


def random_text(config: BenchConfig) -> Text:
    """Noise in the size of a text: words drawn uniformly."""
    # eight windows a column, and the token that the last one predicts
    tokens = config.batch_size * (8 * config.bptt + 1)
    parts = np.random.default_rng(0).integers(0, config.words, (3, tokens))
    return Text("noise", "word", tuple(map(str, range(config.words))), *parts)


def build_bench_search(config: BenchConfig, method: str) -> Search:
    """A search on random images or words with the public codes' sizes."""
    size: dict[str, Any] = {"batch_size": config.batch_size}
    if config.on_text:
        size |= {"units": config.units, "bptt": config.bptt, "lengths": "fixed"}
    else:
        size |= {"cells": config.cells, "channels": config.channels}
    values = usual_values(config, method) | size
    for name in ("seed", "device", "threads"):
        values[name] = getattr(config, name)
    names = flat_hints(methods.options_of(method))
    for name in ("score_batch", "score_nodes"):
        if name in names:
            values[name] = getattr(config, name)
    if "explore" in names:
        # at one network, the random cell it starts from: an explored path would be another
        values |= {"explore": 0.0, "arch_learning_rate": UNMOVED}
    search_config = SearchOptions.from_values(values)
    if config.on_text:
        return Search(search_config, random_text(config), exact_clock=True)
    if not config.candidates:
        return Search(search_config, random_images(config), exact_clock=True)
    search = Search(
        search_config, random_images(config), first_candidates(config.candidates), exact_clock=True
    )
    fix_architecture(search)
    return search


def usual_values(config: BenchConfig, method: str) -> dict[str, Any]:
    """What a method has by itself, behind its warm-up; on text with the rates and sizes of PTB."""
    own, domain = methods.options_of(method), domain_options(config.space)
    values: dict[str, Any] = {"space": config.space, "method": method}
    values |= {**own.defaults, **own.traits.past_warmup}
    if config.on_text:
        values |= domain.sizes("ptb", config.space)
    # what a method has by itself for images is no option of every domain
    known = flat_hints(SearchOptions, parts_for(config.space, method))
    return {name: value for name, value in values.items() if name in known}


def fix_architecture(search: Search) -> None:
    """Select in turn among the first few candidates: growth must be measured at one and the same
    network."""
    A, _ = search.method.architecture()
    for matrix in A.values():
        E, K = matrix.shape
        edge = torch.arange(E)
        matrix.fill_(0.4)
        # no two alike: no tie to be broken by chance
        matrix[edge, edge % min(K, 4)] = 0.6 - 0.01 * edge.double()
    if isinstance(search.method, Proximal):
        search.method.A_bar = search.method.select(search.method.A)
