"""What a fit on text is told, and how it sizes searches and trainings of language models. No torch
before it is needed: `--help` must be quick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from proxnas.common.errors import OptionError
from proxnas.common.options import COUNT, COUNT_OR_NONE, Range, changed, hints_of
from proxnas.domains.fitting import FitOptions, Free, Say, names_of
from proxnas.domains.text.data.options import TextOptions
from proxnas.domains.text.options import TEXT_PROTOCOLS, TextTrainOptions
from proxnas.domains.text.spaces import SPACES
from proxnas.training.few_steps import windows_for
from proxnas.training.options import DataArgument

if TYPE_CHECKING:
    from proxnas.domains.text.data.text import Text
    from proxnas.domains.trained import TrainedModel


@dataclass(frozen=True)
class TextFitConfig(TextOptions, FitOptions):
    """Search a recurrent cell on a text, train its language model, test it, export it and let it
    write."""

    DOMAIN: ClassVar[str] = "text"

    data: DataArgument = ""
    """pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME (with
    --space rnn)."""
    space: str = next(iter(SPACES))
    """Where to search."""
    protocol: Literal["quick", "ptb", "wt2"] = "quick"
    """Sizes and training."""
    batch_size: Annotated[int, COUNT_OR_NONE] = 0
    """Of both; 0: as the protocol says, smaller for a short text."""
    bptt: Annotated[int, Range(0, 100_000)] = 0
    """Tokens of a window; 0: likewise."""
    units: Annotated[int, Range(0, 16384)] = 0
    """Of the trained network; 0: as the protocol says."""
    prompt: str = ""
    """How the text begins that the model writes at the end."""
    words: Annotated[int, COUNT] = 60
    """So many words (or characters) of it."""
    temperature: Annotated[float, Range(0, 1000)] = 0.7
    """Below 1 likely words become more likely in it; 0: always the likeliest."""

    def check(self) -> None:
        """A space of text."""
        super().check()
        if self.space not in SPACES:
            raise OptionError("space", self.space, f"is for images: give {' or '.join(SPACES)}")

    def token_values(self) -> dict[str, Any]:
        """How the text becomes tokens, for search and training alike."""
        return {name: getattr(self, name) for name in TOKENS}


TOKENS = tuple(hints_of(TextOptions))


OWN = ("epochs", "batch_size", "bptt", "units")
"""Options of a fit that are the training's."""


class TextFitting:
    """Text."""

    options: type[FitOptions] = TextFitConfig
    auto_space = next(iter(SPACES))
    needed: tuple[str, ...] = ("export_difference", "sample")

    def train_values(
        self, config: TextFitConfig, architecture: object, file: Mapping[str, Any]
    ) -> dict[str, Any]:
        values = TEXT_PROTOCOLS[config.protocol] | {"protocol": config.protocol}
        values |= file
        values |= {name: getattr(config, name) for name in OWN if getattr(config, name)}
        return values | config.token_values()

    def search_values(self, config: TextFitConfig, training: TextTrainOptions) -> dict[str, Any]:
        values: dict[str, Any] = {
            "protocol": "quick" if config.protocol == "quick" else "ptb",
            "final_units": training.units,
        }
        chosen = config.token_values() | {"bptt": config.bptt}
        return values | {name: value for name, value in chosen.items() if value}

    def size_search(
        self, config: TextFitConfig, search: Any, data: Any, free: Free
    ) -> tuple[Any, Text]:
        # the smaller of the two parts decides: one is for w, one for A
        text = data if data is not None else _load(search)
        return _fit_windows(
            search, min(len(text.train), len(text.valid)), free
        ), text  # for w and for A

    def size_training(
        self, training: TextTrainOptions, data: Text, free: Free, most: int
    ) -> TextTrainOptions:
        sized: TextTrainOptions = _fit_windows(training, len(data.train), free)
        return sized

    def reads_alike(self, search: Any, training: TextTrainOptions) -> bool:
        return bool(search.text_options() == training.text_options())

    def smaller(
        self, training: TextTrainOptions, data: Text, free: Free
    ) -> Iterator[tuple[TextTrainOptions, Text]]:
        yield training, data

    def size_batches(
        self, training: TextTrainOptions, data: Text, usual: int, epochs: int, free: Free
    ) -> TextTrainOptions:
        return training

    def size_line(self, training: TextTrainOptions) -> str:
        return ""

    def deliver(
        self,
        config: TextFitConfig,
        training: TextTrainOptions,
        model: TrainedModel,
        folder: Path,
        found: Mapping[str, Any],
        say: Say,
    ) -> dict[str, Any]:
        exported = model.deliver(folder, found=found, tell=say)
        return names_of(exported) | {
            "export_difference": max(exported.differences.values()),
            "sample": model.generate(config.prompt, config.words, config.temperature, config.seed),
        }


def _load(options: Any) -> Text:
    from proxnas.domains.text.data.text import load

    return load(options.data, options.text_options())


def _fit_windows(options: Any, tokens: int, free: Free) -> Any:
    """Columns and windows that so many tokens are enough for."""
    fixed = not free("batch_size"), not free("bptt")
    # short texts have fewer columns and shorter windows, or there would be no steps
    batch_size, bptt = windows_for(tokens, options.batch_size, options.bptt, fixed)
    return changed(options, batch_size=batch_size, bptt=bptt)
