"""A network of Choices as a function of A_bar: its loss, and the gradient of A by the fast path of
scoring.py.

Shapes: E edges (rows), K candidates; A and A_bar are (E, K) for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from proxnas.common.types import Batch, Inputs, Matrices
from proxnas.core.choice import Call, Choice, MisusedChoice, OwnCall, Route, Routed, Share
from proxnas.core.groups import Group, Row
from proxnas.core.lookahead import Place, Recorded, potentials, slopes
from proxnas.core.scoring import scores
from proxnas.core.sharing import shared_relu
from proxnas.runs.consensus import mean, mean_matrices

# float16 has nothing below 6e-8; a power of two takes no digits from what lies above
LOSS_SCALE = 1024.0
EVERYTHING = Share()


class Objective(Protocol):
    """How a network is judged on a batch."""

    def loss(self, net: Supernet, batch: Batch, weights: bool) -> tuple[Tensor, Any]:
        """The loss, and an output for `measure`; without `weights` nobody will ask for their
        gradients."""

    def measure(self, loss: Tensor, output: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """(the mean loss to report, right answers for each entry of batch.y), still on the
        device."""

    def share(self, batch: Batch) -> float:
        """How large a weight step the batch stands for: 1 for one of the usual length."""

    def examples(self, batch: Batch) -> int:
        """How many the loss is a mean of."""


@dataclass(frozen=True)
class Classification:
    """One answer an example."""

    criterion: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy

    def loss(self, net: Supernet, batch: Batch, weights: bool) -> tuple[Tensor, Tensor]:
        output = net(batch.x)
        # logarithms and exponentials of the criterion need the digits of float32
        full = output if net.precision == torch.float32 else output.float()
        return self.criterion(full, batch.y), output

    def measure(self, loss: Tensor, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        return loss.detach(), correct(output, batch.y)

    def share(self, batch: Batch) -> float:
        return 1.0

    def examples(self, batch: Batch) -> int:
        return len(batch.y)


def correct(output: Tensor, y: Tensor) -> Tensor:
    """How many answers are right, still on the device."""
    return (output.detach().argmax(-1) == y).sum()


class Supernet:
    """A module that holds Choices, seen as a function of A_bar.

    `groups` describes cells (which rows enter which node); each Choice that belongs to none gets a
    group of its own.
    """

    def __init__(
        self,
        module: nn.Module,
        groups: Mapping[str, Group] | None = None,
        criterion: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
        precision: torch.dtype = torch.float32,
        objective: Objective | None = None,
    ) -> None:
        self.module, self.criterion = module, criterion
        self.objective: Objective = objective or Classification(criterion)
        self.precision = precision
        self.route = Route()
        self.groups: dict[str, Group] = dict(groups or {})
        self.choices: dict[str, Choice] = {
            n: m for n, m in module.named_modules() if isinstance(m, Choice)
        }
        # by the value: somebody's module may have a `route` that is something else
        routed = [
            m for m in module.modules() if isinstance(m, Routed) and isinstance(m.route, Route)
        ]
        if not routed:
            raise ValueError("the module holds no Choice: there is nothing to search")
        for part in routed:
            part.route = self.route
        for name, choice in self.choices.items():
            self._adopt(name, choice)

    def _adopt(self, name: str, choice: Choice) -> None:
        choice.row = choice.row or Row(name, 0)
        # the first Choice of a row makes its group, with one edge and one node; others must agree
        group = self.groups.setdefault(choice.row.group, Group(choice.names))
        if group.candidates != choice.names:
            raise ValueError(
                f"Choice {name!r} shares row {choice.row.group!r} but has the candidates"
                f" {', '.join(choice.names)} instead of {', '.join(group.candidates)}"
            )

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters(), torch.empty(0)).device

    def use(self, A_bar: Matrices, weighted: bool = False) -> None:
        """From now on run the non-zero entries of A_bar; `weighted`: multiplied by them, else
        by 1."""
        # A_bar lies on the host: the keys cost no look at the device
        self.route.active = {
            Row(group, e): tuple(k for k, a in enumerate(row) if a)
            for group, matrix in A_bar.items()
            for e, row in enumerate(matrix.tolist())
        }
        self.route.values = self._factors(A_bar) if weighted else None
        self.route.factors = A_bar if weighted else {}

    def _factors(self, A_bar: Matrices) -> dict[Row, tuple[Tensor, ...]]:
        # unbind, not indexing: its backward is one stack instead of one zero matrix an entry
        like = next(self.module.parameters(), torch.empty(0))
        # `to` keeps the graph: methods that relax A get dL/dA through these factors
        moved = {group: matrix.to(like.device, like.dtype) for group, matrix in A_bar.items()}
        return {
            Row(g, e): row.unbind(0)
            for g, matrix in moved.items()
            for e, row in enumerate(matrix.unbind(0))
        }

    def autocast(self) -> AbstractContextManager[object]:
        """Where operations run in the chosen precision; float32 leaves everything as the weights
        are."""
        full = self.precision == torch.float32
        return nullcontext() if full else torch.autocast(self.device.type, self.precision)

    def __call__(self, x: Tensor | Inputs) -> Tensor:
        output: Tensor
        with self.autocast():
            output = self.module(*x.args, **x.kwargs) if isinstance(x, Inputs) else self.module(x)
        return output

    def loss(self, batch: Batch, weights: bool = True) -> tuple[Tensor, Any]:
        """The loss on a batch, and the network's output; without `weights` their gradients may be
        left out."""
        return self.objective.loss(self, batch, weights)

    def gradient(self, loss: Tensor, of: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """dloss/dx for each x; in float16 by a loss scaled up, lest small gradients vanish."""
        if self.precision != torch.float16:
            return torch.autograd.grad(loss, of, allow_unused=True)
        scaled = torch.autograd.grad(loss * LOSS_SCALE, of, allow_unused=True)
        return tuple(None if g is None else g / LOSS_SCALE for g in scaled)

    def architecture_gradient(
        self, batch: Batch, weights: Sequence[Tensor] = (), share: Share = EVERYTHING
    ) -> tuple[Matrices, tuple[Tensor | None, ...]]:
        """dF/dA_bar at the architecture in use, for all entries; and dF/dw for the `weights` asked
        for."""
        # dF/da[(i,j),k] = < g_j , O_k(x_i) >: one backward pass for all g_j, then forwards
        (tape, gradients), of_weights = self._recorded(batch, weights)
        with self.autocast():
            dA = scores(tape, gradients, self.groups, share)
        # each process has a part of the batch: what it counts for is its number of examples
        n = self.objective.examples(batch)
        return mean_matrices(dA, n, self.device), tuple(mean(of_weights, n))

    def potentials(self, train: Batch, valid: Batch) -> Matrices:
        """For all entries what a step of the candidate's own weights on `train` would win on
        `valid`, over xi."""
        choices = self.choices.values()
        if all(next(choice.candidates.parameters(), None) is None for choice in choices):
            return {}  # nothing that could be trained
        recorded, _ = self._recorded(train)
        with self.autocast():
            # numbers as many as weights: the tape, as large as the batch, is done with after this
            u_train = self._of_all(slopes(recorded), train)
        del recorded  # one tape at a time
        recorded, _ = self._recorded(valid)
        with self.autocast():
            found = potentials(u_train, recorded, self.groups)
        return mean_matrices(found, self.objective.examples(valid), self.device)

    def _of_all(
        self, u: dict[Place, tuple[Tensor, ...]], batch: Batch
    ) -> dict[Place, Sequence[Tensor]]:
        """The slopes on the whole batch, of which other processes may have parts."""
        # one message for all places, taken apart again in the same order
        found = iter(mean([x for each in u.values() for x in each], self.objective.examples(batch)))
        return {
            # `each` stands first: a zip that asked `found` first would lose one number a place
            place: [x for _, x in zip(each, found, strict=False) if x is not None]
            for place, each in u.items()
        }

    def _recorded(
        self, batch: Batch, weights: Sequence[Tensor] = ()
    ) -> tuple[Recorded, tuple[Tensor | None, ...]]:
        """A pass at the architecture in use, the gradients at its nodes, and those of the weights
        asked for."""
        with self.taped() as tape:
            loss, _ = self.loss(batch, bool(weights))
        for call in tape:
            # g_j was to be taken at x_j as the node put it out, not at what became of it
            if call.output._version != call.version:
                raise MisusedChoice(
                    "the output of a Choice was changed in place; use the out-of-place form"
                    " after it"
                )
        gradients = self.gradient(loss, [call.output for call in tape] + list(weights))
        return Recorded(tape, gradients[: len(tape)]), gradients[len(tape) :]

    @contextmanager
    def taped(self) -> Iterator[list[Call | OwnCall]]:
        """Note what the nodes read and put out in the forward passes within."""
        self.route.tape = []
        try:
            with shared_relu():  # the tape keeps what nodes read; this wins as much memory back
                yield self.route.tape
        finally:
            self.route.tape = None
