"""How well a language model foresees a text."""

# N tokens of a text; windows are (T, B)

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from proxnas.domains.text.data.text_stream import windows
from proxnas.domains.text.data.vocabulary import Array
from proxnas.domains.text.language import LanguageModel, speak

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
        loss += spoken.cross_entropy.item() * x.numel()
        right += spoken.right.item()
        count, hidden = count + x.numel(), spoken.hidden
    return Reading(loss / count, right / count, count)
