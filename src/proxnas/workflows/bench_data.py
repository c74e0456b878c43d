"""Noise to measure on: the cost of a step does not depend on what it sees."""

from __future__ import annotations

import numpy as np

from proxnas.domains.images.data.images import Images, from_arrays
from proxnas.domains.text.data.text import Text
from proxnas.workflows.bench_options import BenchConfig

MEMORY_STEPS = 3
"""How many steps a measurement of memory takes."""


def random_images(config: BenchConfig) -> Images:
    """Noise in the shape of CIFAR-10."""
    generator = np.random.default_rng(0)
    # an epoch longer than the measurement: what is done between epochs is timed apart
    n = 3 * config.batch_size * (config.rounds + MEMORY_STEPS) + 40
    x = generator.integers(0, 256, (n, config.image_size, config.image_size, 3), dtype=np.uint8)
    return from_arrays({"x_train": x, "y_train": np.arange(n) % 10}, "noise", "noise", flip=True)


def random_text(config: BenchConfig) -> Text:
    """Noise in the size of a text: words drawn uniformly."""
    tokens = config.batch_size * (8 * config.bptt + 1)
    parts = np.random.default_rng(0).integers(0, config.words, (3, tokens))
    return Text("noise", "word", tuple(map(str, range(config.words))), *parts)
