"""A network of Choices as a function of A_bar: its loss, and the gradient of A by the fast path of scoring.py.

Shapes: E edges (rows), K candidates; A and A_bar are (E, K) for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from proxnas.choice import Call, Choice, Group, Route, Row
from proxnas.ops import shared_relu
from proxnas.scoring import Share, scores
from proxnas.types import Batch, Matrices

LOSS_SCALE = 1024.0
EVERYTHING = Share()


class Supernet:
    """A module that holds Choices, seen as a function of A_bar.

    `groups` describes cells (which rows enter which node); each Choice that belongs to none gets a group of its own.
    """

    def __init__(
        self,
        module: nn.Module,
        groups: Mapping[str, Group] | None = None,
        criterion: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self.module = module
        self.criterion = criterion
        self.precision = precision
        self.route = Route()
        self.groups: dict[str, Group] = dict(groups or {})
        self.choices: dict[str, Choice] = {n: m for n, m in module.named_modules() if isinstance(m, Choice)}
        if not self.choices:
            raise ValueError("the module holds no Choice: there is nothing to search")
        for name, choice in self.choices.items():
            self._adopt(name, choice)

    def _adopt(self, name: str, choice: Choice) -> None:
        choice.row = choice.row or Row(name, 0)
        choice.route = self.route
        group = self.groups.setdefault(choice.row.group, Group(choice.names))
        if group.candidates != choice.names:
            raise ValueError(
                f"Choice {name!r} shares row {choice.row.group!r} but has the candidates {', '.join(choice.names)} "
                f"instead of {', '.join(group.candidates)}"
            )

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters(), torch.empty(0)).device

    def use(self, A_bar: Matrices, weighted: bool = False) -> None:
        """From now on run the non-zero entries of A_bar; `weighted`: multiplied by them, else by 1."""
        self.route.active = {
            Row(group, e): tuple(k for k, a in enumerate(row) if a)
            for group, matrix in A_bar.items()
            for e, row in enumerate(matrix.tolist())
        }
        self.route.values = self._factors(A_bar) if weighted else None

    def _factors(self, A_bar: Matrices) -> dict[Row, tuple[Tensor, ...]]:
        # unbind, not indexing: its backward is one stack instead of one zero matrix an entry
        like = next(self.module.parameters(), torch.empty(0))
        moved = {group: matrix.to(like.device, like.dtype) for group, matrix in A_bar.items()}
        return {Row(g, e): row.unbind(0) for g, matrix in moved.items() for e, row in enumerate(matrix.unbind(0))}

    def autocast(self) -> torch.autocast:
        """Where operations run in the chosen precision; float32 leaves everything as the weights are."""
        return torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32)

    def __call__(self, x: Tensor) -> Tensor:
        with self.autocast():
            output: Tensor = self.module(x)
        return output

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss on a batch, and the network's output."""
        output = self(batch.x)
        full = output if self.precision == torch.float32 else output.float()
        return self.criterion(full, batch.y), output

    def gradient(self, loss: Tensor, of: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """dloss/dx for each x; in float16 by a loss scaled up, lest small gradients vanish."""
        if self.precision != torch.float16:
            return torch.autograd.grad(loss, of, allow_unused=True)
        scaled = torch.autograd.grad(loss * LOSS_SCALE, of, allow_unused=True)
        return tuple(None if g is None else g / LOSS_SCALE for g in scaled)

    def architecture_gradient(
        self, batch: Batch, weights: Sequence[Tensor] = (), share: Share = EVERYTHING
    ) -> tuple[Matrices, tuple[Tensor | None, ...]]:
        """dF/dA_bar at the architecture in use, for all entries; and dF/dw for the `weights` asked for."""
        with self.taped() as tape:
            loss, _ = self.loss(batch)
        for call in tape:
            if call.output._version != call.version:
                raise RuntimeError("the output of a Choice was changed in place; use the out-of-place form after it")
        gradients = self.gradient(loss, [call.output for call in tape] + list(weights))
        with self.autocast():
            dA = scores(tape, gradients[: len(tape)], self.groups, share)
        return dA, gradients[len(tape) :]

    @contextmanager
    def taped(self) -> Iterator[list[Call]]:
        """Note what the nodes read and put out in the forward passes within."""
        self.route.tape = []
        try:
            with shared_relu():  # the tape keeps what nodes read; this wins as much memory back
                yield self.route.tape
        finally:
            self.route.tape = None
