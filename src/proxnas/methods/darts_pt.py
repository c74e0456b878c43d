"""DARTS-PT (Wang, Cheng, Chen, Tang, Hsieh, 'Rethinking Architecture Selection in Differentiable
NAS', ICLR 2021).

The mixture is trained as DARTS trains it, but A does not say how strong a candidate is: what the
mixture loses without it does. Over the last part of the search the edges are decided one after the
other, in random order, and w is trained on in between:

    of edge e take the candidate k without which L_val rises most;  the others are dropped
    at the end each node keeps the inputs without which L_val rises most

L_val is that of the same few validation batches for all candidates of an edge; its paper has the
accuracy on the whole half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from proxnas.common.errors import OptionError
from proxnas.common.options import SHARE, Range
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.groups import NONE
from proxnas.core.selection import changed
from proxnas.methods.asap import masked_softmax
from proxnas.methods.base import Setup, mean_loss, relaxed_gradient, weight_step
from proxnas.methods.darts import DartsOptions
from proxnas.methods.learner import Learns
from proxnas.methods.options import Traits
from proxnas.runs.metrics import Metrics


@dataclass(frozen=True)
class DartsPtOptions(DartsOptions):
    """DARTS, its cell chosen by what the mixture loses without a candidate."""

    public: ClassVar[str] = "DARTSPT"
    traits: ClassVar[Traits] = Traits(starts_from_A=True)

    deciding: Annotated[float, SHARE] = 0.3
    """Share of the search, at its end, in which edges are decided one after the other."""
    judged_batches: Annotated[int, Range(1, 10_000)] = 4
    """Validation batches that a candidate is judged by."""


class DartsPt(Learns[DartsPtOptions]):
    """A mixture that is decided edge by edge."""

    Options = DartsPtOptions

    def __init__(self, setup: Setup[DartsPtOptions]) -> None:
        super().__init__(setup)
        self.options.check_due(len(self.train), self.epochs)
        self._check_moves()
        self.alive = {name: self._usable(name) for name in self.net.groups}
        self.strength = {name: torch.zeros(len(a)) for name, a in self.learner.A.items()}
        rows = [(name, e) for name, a in self.learner.A.items() for e in range(len(a))]
        order = torch.randperm(len(rows), generator=self.learner.generator).tolist()
        self.order = [rows[i] for i in order]
        self.decided = 0
        self.A_bar = self.derive()

    def _check_moves(self) -> None:
        """An InputError if the first edge is decided before A has moved."""
        o, begin = self.options, self._begin()
        if o.first_due(len(self.train), self.epochs, o.arch_every) >= begin:
            late, value = ("warmup", o.warmup) if o.warmup else ("deciding", o.deciding)
            advice = f"none of the {begin} steps before darts-pt decides would move A"
            raise OptionError(late, value, f"{advice}: give less, or more {{epochs}}")

    def _usable(self, name: str) -> torch.Tensor:
        """All candidates but `none`, which is no connection that could be missed."""
        group = self.net.groups[name]
        usable = torch.tensor([candidate != NONE for candidate in group.candidates])
        return (usable if usable.any() else ~usable).repeat(group.shape[0], 1)

    def step(self) -> Metrics:
        """First as DARTS; in the last part the edges whose turn it is are decided, then w."""
        train, before = self.train.next(), self.A_bar
        w = self.learner.w_optimizer
        turn = self._turn(w.t)
        with self.clock("arch"):
            if self.decided < turn:
                self._decide(turn)
            elif not turn and self.options.due(w.t, len(self.train), self.epochs):
                dA, _ = relaxed_gradient(self.net, self.learner.A, self._mixture, self.valid.next())
                self.learner.A_optimizer.step(dA)
            self.A_bar = self.derive()
        self.use_mixture()
        loss, right = weight_step(self.net, train, w, self.clock)
        if w.t == w.steps:
            self.choose_now()
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def _turn(self, t: int) -> int:
        """How many edges must be decided before step t: evenly, all of them by the last."""
        steps, begin = self.learner.w_optimizer.steps, self._begin()
        if t < begin:
            return 0
        # the last step, t = steps - 1, has them all
        return len(self.order) * (t - begin + 1) // (steps - begin)

    def _begin(self) -> int:
        """The step from which edges are decided."""
        steps = self.learner.w_optimizer.steps
        return min(steps - 1, int((1 - self.options.deciding) * steps))

    def _decide(self, turn: int) -> None:
        # the same for all edges of this turn: what differs between losses is the candidate
        batches = [self.valid.next() for _ in range(self.options.judged_batches)]
        for name, e in self.order[self.decided : turn]:
            candidates = self.alive[name][e].nonzero().flatten().tolist()
            losses = {k: self._loss_without(name, e, k, batches) for k in candidates}
            chosen = max(candidates, key=lambda k: losses[k])
            self.alive[name][e] = False
            self.alive[name][e, chosen] = True
        self.decided = turn

    def choose_now(self) -> None:
        """Everything that is not decided yet, then the inputs of the nodes."""
        with self.clock("arch"):
            self._decide(len(self.order))
            batches = [self.valid.next() for _ in range(self.options.judged_batches)]
            for name, e in self.order:
                k = int(self.alive[name][e].nonzero()[0])
                self.strength[name][e] = self._loss_without(name, e, k, batches)
            self.A_bar = self.derive()

    def _loss_without(self, name: str, e: int, k: int, batches: list[Batch]) -> float:
        """L_val of the mixture with the factor of one candidate set to 0."""
        factors = self._mixture(self.learner.A)
        # a factor of 0 is not run, as if the candidate were not there
        factors[name] = factors[name].clone()
        factors[name][e, k] = 0.0
        self.net.use(factors, weighted=True)
        return mean_loss(self.net, batches)

    def _mixture(self, A: Matrices) -> Matrices:
        """softmax over the candidates that are left; exactly 0 for the others, which are not
        run."""
        return {name: masked_softmax(a, self.alive[name]) for name, a in A.items()}

    def preferences(self) -> Matrices:
        """Factors of the mixture, and how much the edge would be missed: so that of each row is
        taken what is left, or what A ranks first, and inputs by strength once that is known."""
        mixture = self._mixture(self.learner.A)
        found = {}
        for name, p in mixture.items():
            # (E,): 0 for the edge that is missed least, by steps of 1 / E
            rank = self.strength[name].argsort().argsort().double() / len(p)
            # all 0 until the last step has measured them
            known = bool(self.strength[name].any())
            found[name] = p + self.alive[name] * rank[:, None] if known else p
        return found

    def use_mixture(self) -> None:
        self.net.use(self._mixture(self.learner.A), weighted=True)

    def occasional(self, steps: int, epochs: int) -> tuple[Callable[[], object], float]:
        """Judging one candidate on one batch, and how often that falls to a step."""
        name, e = self.order[0]
        entries = sum(int(alive.sum()) for alive in self.alive.values()) + len(self.order)
        return (
            lambda: self._loss_without(name, e, 0, [self.valid.next()]),
            entries * self.options.judged_batches / steps / epochs,
        )

    def state_dict(self) -> State:
        return {
            "learner": super().state_dict(),
            "alive": self.alive,
            "strength": self.strength,
            "order": list(self.order),
            "decided": self.decided,
        }

    def load_state_dict(self, state: State) -> None:
        self.alive = {name: alive.clone() for name, alive in state["alive"].items()}
        self.strength = {name: values.clone() for name, values in state["strength"].items()}
        self.order = [(str(name), int(e)) for name, e in state["order"]]
        self.decided = state["decided"]
        super().load_state_dict(state["learner"])
