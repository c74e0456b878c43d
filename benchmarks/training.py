"""The training step of a discrete network beside the same network as plain eager modules in the
default memory format.

    python benchmarks/training.py [--cell zoo:DARTS_V2] [--cells 20] [--channels 36] [--batch-size
        8] [--rounds 5]

Both do the same work on the same random images: forward with auxiliary tower and path dropout,
backward, clipping, SGD with momentum. Prints medians of interleaved rounds and their ratio, and
with --profile where our time goes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from proxnas.cells.reading import read_genotype
from proxnas.domains.images import networks
from proxnas.domains.images.data.images import Images, from_arrays
from proxnas.domains.images.networks.cnn import forward_auxiliary
from proxnas.domains.images.networks.parts import set_drop_path
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.domains.images.training import ImageTraining

DROP_PATH, AUXILIARY = 0.2, 0.4
Step = Callable[[], object]


def noise(images: int, side: int) -> Images:
    """Random images of ten classes."""
    random = np.random.RandomState(0)
    parts = {}
    for part, n in (("train", images), ("test", 10)):
        parts |= {
            f"x_{part}": random.randint(0, 256, (n, side, side, 3)).astype(np.uint8),
            f"y_{part}": np.arange(n) % 10,
        }
    return from_arrays(parts, "noise", "noise", flip=True)


def ours(options: argparse.Namespace) -> ImageTraining:
    """A training as `proxnas train --protocol cifar` makes it."""
    config = ImageTrainOptions(
        cells=options.cells,
        channels=options.channels,
        batch_size=options.batch_size,
        epochs=2,
        auxiliary=AUXILIARY,
        drop_path=2 * DROP_PATH,  # at epoch 1 of 2: half of it
        cutout=options.image_size // 2,
        valid_share=0.0,
        threads=options.threads,
        device=options.device,
    )
    training = ImageTraining(
        config, noise(max(40, options.batch_size), options.image_size), read_genotype(options.cell)
    )
    training.epochs_done = 1
    return training


def plain(options: argparse.Namespace, like: ImageTraining) -> Step:
    """The same modules, weights and images contiguous, and the usual lines around them."""
    network = networks.build_network(like.architecture, like.size).to(like.device).train()
    network.load_state_dict({n: w.contiguous() for n, w in like.network.state_dict().items()})
    set_drop_path(network, DROP_PATH)
    for w in network.parameters():
        w.data = w.data.contiguous()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.025, momentum=0.9, weight_decay=3e-4)

    def step() -> None:
        x, y = like.train.next()
        optimizer.zero_grad()
        logits, auxiliary = forward_auxiliary(network, x.contiguous())
        loss = nn.functional.cross_entropy(logits, y)
        if auxiliary is not None:
            loss = loss + AUXILIARY * nn.functional.cross_entropy(auxiliary, y)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()

    return step


def timed(step: Step, device: torch.device) -> float:
    start = time.perf_counter()
    step()
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter() - start


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a step; ratio: ours to plain."""
    training = ours(options)
    steps = {"proxnas": training.step, "plain": plain(options, training)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(options.rounds + 1):
        for name, step in steps.items():
            taken = timed(step, training.device)
            if number:  # the first round sets things up
                seconds[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    return medians | {"ratio": medians["proxnas"] / medians["plain"]}


def profile(options: argparse.Namespace) -> str:
    """A table of our step by operator."""
    training = ours(options)
    training.step()
    with torch.profiler.profile() as profiler:
        training.step()
    return profiler.key_averages().table(
        sort_by="self_cpu_time_total", row_limit=20, max_name_column_width=45
    )


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cell", default="zoo:DARTS_V2")
    parser.add_argument("--device", default="cpu")
    for name, value in {
        "cells": 20,
        "channels": 36,
        "batch-size": 8,
        "image-size": 32,
        "rounds": 5,
        "threads": 1,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(argv)
    figures = measure(options)
    print(json.dumps(figures, indent=2))
    if options.profile:
        print(profile(options))
    return figures


if __name__ == "__main__":
    main()
