"""The model card of a language model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxnas import __version__
from proxnas.core.size.complexity import parameters
from proxnas.domains.text.export import state_names
from proxnas.domains.text.model import TextModel, multiply_adds
from proxnas.report.model_card import Card, escape, model_card

LIMITS = (
    "The perplexity holds for text like that which it was tested on, cut into tokens in the same"
    " way. Words that are not in the vocabulary are read as \\<unk\\>. What it writes is no source"
    " of facts."
)


def text_card(
    model: TextModel, files: Mapping[str, Path], found: Mapping[str, Any] | None = None
) -> str:
    """What the model is for, how good and large it is, how it was made and how to use it, as
    Markdown."""
    info = model.info
    perplexity = (_figure(info.get("test_perplexity")), _tested_on(info))
    figures = {
        "task": f"foresees the next {model.options.tokens} of a text, and writes on from one",
        "data": escape(info.get("data", "")),
        # empty texts are left out of the table
        "test perplexity": " ".join(filter(None, perplexity)),
        "validation perplexity": _figure(info.get("valid_perplexity")),
        "vocabulary": f"{len(model.vocabulary):,}",
        "units": f"{model.size.units:,}",
        "parameters": f"{parameters(model.network):,}",
        "multiply-adds of a token": f"{multiply_adds(model.network):,}",
    }
    return model_card(
        Card(
            figures=figures,
            genotype=model.genotype,
            network="An LSTM of two layers.",
            info=info,
            found=found or {},
            use=_use(model, files) if files else (),
            limits=LIMITS,
            version=__version__,
        )
    )


def _use(model: TextModel, files: Mapping[str, Path]) -> list[str]:
    befores, afters = state_names(model.network)
    names = " and ".join(escape(path.name) for path in files.values())
    return [
        (
            f"{names}: one step. Inputs `words` (int64, one number of the vocabulary for each of N"
            f" texts) and {', '.join(f'`{name}`' for name in befores)} (float32, zeros at the start"
            f" of a text); outputs `logits` (N, {len(model.vocabulary)}) of the next"
            f" {model.options.tokens} and {', '.join(f'`{name}`' for name in afters)}, which are"
            " the states of the next step. The vocabulary is in the metadata of the file."
        ),
        "With proxnas: `proxnas generate MODEL --prompt TEXT`.",
    ]


def _tested_on(info: Mapping[str, Any]) -> str:
    tokens = info.get("test_tokens")
    return f"on {tokens:,} tokens" if isinstance(tokens, int) else ""


def _figure(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else ""
