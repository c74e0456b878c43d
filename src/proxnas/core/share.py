"""Scoring on a part of the batch or of the nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Share:
    """Scoring on a part only, rescaled so that the expected score stays: time against noise."""

    batch: float = 1.0
    """Share of the examples that candidates are run on."""
    nodes: float = 1.0
    """Chance of a node to be scored in a step."""
    generator: torch.Generator | None = None
    """Draws the nodes."""
