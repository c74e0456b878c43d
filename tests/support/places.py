"""Where the project lies, and what may lie beside it."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
SHARED = Path(os.environ.get("PROXNAS_SHARED", ROOT.parent / "shared"))
"""Data that is not part of the project: tests that need it are skipped without it."""
