"""What `fit` says of its data before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxnas.domains.images.data.images import Images


def say_sheet(images: Images, say: Callable[[str], None]) -> dict[str, Any]:
    """Says what the data hold, and returns it for result.json."""
    from proxnas.domains.images.data.sheet import data_sheet, sheet_lines

    sheet = data_sheet(images)
    say("\n".join(f"data: {line}" for line in sheet_lines(sheet)))
    return sheet


def with_sheet(result: dict[str, Any], sheet: dict[str, Any]) -> dict[str, Any]:
    """The result with the sheet, and with what that makes doubtful."""
    from proxnas.domains.images.data.sheet import sheet_warnings

    said = [result["warning"]] if result.get("warning") else []
    said += sheet_warnings(sheet)
    return result | {"data_sheet": sheet} | ({"warning": "; ".join(said)} if said else {})
