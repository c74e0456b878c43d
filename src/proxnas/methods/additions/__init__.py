"""What we add to Algorithm 2, one object a file with its reason; the paper's loop has none of
them."""

from __future__ import annotations

from dataclasses import dataclass

from proxnas.common.types import Matrices, State
from proxnas.core.share import Share
from proxnas.core.supernet import EVERYTHING
from proxnas.methods.additions.exploration import Exploration
from proxnas.methods.additions.lookahead import LookAhead
from proxnas.methods.additions.price import Price
from proxnas.methods.additions.scoring import PartialScoring
from proxnas.methods.base import Setup
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.unrolled import UnrolledStep

__all__ = ["Additions", "Exploration", "LookAhead", "PartialScoring", "Price"]


@dataclass(frozen=True)
class Additions:
    """What a proximal search does besides Alg. 2; None: it does not."""

    exploration: Exploration | None = None
    look_ahead: LookAhead | None = None
    partial_scoring: PartialScoring | None = None
    price: Price | None = None
    second_order: UnrolledStep | None = None

    @classmethod
    def asked_for(cls, setup: Setup, w: WeightOptimizer, scoring_seed: int) -> Additions:
        """Those that the options and the limit ask for."""
        o, steps = setup.architecture, len(setup.train)
        partial = (o.score_batch, o.score_nodes) != (1, 1)
        return cls(
            exploration=Exploration(o.explore, setup.seed, w) if o.explore else None,
            look_ahead=LookAhead(setup.net, w, o.look_ahead, o.horizon) if o.look_ahead else None,
            partial_scoring=(
                PartialScoring(o.score_batch, o.score_nodes, scoring_seed, w) if partial else None
            ),
            price=Price(setup.budget, steps * setup.weights.epochs) if setup.budget else None,
            second_order=UnrolledStep(setup.net, w) if o.order == 2 else None,
        )

    def noise(self, A: Matrices) -> Matrices | None:
        """What exploration adds to A when this step selects."""
        return self.exploration.noise(A) if self.exploration else None

    def share(self) -> Share:
        """What is scored in this step."""
        return self.partial_scoring.share() if self.partial_scoring else EVERYTHING

    def state_dict(self) -> State:
        """Of all that remember something, also of those that are not there: whoever goes on with
        a run finds every key."""
        ahead, price = self.look_ahead, self.price
        return {
            "potentials": ahead.potentials if ahead else {},
            "looked": ahead.looked if ahead else 0,
            "price": [price.value, price.excess] if price else [0.0, 0.0],
        }

    def load_state_dict(self, state: State) -> None:
        if self.look_ahead:
            self.look_ahead.potentials = state["potentials"]
            self.look_ahead.looked = state["looked"]
        if self.price:
            self.price.value, self.price.excess = state["price"]
