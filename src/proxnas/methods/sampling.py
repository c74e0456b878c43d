"""Search by evaluating whole cells: a strategy proposes, the cell is evaluated (evaluators.py), the
strategy is told, the best is kept.

It can stop after any step and go on as if it had not.
"""

from __future__ import annotations

import math
from typing import ClassVar

from proxnas.common.types import Matrices, State
from proxnas.core.selection import changed
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells, stored
from proxnas.methods.evaluators import ByJudge, ByTraining, Evaluator
from proxnas.methods.options import SamplesCells
from proxnas.methods.strategy import Strategy
from proxnas.runs.metrics import Metrics, Validation

__all__ = ["ByTraining", "Sampling"]


class Sampling:
    """The method around a strategy: what it returns is the best cell of those evaluated, the first
    of equals."""

    Options: ClassVar[type[SamplesCells]] = SamplesCells

    def __init__(self, setup: Setup[SamplesCells], strategy: Strategy) -> None:
        self.cells, self.strategy, self.clock = Cells(setup.net.groups), strategy, setup.clock
        self.net, self.score, self.budget = setup.net, setup.score, setup.budget
        self.score_training = setup.score_training
        self.evaluator: Evaluator = (
            ByTraining(setup) if setup.judge is None else ByJudge(setup, setup.judge)
        )
        # of the best cell so far
        self.measured: Validation | None = None
        self.best_score = -math.inf
        # of the cell that was judged last at somebody's wish
        self.judged: tuple[Matrices, Validation] | None = None
        self._take(strategy.ask())
        self._keep()

    def _take(self, cell: Cell) -> None:
        self.cell, self.A_bar = cell, self._within(cell)

    def _within(self, cell: Cell) -> Matrices:
        """Of what is evaluated in the cell's place."""
        return self.cells.A_bar(self.within(cell))

    def _keep(self) -> None:
        self.best, self.best_A_bar = self.cell, self.A_bar

    def step(self) -> Metrics:
        """One step of the evaluation under way; after its last the strategy is told and asked
        again."""
        before = self.best_A_bar
        work = self.evaluator.step(self.A_bar)
        if work.measured is not None:
            with self.clock("arch"):
                self._tell(work.measured)
        return Metrics(work.loss, work.correct, work.images, changed(before, self.best_A_bar))

    def _tell(self, measured: Validation) -> None:
        self._judged(measured)
        self._take(self.strategy.ask())

    def _judged(self, measured: Validation) -> None:
        # strictly better: of equals the first stays
        score = self.score(measured) + self.score_training(self.evaluator.late_loss())
        if self.measured is None or score > self.best_score:
            self.measured, self.best_score = measured, score
            self._keep()
            self.evaluator.keep()
        self.strategy.tell(self.cell, score)

    # for whoever has cells evaluated elsewhere, several at a time, in place of step()

    def first(self) -> Cell:
        """The cell that the strategy was asked for when the method was made."""
        return self.cell

    def within(self, cell: Cell) -> Cell:
        """What is evaluated in the cell's place: the cell itself, if there is no limit on its
        size."""
        return self.cells.within(self.budget, cell)

    def tell(self, cell: Cell, measured: Validation) -> int:
        """How good a cell was; returns how many entries of the best cell's A_bar that changed."""
        before = self.best_A_bar
        self._take(cell)
        self._judged(measured)
        return changed(before, self.best_A_bar)

    def restore(self) -> None:
        self.evaluator.restore()

    def validation(self) -> Validation:
        """As the best cell was judged; before the first is, the one under way."""
        return self.measured or self.evaluator.measure(self.A_bar)

    def judge(self, A_bar: Matrices) -> Validation:
        """As the evaluator judges it, once for the same cell."""
        if self.judged is None or changed(self.judged[0], A_bar):
            self.judged = A_bar, self.evaluator.judge(A_bar)
        return self.judged[1]

    def architecture(self) -> tuple[Matrices, Matrices]:
        """The best cell so far, as both A and A_bar: there is no continuous architecture."""
        return self.best_A_bar, self.best_A_bar

    def state_dict(self) -> State:
        return {
            "cell": self.cell,
            "best": self.best,
            "measured": None if self.measured is None else list(self.measured),
            "best_score": self.best_score,
            "strategy": self.strategy.state_dict(),
            "evaluator": self.evaluator.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        # A_bar follows from the cell and the limit: it is not in the checkpoint
        self._take(stored(state["cell"]))
        self.best = stored(state["best"])
        self.best_A_bar, self.best_score = self._within(self.best), state["best_score"]
        self.measured = None if state["measured"] is None else Validation(*state["measured"])
        self.strategy.load_state_dict(state["strategy"])
        self.evaluator.load_state_dict(state["evaluator"])
