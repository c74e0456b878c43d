"""The model of NAO: cells as sequences of decisions, an encoder, a predictor and a decoder.

    encoder     an LSTM reads the decisions x_1 .. x_D and their places; h_t, its outputs scaled to
                length 1, are the embedding of the cell, and e their mean, scaled to length 1
    predictor   f(e) = sigmoid(v . relu(U e)): how good the cell is, from 0 to 1
    decoder     an LSTM that begins with e and attends to h_1 .. h_D says the decisions again, only
                those that can be made where it stands

fitted together to  lambda (f - s)^2 + (1 - lambda) (-log p(x_1 .. x_D)),  s the scores scaled to
0 .. 1 and the logarithm a mean over the decisions. The second part also sees random cells: these
cost nothing, and of the few that were evaluated alone the decoder would learn nothing but these.

N cells, D decisions, V different decisions, H units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from proxnas.methods.cells import Cell, Cells


class Slot(NamedTuple):
    """Where a decision stands: the n-th node, whether an input is chosen or a candidate, and the
    words for what can be."""

    node: int
    of_input: bool
    words: tuple[int, ...]


class Language:
    """Cells as words: the i-th row of a node, or a candidate. Every cell of a space has equally
    many."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.rows = max(len(place.rows) for place in cells.places)
        self.first_of: dict[tuple[str, ...], int] = {}
        self.size = self.rows
        for group in cells.groups.values():
            if group.candidates not in self.first_of:  # equal candidates are equal words
                self.first_of[group.candidates] = self.size
                self.size += len(group.candidates)
        self.slots = self._slots()
        self.allowed = torch.zeros(len(self.slots), self.size, dtype=torch.bool)
        for t, slot in enumerate(self.slots):
            self.allowed[t, list(slot.words)] = True

    def _slots(self) -> list[Slot]:
        slots = []
        for n, place in enumerate(self.cells.places):
            candidates = tuple(self._first(n) + k for k in place.usable)
            for _ in range(place.inputs):
                if place.inputs < len(place.rows):
                    slots.append(Slot(n, True, tuple(range(len(place.rows)))))
                slots.append(Slot(n, False, candidates))
        return slots

    def _first(self, n: int) -> int:
        """The word of the first candidate of a node."""
        return self.first_of[self.cells.groups[self.cells.places[n].group].candidates]

    def words(self, cell: Cell) -> list[int]:
        """What the cell is in words (D,)."""
        found = []
        for n, (place, picks) in enumerate(zip(self.cells.places, cell, strict=True)):
            for e, k in picks:
                if place.inputs < len(place.rows):
                    found.append(place.rows.index(e))
                found.append(self._first(n) + k)
        return found

    def cell(self, words: list[int]) -> Cell:
        """The cell that the words say."""
        remaining, nodes = iter(words), []
        for n, place in enumerate(self.cells.places):
            picks = []
            for i in range(place.inputs):
                row = next(remaining) if place.inputs < len(place.rows) else i
                picks.append((place.rows[row], next(remaining) - self._first(n)))
            nodes.append(tuple(sorted(picks)))
        return tuple(nodes)


@dataclass(frozen=True)
class AutoencoderOptions:
    """Small, for the few cells that there are."""

    hidden: int = 64
    steps: int = 200
    batch: int = 50
    """Cells of a step, and as many of the random ones."""
    learning_rate: float = 3e-3
    weight: float = 0.8
    """lambda: of the prediction, beside the reconstruction."""
    decay: float = 0.1
    """Weight decay: there are few cells."""
    unlabelled: int = 500
    """Random cells beside those evaluated, which are only to be said again."""
    spread: float = 0.1
    """Weights start uniformly within +- this."""


