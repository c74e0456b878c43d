"""PC-DARTS (Xu, Xie, Zhang, Chen, Qi, Tian, Xiong, 'PC-DARTS: Partial Channel Connections for
Memory-Efficient Architecture Search', ICLR 2020).

Candidates read one in four channels, the others pass by (`--channel-part`, which the network of the
search is built with), and because that makes A unsteady, edges have weights of their own:

    x_j = sum_i softmax(B_.j)_i sum_k softmax(A_ij)_k O_k(x_i)
    the cell is derived by softmax(B_.j)_i softmax(A_ij)_k

The public code moves A after 15 of 50 epochs; here after the same share of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from proxnas.common.errors import OptionError
from proxnas.common.options import BELOW_ONE, NOT_NEGATIVE
from proxnas.common.types import Matrices, State
from proxnas.core.groups import Group
from proxnas.core.selection import changed, one_hot
from proxnas.methods.architecture import ArchitectureOptimizer
from proxnas.methods.base import Setup, relaxed_gradient, weight_step
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import RATE_OF_A, CountsSkips, DescendsA, Traits
from proxnas.runs.metrics import Metrics

EDGES = "edges of "
"""Before the name of a group: the weights of its edges."""


@dataclass(frozen=True)
class PcDartsOptions(CountsSkips, DescendsA):
    """DARTS on a part of the channels, with weights of edges."""

    public: ClassVar[str] = "PCDARTS"
    traits: ClassVar[Traits] = Traits(starts_from_A=True, past_warmup={"resting": 0.0})
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0, "channel_part": 4}

    arch_learning_rate: Annotated[float, RATE_OF_A] = 6e-4
    """Rate of the steps of A."""
    arch_decay: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Weight decay of A."""
    resting: Annotated[float, BELOW_ONE] = 0.3
    """Share of the search, at its start, in which only w is trained."""


class PcDarts:
    """A mixture whose edges compete, too."""

    Options = PcDartsOptions

    def __init__(self, setup: Setup[PcDartsOptions]) -> None:
        self.net, self.clock = setup.net, setup.clock
        self.train, self.valid = setup.train, setup.valid
        self.options = setup.options
        generator = torch.Generator().manual_seed(setup.seed)
        self.A = setup.begin(
            {
                name: self.options.arch_noise
                * torch.randn(group.shape, generator=generator, dtype=torch.float64)
                for name, group in self.net.groups.items()
            }
        )
        # (E, 1) for each group, drawn after all of A: the order is part of what a seed means
        self.B = {
            f"{EDGES}{name}": self.options.arch_noise
            * torch.randn(group.shape[0], 1, generator=generator, dtype=torch.float64)
            for name, group in self.net.groups.items()
        }
        # one Adam and one decay for both
        self.optimizer = ArchitectureOptimizer(self.A | self.B, self.options)
        self.w_optimizer = WeightOptimizer(self.net, setup.weights, len(self.train))
        self._check_moves(self.w_optimizer.steps)
        self.A_bar = self.derive()

    def _check_moves(self, steps: int) -> None:
        """An InputError if A rests throughout: what is returned would be the noise that it starts
        as."""
        resting = self.options.resting
        if (steps - 1) / steps < resting:
            advice = f"in none of the {steps} steps would A move: give less, or more {{epochs}}"
            raise OptionError("resting", resting, advice)

    def step(self) -> Metrics:
        """A and B on a validation batch, once they no longer rest; then w."""
        train, before = self.train.next(), self.A_bar
        if self.w_optimizer.progress >= self.options.resting:
            with self.clock("arch"):
                dA, _ = relaxed_gradient(self.net, self.A | self.B, self.mixture, self.valid.next())
                self.optimizer.step(dA)
                self.A_bar = self.derive()
        self.use_mixture()
        loss, right = weight_step(self.net, train, self.w_optimizer, self.clock)
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def mixture(self, both: Matrices) -> Matrices:
        """The factors of all candidates."""
        return {
            name: among_inputs(both[f"{EDGES}{name}"], group) * both[name].softmax(-1)
            for name, group in self.net.groups.items()
        }

    def derive(self) -> Matrices:
        """The discrete architecture, by the common rule."""
        return {name: one_hot(p, self.net.groups[name]) for name, p in self.preferences().items()}

    def preferences(self) -> Matrices:
        """The factors of the mixture."""
        return self.mixture(self.A | self.B)

    def use_mixture(self) -> None:
        self.net.use(self.preferences(), weighted=True)

    def architecture(self) -> tuple[Matrices, Matrices]:
        return self.A, self.A_bar

    def state_dict(self) -> State:
        return {"A": self.optimizer.state_dict(), "w": self.w_optimizer.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.optimizer.load_state_dict(state["A"])
        self.w_optimizer.load_state_dict(state["w"])
        self.A_bar = self.derive()


def among_inputs(B: Tensor, group: Group) -> Tensor:
    """softmax of the weights (E, 1) over the edges that enter one node."""
    parts = [B[list(rows)].softmax(0) for rows in group.nodes]
    # parts stand in the order of nodes; argsort undoes it, back to that of rows
    order = [e for rows in group.nodes for e in rows]
    places = torch.tensor(order).argsort()
    return torch.cat(parts)[places]
