"""MnasNet (Tan, Chen, Pang, Vasudevan, Sandler, Howard, Le, 'MnasNet: Platform-Aware Neural
Architecture Search for Mobile', CVPR 2019).

A controller learns by PPO as in `reinforce`, from a reward that weighs how good a cell m is against
what it costs:

    maximise  ACC(m) (LAT(m) / T)^w,    w = alpha if LAT(m) <= T, else beta

alpha = beta = -0.07 in the paper's soft form (a network twice as slow must be about 5% better);
alpha = 0, beta = -1 in its hard one.

T is the limit of the search, of parameters, multiply-adds or latency, and LAT(m) the same of m, by
the sums that all limits go by. While cells are sampled it is a target: cells beyond it are
evaluated as they are. What is returned keeps it exactly: the best cell of those within it by score
alone (in the paper one is picked from the Pareto front by hand); if there was none, the one of the
largest reward, brought within it.

Scores below 0 (of a metric of the user's) are divided by the factor where others are multiplied, so
that costing more is never worth more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from proxnas.common.options import Range
from proxnas.methods.base import Setup
from proxnas.methods.cells import Cell, Cells
from proxnas.methods.options import Beside
from proxnas.methods.reinforce import Constants, Reinforce, ReinforceOptions
from proxnas.methods.sampling import Sampling
from proxnas.runs.metrics import Validation

EXPONENT = Range(-10, 0)


@dataclass(frozen=True)
class MnasnetOptions(ReinforceOptions):
    """A controller draws cells and learns by PPO from score x (cost / limit)^w."""

    public: ClassVar[str] = "MnasNet"

    reward_alpha: Annotated[float, EXPONENT] = -0.07
    """w of cells within the limit."""
    reward_beta: Annotated[float, EXPONENT] = -0.07
    """w of cells beyond it."""

    def idle(self, beside: Beside) -> dict[str, str]:
        """Without a limit there is no T."""
        found = super().idle(beside)
        if not beside.limited:
            why = "without a limit ({max_params}, {max_flops} or {max_latency})"
            found |= dict.fromkeys(("reward_alpha", "reward_beta"), why)
        return found


def reward(score: float, cost: float, target: float, alpha: float, beta: float) -> float:
    """ACC (LAT / T)^w."""
    if cost <= 0:
        return score  # a network of nothing, on which no exponent is defined
    ratio = cost / target
    factor = math.pow(ratio, alpha if ratio <= 1 else beta)
    return score * factor if score >= 0 else score / factor


class MnasnetSearch(Sampling):
    """Sampling by PPO, in which the limit is a target until the end."""

    Options = MnasnetOptions

    def __init__(self, setup: Setup[MnasnetOptions]) -> None:
        self.options = o = setup.options
        generator = torch.Generator().manual_seed(setup.seed)
        # as in `reinforce`: with few evaluations an update has fewer cells, lest there be none
        batch = max(1, min(Constants.batch, o.evaluations // 5))
        constants = Constants(learning_rate=o.arch_learning_rate, batch=batch)
        super().__init__(setup, Reinforce(Cells(setup.net.groups), constants, generator))

    def within(self, cell: Cell) -> Cell:
        """Cells are evaluated as they are."""
        return cell

    def reward(self, cell: Cell, score: float) -> float:
        """What the controller is told."""
        if self.budget is None:
            return score
        o, cost = self.options, self.budget.sizes(self.cells.A_bar(cell))
        return reward(score, cost, self.budget.limit, o.reward_alpha, o.reward_beta)

    def _rank(self, cell: Cell, score: float) -> tuple[bool, float]:
        """Cells within the limit first, by score; the others by reward."""
        if self.budget is None or self.budget.meets(self.cells.A_bar(cell)):
            # True before False: any cell within the limit ranks above any beyond it
            return True, score
        return False, self.reward(cell, score)

    def _judged(self, measured: Validation) -> None:
        # the rank decides what is kept, the reward what the controller learns
        score = self.score(measured)
        rank = self._rank(self.cell, score)
        if self.measured is None or rank > self._rank(self.best, self.score(self.measured)):
            self.measured = measured
            self._keep()
            self.evaluator.keep()
        self.strategy.tell(self.cell, self.reward(self.cell, score))
