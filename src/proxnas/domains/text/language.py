"""Language models: an embedding, a recurrent core, and a decoder that shares the embedding's
weights.

Logits of all positions are never stored: decoder and cross-entropy run in chunks, and their
gradients are taken with them. Dropout masks are drawn on the host from a generator that is given,
so that a step can be repeated to the bit.

Shapes: T time steps, B sequences of a batch, V words, E units of the embedding and of the core's
output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

INITIAL = 0.04
"""Weights start uniform in +- this (Liu et al. 2019)."""
CHUNK = 2**22
"""Logits at a time: 16 MiB in float32."""

Hidden = tuple[Tensor, ...]
"""The state of a core between two windows, each tensor (B, units)."""


@dataclass(frozen=True)
class LanguageSize:
    """How large a language model is."""

    words: int
    units: int
    """Of the embedding, of every node and of the output: equal, for the decoder shares the
    embedding's weights."""


@dataclass(frozen=True)
class Dropouts:
    """Chances to drop, with the defaults of DARTS' search on PTB; each mask holds for all time
    steps."""

    output: float = 0.75
    """Units of the core's output."""
    hidden: float = 0.25
    """Units that a node reads of an earlier one (LSTM: the upper layer of the lower)."""
    input: float = 0.75
    """Units of the core's input."""
    embedding: float = 0.2
    """Units of the embedding's output."""
    words: float = 0.0
    """Whole words."""

    @classmethod
    def of(cls, options: Any) -> Dropouts:
        """As the options of a search or a training have them."""
        o = options
        return cls(o.drop_output, o.drop_hidden, o.drop_input, o.drop_embedding, o.drop_words)


NOTHING = Dropouts(0, 0, 0, 0, 0)


class Masks(NamedTuple):
    """Factors 0 or 1 / (1 - chance), or None where nothing is dropped."""

    output: Tensor | None = None
    hidden: Tensor | None = None
    input: Tensor | None = None
    embedding: Tensor | None = None
    words: Tensor | None = None


class Core(Protocol):
    """The recurrent part: inputs (T, B, E) and a state in, outputs (T, B, E) and the next state
    out."""

    widths: tuple[int, ...]
    """Units of each tensor of its state."""
    inner: int
    """Units of the mask for what it reads of itself."""

    def __call__(
        self, x: Tensor, hidden: Hidden, mask: Tensor | None = None
    ) -> tuple[Tensor, Hidden]: ...


class Features(NamedTuple):
    """Outputs of the core as they are and after dropout, and its state."""

    raw: Tensor
    dropped: Tensor
    hidden: Hidden


class Spoken(NamedTuple):
    """A window of text: the loss with its regularisers, the mean cross-entropy, right answers, and
    the state after."""

    loss: Tensor
    cross_entropy: Tensor
    right: Tensor
    hidden: Hidden


class LanguageModel(nn.Module):
    """Next-word logits from words."""

    def __init__(self, size: LanguageSize, core: nn.Module, dropouts: Dropouts = NOTHING) -> None:
        super().__init__()
        self.size, self.dropouts = size, dropouts
        self.embedding = nn.Parameter(uniform(size.words, size.units))
        self.core = core
        self.bias = nn.Parameter(torch.zeros(size.words))

    def initial(self, batch_size: int) -> Hidden:
        """The state before a text."""
        return tuple(self.embedding.new_zeros(batch_size, width) for width in self._core.widths)

    @property
    def _core(self) -> Core:
        return cast("Core", self.core)

    def masks(
        self,
        batch_size: int,
        generator: torch.Generator | None = None,
        columns: slice = slice(None),
    ) -> Masks:
        """Fresh dropout masks for a window, or for some of its columns as if they were for all."""
        d, B, E = self.dropouts, batch_size, self.size.units
        chances = (d.output, d.hidden, d.input, d.embedding, d.words)
        # one row a sequence, alike at all times; words are dropped as rows of the embedding
        shapes = ((B, E), (B, self._core.inner), (B, E), (B, E), (self.size.words, 1))
        made = Masks(
            *(self._mask(p, shape, generator) for p, shape in zip(chances, shapes, strict=True))
        )
        own = Masks(*(None if mask is None else mask[columns] for mask in made))
        return own._replace(words=made.words)  # a word is dropped in all columns

    def _mask(
        self, chance: float, shape: tuple[int, int], generator: torch.Generator | None
    ) -> Tensor | None:
        if not chance:
            return None
        # on the host: the same on every device
        kept = torch.rand(shape, generator=generator) >= chance
        return (kept / (1 - chance)).to(self.embedding)

    def features(self, x: Tensor, hidden: Hidden, masks: Masks | None = None) -> Features:
        """The outputs of the core for words x (T, B)."""
        m = masks or Masks()
        embedded = nn.functional.embedding(
            x, self.embedding if m.words is None else self.embedding * m.words
        )
        raw, after = self._core(
            _apply_mask(_apply_mask(embedded, m.embedding), m.input), hidden, m.hidden
        )
        return Features(raw, _apply_mask(raw, m.output), after)

    def forward(self, x: Tensor, *hidden: Tensor) -> tuple[Tensor, ...]:
        """(logits (T, B, V), the state after): without dropout, for few positions at a time."""
        features = self.features(x, hidden or self.initial(x.shape[1]))
        return nn.functional.linear(features.dropped, self.embedding, self.bias), *features.hidden


