"""Lines for people about the data: each is said once, however often a command reads the same
data."""

from __future__ import annotations

from collections.abc import Sequence

from proxnas.common.launch import here
from proxnas.common.say import note

NAMED = 5
"""So many names stand in a line; of the others there are dots."""
_said: set[str] = set()


def tell(line: str) -> None:
    """One line on stderr, by the first process of a job."""
    if here().leads and line not in _said:
        _said.add(line)
        note(f"{line}")


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """Names for a line, in one of which may stand anything."""
    shown = [name if name.isprintable() else repr(name) for name in names[:most]]
    return ", ".join(shown) + (", ..." if len(names) > most else "")
