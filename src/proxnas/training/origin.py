"""Where the cell comes from that is trained."""

from __future__ import annotations

from pathlib import Path

from proxnas.report.reading import read_object
from proxnas.runs.folder import Run


def method_of(cell: str, run: Run | None) -> str | None:
    """What found the cell, if it is the cell of a run; in a fit it is named from the run folder."""
    if not cell:
        return None
    places = [Path(cell)] if run is None else [Path(cell), run / cell]
    for place in places:
        found = read_object(place / "config.json")
        if "method" in found:
            return str(found["method"])
    return None
