"""How networks are trained: functions that return values for the flags of `train`. Sources in
docs/training.md."""

from __future__ import annotations

from typing import Any

from proxnas.cells.designs import Architecture, Design
from proxnas.domains.images.search_options import auto_protocol


def quick() -> dict[str, Any]:
    """Small data on a laptop: few epochs, more augmentation, averaged weights, a tenth held out to
    choose them by."""
    return {
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


def cifar() -> dict[str, Any]:
    """CIFAR-10 and CIFAR-100 as the public NASP and DARTS codes train: all training images, the
    last weights."""
    return {
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


def imagenet() -> dict[str, Any]:
    """ImageNet as the public DARTS code trains."""
    return {
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


def tinyimagenet() -> dict[str, Any]:
    """Tiny ImageNet as the public NASP code trains."""
    images = {
        "resized_crop": False,
        "colour": 0.0,
        "rotation": 20.0,
        "shift": "no",
        "image_size": 0,
    }
    return imagenet() | images | {"batch_size": 96, "stem": "tinyimagenet"}


def chain(protocol: str) -> dict[str, Any]:
    """Residual stages: one block a stage, 32 channels in the first, no auxiliary tower."""
    return {"cells": 1, "channels": 32, "stem": "cifar", "auxiliary": 0.0}


def nasbench201(protocol: str) -> dict[str, Any]:
    """The benchmark's own network: five cells a stage, sixteen channels, no auxiliary tower, no
    path dropout."""
    return {"cells": 5, "channels": 16, "stem": "cifar", "auxiliary": 0.0, "drop_path": 0.0}


def mobile(protocol: str) -> dict[str, Any]:
    """Inverted residual blocks: as many as the search left in, as wide as it counted them; no
    auxiliary tower."""
    channels = {"quick": 8}.get(protocol, 16)
    return {"cells": 1, "channels": channels, "stem": "cifar", "auxiliary": 0.0}


def genet(protocol: str) -> dict[str, Any]:
    """Stages of Genetic CNN: one convolution a node, no auxiliary tower, no path dropout."""
    return {"cells": 1, "channels": 32, "stem": "cifar", "auxiliary": 0.0, "drop_path": 0.0}


PROTOCOLS = {"quick": quick, "cifar": cifar, "imagenet": imagenet, "tinyimagenet": tinyimagenet}
BY_KIND = {"nasbench201": nasbench201, "chain": chain, "mobile": mobile, "genet": genet}
"""What networks of a kind are made of, by the name of the protocol."""
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
    values = PROTOCOLS[name]() | {"protocol": name}
    of_kind = BY_KIND.get(kind)
    return values | (of_kind(name) if of_kind else {})
