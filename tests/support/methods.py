"""What the registry of methods says, for tests that go by it."""

from __future__ import annotations

from proxnas import methods
from proxnas.common.options import flat_hints

SAMPLING = tuple(name for name in methods.METHODS if methods.options_of(name).traits.samples_cells)
"""Methods that evaluate whole cells, one after the other."""


def has_option(method: str, name: str) -> bool:
    """Whether the method has an option of that name."""
    return name in flat_hints(methods.options_of(method))
