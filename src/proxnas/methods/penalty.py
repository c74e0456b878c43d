"""eta R, what the objective has besides the loss (Eq. proxnasreg: F = L_val + eta R).

E edges, K candidates; A is (E, K) for each group and stays on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from proxnas.common.options import NOT_NEGATIVE
from proxnas.common.types import Matrices
from proxnas.core.size.complexity import R_gradient, parameter_costs
from proxnas.methods.additions import Price
from proxnas.methods.base import Setup
from proxnas.methods.discretizer import Discretizer
from proxnas.methods.options import Beside, CountsCost


@dataclass(frozen=True)
class PricesSize(CountsCost):
    """The size of networks counts beside their loss."""

    eta: Annotated[float, NOT_NEGATIVE] = 0.0
    """Weight of the size regulariser R(A): larger finds smaller networks."""
    eta_cells: Literal["all", "normal"] = "all"
    """Cells that R counts."""
    eta_at: Literal["A_bar", "A"] = "A_bar"
    """Where R is taken: at the discrete architecture, or at A."""

    def weighs_cost(self, limited: bool) -> bool:
        """R has a weight, or a limit its price."""
        return self.eta > 0 or limited

    def idle(self, beside: Beside) -> dict[str, str]:
        """What counts only if size does, and size where it is the same for all."""
        found = super().idle(beside) | self.idle_weight("eta", self.eta, beside)
        if beside.one_cell:
            found["eta_cells"] = f"in {{space}} {beside.space}, which has one cell only"
        if not (self.eta or beside.limited):
            names = ("cost", "eta_at", "eta_cells")
            found |= dict.fromkeys(names, "without {eta} or a limit")
        return found


class SizePenalty:
    """R with its weight, and the price of a limit."""

    def __init__(
        self, setup: Setup[PricesSize], discretize: Discretizer, price: Price | None
    ) -> None:
        self.options, self.discretize, self.price = setup.options, discretize, price
        # without a weight nothing is counted, and by latency nothing is measured
        self.costs = self._costs(setup) if self.options.eta or price else {}

    def _costs(self, setup: Setup[PricesSize]) -> dict[str, Tensor]:
        """Group -> p_k / p_bar (K,), of the groups that R counts."""
        costs = parameter_costs(setup.net) if setup.costs is None else setup.costs
        # the public code sums over the normal matrix alone
        skipped = () if self.options.eta_cells == "all" else ("reduce",)
        return {name: cost for name, cost in costs.items() if name not in skipped}

    @property
    def eta(self) -> float:
        """The weight of R: what was asked for and, while A asks for more than the limit, the price
        of size."""
        return self.options.eta + (self.price.charged if self.price else 0.0)

    def gradient(
        self, A: Matrices, path: Matrices, last: Matrices, noise: Matrices | None
    ) -> Matrices:
        """eta dR/dA of the groups that R counts; `path`: where L_val is taken, `last` and `noise`:
        what it was selected with."""
        # taken at A_bar for A, like the gradient of the loss
        slopes = R_gradient(self.place(A, path, last, noise), self.costs)
        return {name: self.eta * dR for name, dR in slopes.items()}

    def place(
        self, A: Matrices, path: Matrices, last: Matrices, noise: Matrices | None
    ) -> Matrices:
        """Where R is taken: where L_val is, at the path; with a limit at what would be selected
        without it, because that is what has to become smaller.

        At the A_bar without noise, costly entries would be pressed until they just lose, and so
        come and go for ever.
        """
        if self.options.eta_at == "A":
            return A
        return self.discretize.unlimited(A, last, noise) if self.price else path
