"""Random search: cells drawn uniformly, each evaluated by itself, the best kept (the baseline of
Liu et al., 'DARTS', ICLR 2019, which trained 24 cells)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from proxnas.common.types import State
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells
from proxnas.methods.options import CountsSkips, SamplesCells
from proxnas.methods.sampling import Sampling


class Random:
    """Learns nothing from what it is told."""

    in_order = True

    def __init__(self, cells: Cells, generator: torch.Generator) -> None:
        self.cells, self.generator = cells, generator

    def ready(self) -> bool:
        return True

    def ask(self) -> Cell:
        return self.cells.draw(self.generator)

    def tell(self, cell: Cell, score: float) -> None:
        """Nothing: the method keeps the best."""

    def state_dict(self) -> State:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        self.generator.set_state(state["generator"])


@dataclass(frozen=True)
class RandomSearchOptions(CountsSkips, SamplesCells):
    """Random cells, each trained by itself for an equal share of the epochs; the best is kept."""

    public: ClassVar[str] = "RandomSearch"


class RandomSearch(Sampling):
    """Sampling by that strategy."""

    Options = RandomSearchOptions

    def __init__(self, setup: Setup[RandomSearchOptions]) -> None:
        generator = torch.Generator().manual_seed(setup.seed)
        super().__init__(setup, Random(Cells(setup.net.groups), generator))
