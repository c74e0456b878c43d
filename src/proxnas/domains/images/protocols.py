"""How networks are trained: values for the flags of `train`. Sources in docs/training.md."""

from __future__ import annotations

from typing import Any

from proxnas.cells.designs import Architecture, Design
from proxnas.domains.images.options import auto_protocol
from proxnas.training.options import Defaults

QUICK: Defaults = {
    "epochs": 24,
    "batch_size": 64,
    "cells": 8,
    "channels": 16,
    "learning_rate": 0.05,
    "warmup": 1,
    "label_smoothing": 0.1,
    "rotation": 10.0,
    "ema": 0.99,
    "valid_share": 0.1,
}
"""Small data on a laptop: few epochs, more augmentation, averaged weights, a tenth held out to
choose them by."""


CIFAR: Defaults = {
    "epochs": 600,
    "batch_size": 96,
    "cells": 20,
    "channels": 36,
    "learning_rate": 0.025,
    "weight_decay": 3e-4,
    "auxiliary": 0.4,
    "drop_path": 0.2,
    "cutout": 16,
    "valid_share": 0.0,
}
"""CIFAR-10 and CIFAR-100 as the public NASP and DARTS codes train: all training images, the
last weights."""


IMAGENET: Defaults = {
    "epochs": 250,
    "batch_size": 128,
    "cells": 14,
    "channels": 48,
    "stem": "imagenet",
    "learning_rate": 0.1,
    "weight_decay": 3e-5,
    "schedule": "exponential",
    "label_smoothing": 0.1,
    "auxiliary": 0.4,
    "resized_crop": True,
    "colour": 0.4,
    "image_size": 224,
    "valid_share": 0.0,
}
"""ImageNet as the public DARTS code trains."""


TINYIMAGENET: Defaults = IMAGENET | {
    "batch_size": 96,
    "stem": "tinyimagenet",
    "resized_crop": False,
    "colour": 0.0,
    "rotation": 20.0,
    "shift": "no",
    "image_size": 0,
}
"""Tiny ImageNet as the public NASP code trains."""


PROTOCOLS = {"quick": QUICK, "cifar": CIFAR, "imagenet": IMAGENET, "tinyimagenet": TINYIMAGENET}
STAGES: Defaults = {"cells": 1, "stem": "cifar", "auxiliary": 0.0}
BY_KIND: dict[str, Defaults] = {
    # the benchmark's own network: five cells a stage
    "nasbench201": STAGES | {"cells": 5, "channels": 16, "drop_path": 0.0},
    # residual stages: one block a stage, 32 channels in the first
    "chain": STAGES | {"channels": 32},
    # inverted residual blocks: as many as the search left in, as wide as it counted them
    "mobile": STAGES | {"channels": 16},
    # stages of Genetic CNN: one convolution a node
    "genet": STAGES | {"channels": 32, "drop_path": 0.0},
}
"""What networks of a kind are made of: none has an auxiliary tower."""
OF_QUICK: dict[str, Defaults] = {"mobile": {"channels": 8}}
"""The same where the protocol is quick and makes another."""
OF_CELLS: dict[str, Any] = {"cells": 1, "channels": 1, "auxiliary": 0.0, "drop_path": 0.0}
"""What a network made by hand has no use for, with the values that ask for nothing."""


def train_values(protocol: str, data: str, architecture: Architecture | None) -> dict[str, Any]:
    """The values of a protocol, `auto` decided by the data, fitted to the kind of the cell."""
    if isinstance(architecture, Design):
        return protocol_values(protocol, data) | OF_CELLS
    return protocol_values(protocol, data, architecture.kind if architecture else "")


def protocol_values(protocol: str, data: str, kind: str = "") -> dict[str, Any]:
    """The values of a protocol for networks of a kind."""
    name = auto_protocol(data) if protocol == "auto" else protocol
    values = PROTOCOLS[name] | {"protocol": name}
    values |= BY_KIND.get(kind, {})
    return values | (OF_QUICK.get(kind, {}) if name == "quick" else {})
