"""Ranking without training: N random cells are scored at the first weights, and the best by that
score is returned (`core/zero_cost.py` has the scores and whose they are).

The cells stand in the search network with its shared first weights, and all of them see the same
batches: what differs between two scores is then the cells. The cells are spread evenly over the
steps of the search, so that it can be stopped and resumed between any two of them; one epoch is
the default, and w never moves. What is reported as loss and accuracy is that of untrained networks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from proxnas.common.errors import OptionError
from proxnas.common.types import Batch, Matrices, State
from proxnas.core import zero_cost
from proxnas.core.selection import changed
from proxnas.core.size.complexity import parameters
from proxnas.core.supernet import Supernet
from proxnas.methods.base import Setup, random_cell
from proxnas.methods.options import CELLS, Beside, CountsSkips, Traits
from proxnas.runs.consensus import mean, mean_of
from proxnas.runs.metrics import Metrics

BATCHES = 2
"""Batches whose gradients ZiCo compares; the other scores take the first."""


@dataclass(frozen=True)
class ScoreOptions(CountsSkips):
    """The best of many random cells by a score of untrained networks."""

    traits: ClassVar[Traits] = Traits(comes_to_rest=False)
    defaults: ClassVar[Mapping[str, Any]] = {"epochs": 1, "patience": 0}

    random_cells: Annotated[int, CELLS] = 100
    """Cells that are scored."""
    by: Literal["zico", "naswot", "synflow", "grad-norm", "params"] = "zico"
    """The score: of gradients (zico, grad-norm), of ReLUs alike (naswot), of the flow through the
    weights (synflow), or the number of parameters."""

    def idle(self, beside: Beside) -> dict[str, str]:
        """What trains w; and scores of what recurrent cells do not have."""
        rates = ("learning_rate", "learning_rate_min", "momentum", "weight_decay", "clip")
        found = super().idle(beside) | dict.fromkeys(rates, "because it trains nothing")
        if beside.weightless and self.by not in ("zico", "grad-norm"):
            found["by"] = f"in {{space}} {beside.space}, where zico and grad-norm score"
        return found


Scorer = Callable[[Matrices, list[Batch]], float]


class Score:
    """Cells drawn and scored one after the other."""

    Options = ScoreOptions

    def __init__(self, setup: Setup[ScoreOptions]) -> None:
        self.net, self.train = setup.net, setup.train
        self.clock, self.budget = setup.clock, setup.budget
        self.number, self.steps = setup.options.random_cells, setup.weights.epochs * len(self.train)
        self.score = make_scorer(setup.options.by, self.net)
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.beginning, self.batches = self.train.state_dict(), list[Batch]()
        self.t = 0
        self.best, self.best_score = self._draw(), -torch.inf
        self.last = self.best

    def step(self) -> Metrics:
        """Scores the cells that are due: in a search of fewer cells than steps, in some steps
        none."""
        if not self.batches:
            # not kept in a checkpoint: drawn again, they are the same
            self.train.load_state_dict(self.beginning)
            self.batches = [self.train.next() for _ in range(BATCHES)]
        before = self.best
        with self.clock("arch"):
            for _ in range(self._due(self.t + 1) - self._due(self.t)):
                self.last = self._draw()
                self._rank(self.last)
        self.t += 1
        batch = self.batches[0]
        with self.clock("forward"), torch.no_grad():
            self.net.use(self.last)
            loss, output = self.net.loss(batch)
        measured, right = self.net.objective.measure(loss, output, batch)
        return Metrics(measured, right, len(batch.y), changed(before, self.best))

    def _due(self, t: int) -> int:
        """How many cells are scored after t steps: one at least after the first."""
        # -(-a // b) rounds up
        return -(-min(t, self.steps) * self.number // self.steps)

    def _rank(self, cell: Matrices) -> None:
        value = self.score(cell, self.batches)
        # several processes must agree, and each has counted ReLUs on its part of the batch only
        examples = self.net.objective.examples(self.batches[0])
        agreed = mean_of(torch.tensor([value], device=self.net.device), examples)
        if float(agreed) > self.best_score:
            self.best, self.best_score = cell, float(agreed)

    def choose_now(self) -> None:
        """The best so far is what there is."""

    def _draw(self) -> Matrices:
        return random_cell(self.net, self.generator, self.budget)

    def architecture(self) -> tuple[Matrices, Matrices]:
        """The best cell so far, as both A and A_bar: there is no continuous architecture."""
        return self.best, self.best

    def state_dict(self) -> State:
        return {
            "t": self.t,
            "last": self.last,
            "best": self.best,
            "best_score": self.best_score,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.t, self.best_score, self.batches = state["t"], state["best_score"], []
        self.last, self.best = state["last"], state["best"]
        self.generator.set_state(state["generator"])


def make_scorer(by: str, net: Supernet) -> Scorer:
    """From a cell and batches to its score in the network."""
    linear = _linearised(net) if by == "synflow" else net
    scores: dict[str, Callable[[list[Batch]], float]] = {
        "zico": lambda batches: zero_cost.zico([_gradient(net, batch) for batch in batches]),
        "grad-norm": lambda batches: zero_cost.grad_norm(_gradient(net, batches[0])),
        "naswot": lambda batches: zero_cost.naswot(lambda: net.loss(batches[0])),
        "synflow": lambda batches: _flow(linear, batches[0]),
        "params": lambda batches: parameters_in_use(net),
    }

    def score(cell: Matrices, batches: list[Batch]) -> float:
        net.use(cell)
        linear.use(cell)
        try:
            return scores[by](batches)
        except zero_cost.NoScore as error:
            raise OptionError("by", by, f"{error}: give zico, grad-norm or params") from error

    return score


def _gradient(net: Supernet, batch: Batch) -> list[Tensor]:
    """dL/dw of every layer that the cell in use reaches, on a batch."""
    # matrices and filters: biases and the affine part of norms have one dimension
    weights = [w for w in net.module.parameters() if w.requires_grad and w.ndim > 1]
    found = mean(net.gradient(net.loss(batch)[0], weights), net.objective.examples(batch))
    # the weights of other candidates have none; every batch goes through the same cell
    return [g for g in found if g is not None]


def _flow(linear: Supernet, batch: Batch) -> float:
    """Of the network made linear, whose input has the shape of the batch's."""
    if not isinstance(batch.x, Tensor) or not batch.x.is_floating_point():
        raise zero_cost.NoScore("the network does not read one tensor of floats")
    return zero_cost.synflow(linear, list(linear.module.parameters()), batch.x.shape[1:])


def _linearised(net: Supernet) -> Supernet:
    module = copy.deepcopy(net.module)
    zero_cost.linearise(module)
    return Supernet(module, net.groups, net.criterion, objective=net.objective)


def parameters_in_use(net: Supernet) -> float:
    """Trainable numbers in the candidates that the cell in use selects, over all their places."""
    total = 0
    for choice in net.choices.values():
        for k in choice.active():
            total += parameters(choice.candidates[k])
    return float(total)
