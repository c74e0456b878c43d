"""What proposes cells to evaluate: the Protocol of all strategies, and what those have in common
that proceed in rounds."""

from __future__ import annotations

from typing import Protocol

import torch

from proxnas.common.types import State
from proxnas.methods.cells import Cell, stored


class Strategy(Protocol):
    """What proposes the next cell, given how good the earlier ones were.

    Several cells may be asked for before the first is told, where `ready` says so.
    """

    in_order: bool
    """Whether cells are told in the order in which they were asked for; else each as soon as it is
    known."""

    def ready(self) -> bool:
        """Whether the next cell can be asked for with what is known; true at least when all were
        told."""

    def ask(self) -> Cell:
        """The cell to evaluate next."""

    def tell(self, cell: Cell, score: float) -> None:
        """How good it was; more is better."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class InRounds:
    """The cells of a round need not wait for each other; the next round needs them all. `Cell`: or
    the first nodes of one."""

    in_order = True

    def __init__(self, evaluations: int, generator: torch.Generator) -> None:
        self.left, self.round, self.generator = evaluations, 0, generator
        self.waiting: list[Cell] = []
        self.asked: list[Cell] = []
        self.seen: list[tuple[Cell, float]] = []

    def ready(self) -> bool:
        # a cell of this round, or a round of which all are told
        return bool(self.waiting) or not self.asked

    def tell(self, cell: Cell, score: float) -> None:
        # what was asked for, which may be the first nodes of this cell alone
        self.seen.append((self.asked.pop(0), score))
        self.left -= 1

    def state_dict(self) -> State:
        return {
            "left": self.left,
            "round": self.round,
            "waiting": list(self.waiting),
            "asked": list(self.asked),
            "seen": list(self.seen),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.left, self.round = state["left"], state["round"]
        self.waiting = [stored(cell) for cell in state["waiting"]]
        self.asked = [stored(cell) for cell in state["asked"]]
        self.seen = [(stored(cell), score) for cell, score in state["seen"]]
        self.generator.set_state(state["generator"])
