"""What we add to Algorithm 2, one object a file with its reason; the paper's loop has none of
them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from proxnas.common.options import NOT_NEGATIVE, SHARE, Range
from proxnas.common.types import Matrices, State
from proxnas.core.choice import Share
from proxnas.core.supernet import EVERYTHING
from proxnas.methods.additions.evidence import Evidence, can_be_asked
from proxnas.methods.additions.exploration import Exploration
from proxnas.methods.additions.lookahead import LookAhead
from proxnas.methods.additions.pooling import Pooling
from proxnas.methods.additions.price import Price
from proxnas.methods.additions.scoring import PartialScoring
from proxnas.methods.base import Setup
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import Beside, MethodOptions
from proxnas.methods.unrolled import UnrolledStep

__all__ = [
    "Additions",
    "AsksForAdditions",
    "Evidence",
    "Exploration",
    "LookAhead",
    "PartialScoring",
    "Pooling",
    "Price",
]


@dataclass(frozen=True)
class AsksForAdditions(MethodOptions):
    """Which of them a search has."""

    order: Literal[1, 2] = 1
    """Gradient of A at w, or DARTS' second order."""
    explore: Annotated[float, NOT_NEGATIVE] = 0.0
    """Scale of the Gumbel noise on A when a step selects. It falls to 0 over the search."""
    look_ahead: Annotated[int, Range(0)] = 0
    """Least steps between looks ahead at what training promises; 0: none. Four an epoch at
    most."""
    horizon: Annotated[float, NOT_NEGATIVE] = 1.0
    """How many steps of its training --look-ahead credits a candidate with."""
    evidence: Annotated[float, NOT_NEGATIVE] = 0.0
    """Standard errors by which labels must be known before A moves. Validation labels are compared
    with exchanged ones; 0: A never rests. In searches of 100 steps or more."""
    pooling: Annotated[float, Range(0, 1)] = 0.0
    """Share of a score that is its mean over the edges of the cell."""
    score_batch: Annotated[float, SHARE] = 1.0
    """Share of the batch that unselected candidates are scored on."""
    score_nodes: Annotated[float, SHARE] = 1.0
    """Chance of a node to be scored in a step."""

    def beyond(self, beside: Beside) -> list[str]:
        """Of what is in this folder; the price is part of a limit, which says so itself."""
        partial = (self.score_batch, self.score_nodes) != (1, 1)
        known = {
            "look-ahead": self.look_ahead and not beside.weightless,
            "exploration": self.explore,
            "waiting for evidence": self.evidence and beside.images,
            "pooled scores": self.pooling and beside.cells,
            "partial scoring": partial,
            "second order": self.order == 2,
        }
        return [name for name, present in known.items() if present]

    def idle(self, beside: Beside) -> dict[str, str]:
        """What a look ahead would use, and the look itself where nothing can be trained."""
        found = super().idle(beside)
        if not self.look_ahead:
            found["horizon"] = "with {look_ahead} 0"
        if beside.weightless:
            found["look_ahead"] = f"in {{space}} {beside.space}, whose candidates have no weights"
        if not beside.images:
            found["evidence"] = f"in {{space}} {beside.space}, which is not of images"
        if not beside.cells:
            found["pooling"] = f"in {{space}} {beside.space}, which has no cells of several edges"
        return found


@dataclass(frozen=True)
class Additions:
    """What a proximal search does besides Alg. 2; None: it does not."""

    exploration: Exploration | None = None
    look_ahead: LookAhead | None = None
    evidence: Evidence | None = None
    pooling: Pooling | None = None
    partial_scoring: PartialScoring | None = None
    price: Price | None = None
    second_order: UnrolledStep | None = None

    @classmethod
    def asked_for(
        cls, setup: Setup[AsksForAdditions], w: WeightOptimizer, scoring_seed: int
    ) -> Additions:
        """Those that the options and the limit ask for."""
        o, steps = setup.options, len(setup.train)
        # all on everything is what the supernet does by itself
        partial = (o.score_batch, o.score_nodes) != (1, 1)
        asked = o.evidence and can_be_asked(setup.net, steps * setup.weights.epochs)
        return cls(
            exploration=Exploration(o.explore, setup.seed, w) if o.explore else None,
            look_ahead=LookAhead(setup.net, w, o.look_ahead, o.horizon) if o.look_ahead else None,
            evidence=Evidence(setup.net, o.evidence, steps) if asked else None,
            pooling=Pooling(o.pooling, setup.net.groups) if o.pooling else None,
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
        ahead, price, evidence = self.look_ahead, self.price, self.evidence
        return {
            "potentials": ahead.potentials if ahead else {},
            "looked": ahead.looked if ahead else 0,
            "price": price.state() if price else [],
            "evidence": evidence.state_dict() if evidence else {},
        }

    def load_state_dict(self, state: State) -> None:
        if self.look_ahead:
            self.look_ahead.potentials = state["potentials"]
            self.look_ahead.looked = state["looked"]
        if self.price:
            self.price.load(state["price"])
        if self.evidence:
            self.evidence.load_state_dict(state["evidence"])
