"""A trained language model on a text that may not be the one it was trained on."""

from __future__ import annotations

from typing import Any

from proxnas.domains.text.data.text import Text
from proxnas.domains.text.data.vocabulary import UNKNOWN
from proxnas.domains.text.model import TextModel, text_for
from proxnas.domains.text.options import TextTestOptions
from proxnas.domains.text.perplexity import read_through


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
