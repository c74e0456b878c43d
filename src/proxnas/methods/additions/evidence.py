"""Evidence: A rests until the network knows something of the validation labels.

Why: where there is nothing to learn there is nothing to choose by. Scores and promises of
candidates are not 0 then: with shuffled labels larger operations still win, because the network
learns how often each class occurs, and to be less sure. So the loss on validation images is
compared with the loss of the same answers under exchanged labels. Both are equal but for chance
unless the answers fit the images, and as soon as they differ by so many standard errors A is free
for good. A few steps are enough where there is something to learn.
"""

from __future__ import annotations

import statistics

import torch

from proxnas.common.types import Batch, State
from proxnas.core.supernet import Classification, Supernet
from proxnas.runs.consensus import mean_of

LEAST, MOST = 10, 100
"""Batches that are compared, the last ones; of ten or more no more than an epoch has, lest the same
images count twice."""
ASKED_FROM = 100
"""Steps of a search: in fewer there is no time to wait."""

NOTHING_LEARNT = (
    "nothing was learnt of the labels of validation images, so A stayed as it began and the cell is"
    " a random one: look at the labels, or give more epochs"
)


class Evidence:
    """Whether labels are known better than exchanged ones; once it is so it stays so."""

    def __init__(self, net: Supernet, errors: float, batches: int) -> None:
        """`errors`: standard errors that are asked for; `batches`: those of an epoch."""
        self.net, self.errors = net, errors
        self.window = max(LEAST, min(MOST, batches))
        self.leads: list[float] = []
        """What exchanged labels cost more, batch by batch."""
        self.found = False

    def is_there(self, valid: Batch) -> bool:
        """Looks at a batch, at the architecture in use, unless it is known already."""
        if not self.found:
            # the last ones: what was not known at first is no reason to wait on
            self.leads = [*self.leads, self.lead(valid)][-self.window :]
            self.found = len(self.leads) >= LEAST and self.certainty() >= self.errors
        return self.found

    @torch.no_grad()
    def lead(self, valid: Batch) -> float:
        """By how much the loss of the answers is lower than under each other's labels."""
        output = self.net(valid.x).float()
        own = self.net.criterion(output, valid.y)
        # each answer under the label of the image before: as many labels of each class as before
        others = self.net.criterion(output, valid.y.roll(1, 0))
        return float(mean_of(others - own, len(valid.y)))

    def certainty(self) -> float:
        """The mean lead in standard errors."""
        error: float = statistics.stdev(self.leads) / len(self.leads) ** 0.5
        # leads that are all the same have no error, and are certain
        return statistics.fmean(self.leads) / max(error, 1e-12)

    def doubts(self) -> list[str]:
        """That A never moved, if it never was there."""
        return [] if self.found else [NOTHING_LEARNT]

    def state_dict(self) -> State:
        return {"leads": self.leads, "found": self.found}

    def load_state_dict(self, state: State) -> None:
        self.leads, self.found = list(state["leads"]), state["found"]


def can_be_asked(net: Supernet, steps: int) -> bool:
    """Whether labels can be exchanged, and the search is long enough."""
    return isinstance(net.objective, Classification) and steps >= ASKED_FROM
