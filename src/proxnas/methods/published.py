"""What was published of the proximal methods, where it differs from our defaults: their presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AS_PUBLISHED: Mapping[str, Any] = {
    "arch_noise": 0.0,
    "ties": "first",
    "arch_optimizer": "adam",
    "arch_learning_rate": 3e-4,
    "explore": 0.0,
    "look_ahead": 0,
    "evidence": 0.0,
    "pooling": 0.0,
    "refine": 0,
    "wiring": "free",
    "weight_optimizer": "sgd",
    "learning_rate": 0.025,
    "learning_rate_min": 0.001,
    "patience": 0,
}
"""What paper and public code have in common, against our defaults; what differs all the same is in
docs/paper.md."""
PAPER: Mapping[str, Any] = {**AS_PUBLISHED, "value": "a_k", "arch_decay": 0.0, "eta_cells": "all"}
"""The paper's text."""
OFFICIAL: Mapping[str, Any] = {
    **AS_PUBLISHED,
    "value": "one",
    "arch_decay": 1e-3,
    "eta_cells": "normal",
    "unselected": "drift",
}
"""What the public code does."""
