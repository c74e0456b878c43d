"""What a search in a module of the user's is told, besides the method. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from proxnas.domains.search_options import DomainOptions, Precision


@dataclass(frozen=True)
class ModuleSearchOptions(DomainOptions):
    """A module with Choices."""

    precision: Precision = "fp32"
    """Of the operations; weights stay as they are."""
