"""Fits by the clock of small networks that make so many steps, whatever the clock says, in ways
that no timing decides."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from proxnas.domains.images.data.images import Images
from proxnas.domains.images.one_pass import OnePass
from proxnas.domains.images.recipe import Plan
from proxnas.workflows import fit_minutes, fit_plan


def pretend_to_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test is over there are empty files: exporting takes seconds."""

    def pretend(model: Any, *files: Any) -> dict[Path, float]:
        found = [file for file in files if isinstance(file, Path)]
        for file in found:
            file.write_bytes(b"")
        return dict.fromkeys(found, 0.0)

    monkeypatch.setattr("proxnas.domains.trained.onnx_available", lambda: False)
    monkeypatch.setattr(fit_plan, "load_exporters", lambda: None)
    monkeypatch.setattr("proxnas.domains.images.export.export_model", pretend)
    monkeypatch.setattr("proxnas.domains.text.export.export_text_model", pretend)


TIMED = {"channels": 8, "precision": "fp32", "reach": 0.125, "rotation": 0.0, "colour": 0.0}
"""What a timing of steps decides: two fits of the same images would differ by it."""


def hurry(monkeypatch: pytest.MonkeyPatch, steps: int = 25) -> None:
    """Until the test is over."""

    def follow(plan: Plan, images: Images, clock: object) -> OnePass:
        small = dataclasses.replace(plan, **TIMED)
        return OnePass(small, images, [i / steps for i in range(steps)])

    pretend_to_export(monkeypatch)
    monkeypatch.setattr(fit_plan, "EXPORT_SECONDS", 0.0)
    monkeypatch.setattr(fit_minutes, "build_pass", follow)
