"""How a text becomes tokens. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from proxnas.common.errors import OptionError
from proxnas.common.options import Options

LEAST_TOKENS = 2  # one to read, one to predict


@dataclass(frozen=True)
class TextOptions(Options):
    """How a text becomes tokens."""

    heading: ClassVar[str] = "data and networks:"

    tokens: Literal["word", "char"] = "word"
    """Words between white space, with <eos> at the end of each line; or characters."""
    max_words: int = 0
    """Keep so many words, the most frequent; the others are <unk>; 0: all."""
    min_count: int = 0
    """Words that occur less often are <unk>; 0: 2, or 1 for a text with <unk> in it."""
    train_tokens: int = 0
    """Train on the first so many tokens only, and take the vocabulary from them; 0: all."""

    def check(self) -> None:
        """What tokens can be made by."""
        super().check()
        for name, least in (("max_words", 3), ("min_count", 1), ("train_tokens", LEAST_TOKENS)):
            if (value := getattr(self, name)) and value < least:
                raise OptionError(name, value, f"give at least {least}, or 0")

    def text_options(self) -> TextOptions:
        """These alone, where more is told."""
        return TextOptions(*(getattr(self, field.name) for field in fields(TextOptions)))