def speak(
    model: LanguageModel,
    x: Tensor,
    y: Tensor,
    hidden: Hidden | None = None,
    masks: Masks | None = None,
    activation: float = 0.0,
    slowness: float = 0.0,
) -> Spoken:
    """The loss on a window: cross-entropy + activation |dropped output|^2 + slowness |change of the
    output|^2 (means).

    The two are AR and TAR of Merity et al. 2017. Give the `hidden` of one window, detached, to the
    next.
    """
    raw, dropped, after = model.features(x, hidden or model.initial(x.shape[1]), masks)
    cross_entropy, right = decoded_loss(
        dropped.flatten(0, 1), model.embedding, model.bias, y.flatten()
    )
    loss = cross_entropy
    if activation:
        loss = loss + activation * dropped.square().mean()
    if slowness and len(raw) > 1:
        # of the output before dropout, as in AWD-LSTM
        loss = loss + slowness * (raw[1:] - raw[:-1]).square().mean()
    return Spoken(loss, cross_entropy.detach(), right, tuple(s.detach() for s in after))


def decoded_loss(
    features: Tensor, weight: Tensor, bias: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """(mean cross-entropy of softmax(features W' + b), right answers), a chunk of rows at a
    time."""
    if not torch.is_grad_enabled():
        features, weight, bias = features.detach(), weight.detach(), bias.detach()
    loss, right = _DecodedLoss.apply(features, weight, bias, y)  # type: ignore[no-untyped-call]
    return loss, right


class _DecodedLoss(torch.autograd.Function):
    """The gradients are computed beside the loss: logits would have to be kept or computed
    again."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor]:
        need_x, need_w, need_b, _ = ctx.needs_input_grad
        dx = torch.empty_like(features) if need_x else None
        dw = torch.zeros_like(weight) if need_w else None
        db = torch.zeros_like(bias) if need_b else None
        losses, right = [], torch.zeros((), dtype=torch.long, device=y.device)
        rows = max(1, CHUNK // len(weight))
        for start in range(0, len(y), rows):
            part, target = features[start : start + rows], y[start : start + rows, None]
            logits = torch.addmm(bias, part, weight.t())
            top, best = logits.max(-1, keepdim=True)
            right += (best == target).sum()
            # taken before the logits are overwritten
            at_target = logits.gather(-1, target)
            # p = exp(z - max z), not yet divided by its sum: in place, (rows, V) is the largest
            # tensor there is
            p = logits.sub_(top).exp_()
            total = p.sum(-1, keepdim=True)
            # -log softmax(z)_y = log sum exp(z - max) + max - z_y
            losses.append((total.log() + top - at_target).sum())
            if not (need_x or need_w or need_b):
                continue
            # dF/dz = softmax(z) - one_hot(y)
            p.div_(total).scatter_add_(-1, target, p.new_full(target.shape, -1.0))
            if dx is not None:
                # dx = dz W, dW = dz' x, db = sum dz
                torch.mm(p, weight, out=dx[start : start + rows])
            if dw is not None:
                dw.addmm_(p.t(), part)
            if db is not None:
                db += p.sum(0)
        ctx.save_for_backward(dx, dw, db)
        ctx.count = len(y)
        ctx.mark_non_differentiable(right)
        return torch.stack(losses).sum() / len(y), right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, _: None) -> tuple[Tensor | None, ...]:
        # the mean's 1 / N comes last: small numbers keep their digits
        return *(None if d is None else d * (g / ctx.count) for d in ctx.saved_tensors), None


def uniform(*shape: int) -> Tensor:
    """Initial weights."""
    return torch.empty(shape).uniform_(-INITIAL, INITIAL)


def _apply_mask(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask
