"""What methods have in common that train shared weights by drawn cells and choose at the end."""

from __future__ import annotations

import torch

from proxnas.common.types import Matrices, State
from proxnas.methods.optimizers import WeightOptimizer


class DrawsCells:
    """The cell of the last step, the best that is known, and who draws and trains."""

    drawn: Matrices
    best: Matrices
    generator: torch.Generator
    w_optimizer: WeightOptimizer

    def architecture(self) -> tuple[Matrices, Matrices]:
        """The cell that would be returned, as both A and A_bar: there is no continuous
        architecture."""
        return self.best, self.best

    def state_dict(self) -> State:
        return {
            "drawn": self.drawn,
            "best": self.best,
            "generator": self.generator.get_state(),
            "w": self.w_optimizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.drawn, self.best = state["drawn"], state["best"]
        self.generator.set_state(state["generator"])
        self.w_optimizer.load_state_dict(state["w"])
