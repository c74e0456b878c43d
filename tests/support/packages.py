"""Packages of others, as pip would install them."""

from __future__ import annotations

from pathlib import Path


def installed(folder: Path, name: str, source: str, entry_points: str) -> Path:
    """The place of a package with one module and these entry points, for the path of Python."""
    site = folder / "site"
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (site / f"{name}.py").write_text(source)
    (about / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)
    return site
