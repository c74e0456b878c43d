"""Modules of the user's own: searched in Python, on data and by a loss of their own, and trained by
whoever wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from proxnas.cells.kinds import CUSTOM
from proxnas.common.errors import InputError, OptionError
from proxnas.domains.search_options import DomainOptions, Precision, SpaceTraits

if TYPE_CHECKING:
    import torch

    from proxnas.domains.modules.task import CustomData, CustomTask


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


class ModuleDomain:
    """What is searched is the user's, and so is all that follows."""

    name = "modules"
    spaces: Mapping[str, str] = {}
    search_options: type[DomainOptions] = ModuleSearchOptions

    def traits(self, space: str) -> SpaceTraits:
        return SpaceTraits(kind=CUSTOM, parted=False, many_edges=False)

    def claims(self, data: object) -> bool:
        if isinstance(data, str):
            return False
        from proxnas.domains.modules.task import CustomData

        return isinstance(data, CustomData)

    def claims_cell(self, cell: str) -> bool:
        """Never: a selection is nothing without the module that it was made in."""
        return False

    def claims_model(self, metadata: Mapping[str, str]) -> bool:
        if "classes" in metadata or "vocabulary" in metadata or "genotype" not in metadata:
            return False
        # not parsed: the file may be damaged, and this only decides who says so
        return f'"{CUSTOM}"' in metadata["genotype"]

    def load(self, data: Any, options: Any) -> CustomData:
        if not self.claims(data):
            raise InputError(f"{data}: is no data for a module: call proxnas.search in Python")
        found: CustomData = data
        return found

    def task(self, options: Any, data: Any, space: Any, device: torch.device) -> CustomTask:
        from proxnas.domains.modules.task import CustomTask

        return CustomTask(options, data, space, device)


MODULES = ModuleDomain()