class Autoencoder(nn.Module):
    """Encoder, predictor and decoder."""

    def __init__(self, language: Language, hidden: int) -> None:
        super().__init__()
        self.language = language
        self.start = language.size
        """The word before the first."""
        self.embedding = nn.Embedding(language.size + 1, hidden)
        self.places = nn.Embedding(len(language.slots), hidden)
        self.encoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.hidden_layer = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, 1)
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.word = nn.Linear(2 * hidden, language.size)

    def encode(self, words: Tensor) -> Tensor:
        """h (N, D, H) of cells (N, D)."""
        h, _ = self.encoder(self.embedding(words) + self.places.weight)
        return nn.functional.normalize(h, dim=-1)

    @torch.no_grad()
    def embed(self, cells: list[Cell]) -> Tensor:
        """h (N, D, H) of cells."""
        return self.encode(torch.tensor([self.language.words(cell) for cell in cells]))

    def predict(self, h: Tensor) -> Tensor:
        """f (N,)."""
        score = self.value(self.hidden_layer(_mean(h)).relu()).squeeze(-1)
        return torch.sigmoid(score)

    def log_probabilities(self, h: Tensor, words: Tensor) -> Tensor:
        """log p (N, D, V) of every decision, given those before it."""
        # (N, D), teacher forcing: before each decision the decoder is told the true one
        before = torch.cat([torch.full_like(words[:, :1], self.start), words[:, :-1]], 1)
        outputs, _ = self.decoder(self.embedding(before) + self.places.weight, _begin(h))
        logits = self._logits(outputs, h)
        return logits.masked_fill(~self.language.allowed, -torch.inf).log_softmax(-1)

    def _logits(self, outputs: Tensor, h: Tensor) -> Tensor:
        """(N, T, V) of the decoder's outputs (N, T, H), with what they attend to."""
        # (N, T, D): by how much each h_t is attended to
        attention = (outputs @ h.transpose(1, 2)).softmax(-1)
        logits: Tensor = self.word(torch.cat([outputs, attention @ h], -1))
        return logits

    @torch.no_grad()
    def decode(self, h: Tensor) -> list[Cell]:
        """The likeliest decisions one after the other; inputs of a node differ."""
        N, state = len(h), _begin(h)
        word = torch.full((N, 1), self.start)
        said: list[Tensor] = []
        taken = torch.zeros(N, self.language.size, dtype=torch.bool)
        for t, slot in enumerate(self.language.slots):
            if t == 0 or slot.node != self.language.slots[t - 1].node:
                # another node: its inputs are free again
                taken = torch.zeros_like(taken)
            output, state = self.decoder(self.embedding(word) + self.places.weight[t], state)
            logits = self._logits(output, h)[:, 0]
            logits = logits.masked_fill(~self.language.allowed[t] | taken, -torch.inf)
            word = logits.argmax(-1, keepdim=True)
            if slot.of_input:
                taken = taken.scatter(1, word, True)
            said.append(word)
        return [self.language.cell(words) for words in torch.cat(said, 1).tolist()]

    @torch.no_grad()
    def ranked(self, cells: list[Cell]) -> list[Cell]:
        """The cells by what the predictor says, the best first."""
        if not cells:
            return []
        order = self.predict(self.embed(cells)).argsort(descending=True, stable=True)
        return [cells[i] for i in order.tolist()]

    def ascend(self, h: Tensor, eta: float) -> Tensor:
        """h + eta df/dh, every df/dh_t scaled to length 1, so that eta means the same whatever the
        predictor's slope; the outcome is scaled as embeddings are."""
        h = h.detach().requires_grad_()
        # the sum, for the cells do not meet: g[n] is df_n/dh_n
        (g,) = torch.autograd.grad(self.predict(h).sum(), h)
        return nn.functional.normalize(
            h.detach() + eta * nn.functional.normalize(g, dim=-1), dim=-1
        )


def _mean(h: Tensor) -> Tensor:
    return nn.functional.normalize(h.mean(1), dim=-1)


def _begin(h: Tensor) -> tuple[Tensor, Tensor]:
    e = _mean(h)[None].contiguous()
    return e, e


def fit(
    language: Language,
    seen: list[tuple[Cell, float]],
    options: AutoencoderOptions,
    generator: torch.Generator,
) -> Autoencoder:
    """A model of cells and their scores, trained from the start."""
    with torch.device("meta"):  # nothing is drawn from torch's own generator
        model = Autoencoder(language, options.hidden)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for w in model.parameters():
            w.uniform_(-options.spread, options.spread, generator=generator)
    words = torch.tensor([language.words(cell) for cell, _ in seen])
    scores = torch.tensor([score for _, score in seen])
    low, high = scores.min(), scores.max()
    # 0 .. 1, as the sigmoid says them; equal scores become 0
    targets = (scores - low) / (high - low).clamp_min(1e-9)
    drawn = [language.cells.draw(generator) for _ in range(options.unlabelled)]
    unlabelled = torch.tensor([language.words(cell) for cell in drawn])
    adam = torch.optim.AdamW(model.parameters(), options.learning_rate, weight_decay=options.decay)
    for _ in range(options.steps):
        rows = torch.randperm(len(words), generator=generator)[: options.batch]
        adam.zero_grad()
        others = unlabelled[torch.randperm(len(drawn), generator=generator)[: options.batch]]
        loss(model, words[rows], targets[rows], others, options.weight).backward()
        adam.step()
    return model


def loss(
    model: Autoencoder, words: Tensor, targets: Tensor, others: Tensor, weight: float
) -> Tensor:
    """lambda (f - s)^2 + (1 - lambda) (-log p), means over the cells; the other cells have no s."""
    all_words = torch.cat([words, others])
    h = model.encode(all_words)
    # the first cells are those that were evaluated
    prediction = (model.predict(h[: len(words)]) - targets).square().mean()
    log_p = model.log_probabilities(h, all_words).gather(-1, all_words[..., None])
    return weight * prediction - (1 - weight) * log_p.mean()
