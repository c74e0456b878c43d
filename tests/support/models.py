"""A tiny image model."""

from __future__ import annotations

from typing import Any

from proxnas.cells.genotype import Genotype
from proxnas.domains.images import networks
from proxnas.domains.images.model import Model
from proxnas.domains.images.networks.cnn import Size

CELL = "|nor_conv_1x1~0|+|skip_connect~0|none~1|+|avg_pool_3x3~0|nor_conv_3x3~1|skip_connect~2|"


SIZE = Size(cells=1, channels=4, image_channels=3, classes=3)


def made(**changes: Any) -> Model:
    genotype = Genotype.from_string(CELL)
    parts: dict[str, Any] = {
        "network": networks.build_network(genotype, SIZE).eval(),
        "genotype": genotype,
        "size": SIZE,
        "classes": ("cat", "dog", "ünicorn"),
        "mean": (0.1, 0.2, 1 / 3),
        "std": (0.5, 0.25, 1 / 7),
        "shape": (3, 8, 8),
        "info": {"params": 7, "test_accuracy": 0.5},
    }
    return Model(**parts | changes)
