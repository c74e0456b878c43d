"""What PA, lazy PA and NASP have in common before their first step: what they are told, and what
they are made of, which is A and lots from the seed, the rule that selects, the optimizer of w, and
the additions that were asked for.

E edges, K candidates; A is (E, K) for each group and stays on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from proxnas.common.types import Matrices
from proxnas.methods.additions import Additions, AsksForAdditions
from proxnas.methods.base import Setup
from proxnas.methods.discretizer import Discretizer, Prox
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.options import Alternates, Beside, CountsSkips, DescendsA, TrainsPartly, Traits
from proxnas.methods.penalty import PricesSize
from proxnas.methods.published import OFFICIAL, PAPER


@dataclass(frozen=True)
class ProximalOptions(
    TrainsPartly, CountsSkips, AsksForAdditions, PricesSize, Alternates, DescendsA
):
    """One candidate an edge runs, all are scored."""

    traits: ClassVar[Traits] = Traits(starts_from_A=True, any_length=True)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": PAPER, "official": OFFICIAL}

    arch_optimizer: Literal["adam", "scaled", "sgd"] = "adam"
    """Steps of A; scaled: descent with one common scale for all entries."""
    value: Literal["one", "a_k"] = "one"
    """Value of a selected entry of A_bar. a_k: its entry of A, as in the paper."""
    ties: Literal["last", "first"] = "last"
    """Who is selected among equal entries of A. The last selected (else random by seed), or the
    first that is not none."""

    def beyond(self, beside: Beside) -> list[str]:
        """The additions, and steps of A that the paper does not take."""
        scaled = ["scaled steps of A"] if self.arch_optimizer == "scaled" else []
        return super().beyond(beside) + scaled

    def idle(self, beside: Beside) -> dict[str, str]:
        """What only Adam has."""
        found = super().idle(beside)
        if self.arch_optimizer != "adam":
            why = f"with {{arch_optimizer}} {self.arch_optimizer}"
            found |= {"arch_beta1": why, "arch_beta2": why}
        return found


def assemble(
    setup: Setup[ProximalOptions], prox: Prox, project: Prox
) -> tuple[Matrices, Discretizer, Prox, WeightOptimizer, Additions]:
    """What the loop is made of, with the additions that the options ask for: A_bar by `prox`, A
    kept by `project`."""
    o = setup.options
    o.check_due(len(setup.train), setup.weights.epochs)
    drawn = draw(setup)
    discretize = Discretizer(
        setup.net.groups, prox, value=o.value, ties=o.ties, lots=drawn.lots, budget=setup.budget
    )
    w = WeightOptimizer(setup.net, setup.weights, len(setup.train))
    additions = Additions.asked_for(setup, w, drawn.scoring_seed)
    return setup.begin(drawn.A), discretize, project, w, additions


class Drawn(NamedTuple):
    """What a search draws from its seed before the first step."""

    A: Matrices
    """0.5 with a little noise."""
    lots: Matrices
    """What decides among equal entries."""
    scoring_seed: int
    """Of partial scoring: another than that of the noise of exploration."""


def draw(setup: Setup[ProximalOptions]) -> Drawn:
    """The draws of all groups, in an order that is part of what a seed means."""
    # on the host whatever the device, in float64: a seed means the same everywhere
    generator, groups = torch.Generator().manual_seed(setup.seed), setup.net.groups
    A, lots = {}, {}
    for name, group in groups.items():
        noise = torch.randn(group.shape, generator=generator, dtype=torch.float64)
        A[name] = 0.5 + setup.options.arch_noise * noise
    # after all of A: drawn along with it, they would change what a seed stands for
    for name, group in groups.items():
        lots[name] = torch.rand(group.shape, generator=generator, dtype=torch.float64)
    return Drawn(A, lots, int(torch.randint(2**62, (), generator=generator)))
