"""What a search in a module of the user's is told, besides the method. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from proxnas.cells.kinds import CUSTOM
from proxnas.common.options import OptionError
from proxnas.domains.search_options import DomainOptions, Precision


@dataclass(frozen=True)
class ModuleSearchOptions(DomainOptions):
    """A module with Choices."""

    precision: Precision = "fp32"
    """Of the operations; weights stay as they are."""

    @classmethod
    def choose_protocol(cls, data: str) -> NoReturn:
        """An InputError: who asks for a protocol has DATA, and no module."""
        advice = "is a module of your own, which is searched in Python by proxnas.search"
        raise OptionError("space", CUSTOM, advice)
