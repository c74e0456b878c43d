"""Random search: cells drawn uniformly, each evaluated by itself, the best kept (the baseline of
Liu et al., 'DARTS', ICLR 2019, which trained 24 cells)."""

from __future__ import annotations

import torch

from proxnas.common.types import State
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells
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


def random(setup: Setup) -> Sampling:
    """Random search."""
    return Sampling(
        setup, Random(Cells(setup.net.groups), torch.Generator().manual_seed(setup.seed))
    )
