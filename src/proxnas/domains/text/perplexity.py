"""How well a language model foresees a text, which may not be the one it was trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from proxnas.domains.text.data.text import Text
from proxnas.domains.text.data.text_stream import windows
from proxnas.domains.text.data.vocabulary import UNKNOWN, Array
from proxnas.domains.text.language import LanguageModel, speak
from proxnas.domains.text.model import TextModel, text_for
from proxnas.domains.text.options import TextTestOptions

LARGEST_LOSS = 700.0  # exp of more is no float any more


def perplexity(loss: float) -> float:
    """exp(mean cross-entropy): among so many equally likely words the model would hesitate."""
    return math.exp(min(loss, LARGEST_LOSS))


@dataclass(frozen=True)
class Reading:
    """Figures of one pass over a text."""

    loss: float
    accuracy: float
    """Share of tokens that were thought the likeliest."""
    tokens: int
    """How many were predicted."""

    @property
    def perplexity(self) -> float:
        return perplexity(self.loss)


@torch.no_grad()
def read_through(network: LanguageModel, tokens: Array, batch_size: int, bptt: int) -> Reading:
    """The whole text in order, without dropout, the state carried over from window to window."""
    device = network.embedding.device
    loss = right = 0.0
    count, hidden = 0, None
    for x, y in windows(tokens, batch_size, bptt, device):
        spoken = speak(network, x, y, hidden)
        # a mean over the window: the last one may be shorter
        loss += spoken.cross_entropy.item() * x.numel()
        right += spoken.right.item()
        count, hidden = count + x.numel(), spoken.hidden
    return Reading(loss / count, right / count, count)


def test_text_model(model: TextModel, options: TextTestOptions) -> dict[str, Any]:
    """The figures of a test on a part of DATA."""
    text = text_for(model, options.data, options.other_text)
    part = "test" if options.part == "auto" else options.part
    return {"tested": f"the {part} part of {text.name}"} | text_figures(model, text, part)


test_text_model.__test__ = False  # type: ignore[attr-defined]  # pytest, this is no test


def text_figures(model: TextModel, text: Text, part: str) -> dict[str, Any]:
    """How well it foresees a part, read in the same pieces as at the end of training."""
    tokens = {"train": text.train, "valid": text.valid, "test": text.test}[part]
    found = read_through(
        model.network, tokens, model.whole(f"{part}_batch_size", 10), model.whole("bptt", 35)
    )
    return {
        "part": part,
        "loss": found.loss,
        "perplexity": found.perplexity,
        "accuracy": found.accuracy,
        "tokens": found.tokens,
        "unknown": float((tokens == model.vocabulary.index(UNKNOWN)).mean()),
    }
