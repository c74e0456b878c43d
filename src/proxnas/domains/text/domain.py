"""Text: language models of recurrent cells. No torch before it is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import RECURRENT
from proxnas.cells.reading import read_genotype
from proxnas.cells.zoo import LSTM, PREFIX
from proxnas.common.errors import InputError
from proxnas.domains.search_options import DomainOptions, SpaceTraits
from proxnas.domains.text.data.corpus import is_text
from proxnas.domains.text.fitting import TOKENS, TextFitting
from proxnas.domains.text.options import (
    TEXT_PROTOCOLS,
    TextSearchOptions,
    TextTestOptions,
    TextTrainOptions,
)
from proxnas.domains.text.spaces import SPACES, space_traits
from proxnas.training.options import Defaults, TestOptions, TrainOptions

if TYPE_CHECKING:
    import torch

    from proxnas.domains.text.data.text import Text
    from proxnas.domains.text.model import TextModel
    from proxnas.domains.text.task import TextTask
    from proxnas.domains.text.training import TextTraining
    from proxnas.training.answers import Answer


class TextDomain:
    """Text, its space, networks and models."""

    name = "text"
    spaces: Mapping[str, str] = SPACES
    protocols: Mapping[str, Defaults] = TEXT_PROTOCOLS
    shared = TOKENS
    train_options: type[TrainOptions] = TextTrainOptions
    test_options: type[TestOptions] = TextTestOptions
    fitting = TextFitting()
    search_options: type[DomainOptions] = TextSearchOptions

    def traits(self, space: str) -> SpaceTraits:
        return space_traits(space)

    def claims(self, data: object) -> bool:
        if isinstance(data, str):
            return is_text(data)
        from proxnas.domains.text.data.text import Text

        return isinstance(data, Text)

    def claims_cell(self, cell: str) -> bool:
        if is_lstm(cell):
            return True
        try:
            return read_genotype(cell).kind == RECURRENT
        except InputError:
            return False

    def claims_model(self, metadata: Mapping[str, str]) -> bool:
        # a file that names no domain is known by its vocabulary
        return metadata.get("domain") == json.dumps(self.name) or "vocabulary" in metadata

    def load(self, data: Any, options: Any) -> Text:
        from proxnas.domains.text.data.text import Text, load

        return data if isinstance(data, Text) else load(data, options.text_options())

    def kept_as(self, data: Any) -> str:
        return "data.txt"

    def content_of(self, data: Any) -> bytes:
        raise InputError(f"data: a {type(data).__name__} is no text: give its name or path")

    def task(self, options: Any, data: Any, space: Any, device: torch.device) -> TextTask:
        from proxnas.domains.text.task import TextTask

        return TextTask(options, data, space, device)

    def read_cell(self, cell: str | Path) -> Genotype | None:
        """None: the LSTM."""
        return None if is_lstm(str(cell)) else read_genotype(cell)

    def train_values(self, protocol: str, data: str, architecture: object) -> dict[str, Any]:
        return TEXT_PROTOCOLS[protocol] | {"protocol": protocol}

    def check_training(self, options: Any, architecture: object) -> None:
        """Every option is for every cell."""

    def training(self, options: Any, data: Any, architecture: Any) -> TextTraining:
        from proxnas.domains.text.training import TextTraining

        return TextTraining(options, data, architecture)

    def plan_lines(self, figures: Mapping[str, Any]) -> list[str]:
        f = figures
        return [
            f"{f['protocol']}: {f['train_tokens']:,} tokens to train on, {f['words']:,} words",
            (
                f"network: {f['units']} units, {f['params']:,} parameters, {f['flops']:,}"
                " multiply-adds a token"
            ),
        ]

    def read_model(self, file: Any, metadata: Mapping[str, str], device: torch.device) -> TextModel:
        from proxnas.domains.text.model import read_model

        return read_model(file, metadata, device)

    def test(self, model: Any, options: Any, data: Any = None) -> dict[str, Any]:
        from proxnas.domains.text.perplexity import test_text_model

        if data is not None:
            raise InputError(f"data: a {type(data).__name__} is no text: give its name or path")
        return test_text_model(model, options)

    def score(self, figures: Mapping[str, Any]) -> float:
        # more is better
        return -float(figures["loss"])

    def test_lines(self, figures: Mapping[str, Any]) -> list[str]:
        f = figures
        return [
            f"{f['part']} perplexity {f['perplexity']:.2f}  loss {f['loss']:.4f}  accuracy"
            f" {f['accuracy']:.4f}  ({f['tokens']:,} tokens of {f['tested']}, {f['unknown']:.1%}"
            " <unk>)"
        ]

    def predict(self, model: Any, inputs: Any, top: int) -> list[list[Answer]]:
        prompts = [inputs] if isinstance(inputs, str) else inputs
        answers: list[list[Answer]] = model.predict(prompts, top)
        return answers

    def generate(self, model: Any, prompt: str, **how: Any) -> str:
        return str(model.generate(prompt, **how))

    def export(
        self, model: Any, files: Mapping[str, Path], data: Any, folder: Path | None
    ) -> tuple[dict[str, float], str]:
        from proxnas.domains.text.export import export_text_model

        if data is not None:
            raise InputError(f"{data}: a language model is exported without DATA: leave it out")
        found = export_text_model(model, files.get("onnx"), files.get("torch"))
        return {kind: found[path] for kind, path in files.items()}, "some text"

    def card(self, model: Any, files: Mapping[str, Path], found: Mapping[str, Any]) -> str:
        from proxnas.domains.text.card import text_card

        return text_card(model, files, found)


TEXT = TextDomain()


def is_lstm(cell: str) -> bool:
    """Whether CELL is the one that is no genotype."""
    return cell.casefold() == f"{PREFIX}{LSTM}".casefold()
