"""The price of a limit: an eta that sees to it that A itself asks for no more than is allowed.

Why: selecting the best cell within the limit is enough to return a small network, but A would go on
asking for more than there is room for, and among operations at the top of [0, 1] ties would choose.
So size gets a price, by dual ascent on the limit. It is paid in the steepness of the loss in A:
losses of A's entries differ by hundreds from space to space, and next to a price that is far
steeper the loss has no say.
"""

from __future__ import annotations

from proxnas.common.types import Matrices
from proxnas.core.size.budget import Budget
from proxnas.methods.architecture import Steepness

PRICE_RATE = 2.5
"""How far the price of size rises over a search in which A always asks for the whole span of sizes
too much."""


class Price:
    """What a limit adds to eta."""

    def __init__(self, budget: Budget, steps: int) -> None:
        """`steps`: of the whole search."""
        self.budget, self.rate = budget, PRICE_RATE / steps
        self.value = self.excess = 0.0
        self.steepness = Steepness()

    def follow(self, dA: Matrices) -> None:
        """The gradient of the loss alone, in which it is paid."""
        self.steepness.add(dA.values())

    @property
    def charged(self) -> float:
        """The price while A asks for more than the limit, else 0 (a switching subgradient method):
        A remembers what it was pressed by, and a price that is still falling would press it far
        below the limit."""
        return self.value * self.steepness.value if self.excess > 0 else 0.0

    def adapt(self, wanted: Matrices) -> None:
        """It rises while A asks for more than is allowed, and falls otherwise; `wanted`: what A
        selects where no limit is set."""
        self.excess = self.budget.excess(wanted)
        # dual ascent: the multiplier of an inequality is never negative
        self.value = max(0.0, self.value + self.rate * self.excess)

    def state(self) -> list[float]:
        """All that it remembers."""
        return [self.value, self.excess, self.steepness.mean_square, float(self.steepness.t)]

    def load(self, state: list[float]) -> None:
        """Goes on from `state`."""
        self.value, self.excess, self.steepness.mean_square, t = state
        self.steepness.t = int(t)
