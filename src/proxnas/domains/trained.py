"""A trained model of any domain: tested, asked, exported and saved in the same words.

model = proxnas.load_model("runs/train-digits-DARTS_V2-0")
model.test("digits")["accuracy"], model.predict(["seven.png"])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from proxnas.cells.designs import Architecture
from proxnas.common.environment import pick_device
from proxnas.common.errors import InputError
from proxnas.common.files import write_atomically
from proxnas.common.onnx_runtime import onnx_available
from proxnas.common.options import build
from proxnas.common.say import say
from proxnas.domains.domain import TrainableDomain, of_metadata
from proxnas.domains.exporting import CARD, ONNX, PROGRAM, Exported, check_places
from proxnas.report.page import FILE as PAGE
from proxnas.report.page import write_report
from proxnas.report.reading import find_runs, read_result
from proxnas.training.job import Model
from proxnas.training.model_file import FILE, find_model, read_file
from proxnas.training.options import TestOptions


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained network with all that belongs to it."""

    domain: TrainableDomain
    model: Model
    """The domain's own: classes or vocabulary, and what only it can do."""
    folder: Path | None = None
    """The run that it is of."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """What result.json of that run says."""

    def __repr__(self) -> str:
        """Data, figures and folder in a line: the network itself would fill pages."""
        info = self.info
        names = ("data", *(name for name in sorted(info) if name.startswith("test_")), "params")
        told = {name: info[name] for name in names if isinstance(info.get(name), str | int | float)}
        told |= {"folder": str(self.folder)} if self.folder else {}
        return f"TrainedModel({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    @property
    def network(self) -> nn.Module:
        return self.model.network

    @property
    def genotype(self) -> Architecture | None:
        """What the network is made of; None: a network that no genotype describes."""
        return self.model.genotype

    @property
    def info(self) -> Mapping[str, Any]:
        """What is known of it: data, figures, params, flops, epochs, seed."""
        return self.model.info

    def predict(self, inputs: Any, top: int = 1) -> list[Any]:
        """For each input the `top` most probable answers (name, probability), best first.

        Images: arrays as it was trained on, or image files, which are brought to its size. Text:
        prompts, whose next words are answered.
        """
        if top < 1:
            raise InputError(f"top {top}: give a number of at least 1")
        return self.domain.predict(self.model, inputs, top)

    def generate(
        self, prompt: str = "", words: int = 100, temperature: float = 1.0, seed: int = 0
    ) -> str:
        """What a language model writes on from a prompt."""
        how = {"count": words, "temperature": temperature, "seed": seed}
        return self.domain.generate(self.model, prompt, **how)

    def test(self, data: Any, **options: Any) -> dict[str, Any]:
        """The figures on a part of DATA, a word or path, or images as `proxnas.train` takes them;
        `options` as `proxnas test` takes them: part, ..."""
        named = data if isinstance(data, str) else "data"
        # options hold a name; data in memory go beside them
        asked = build(self.domain.test_options, {"data": named, **options})
        return self.domain.test(self.model, asked, None if isinstance(data, str) else data)

    def test_by(self, options: TestOptions) -> dict[str, Any]:
        """The same by options that are made already."""
        return self.domain.test(self.model, options)

    def score(self, data: Any, **options: Any) -> float:
        """How good it is on DATA, more is better: the accuracy; of a language model minus the loss
        of a word."""
        return self.domain.score(self.test(data, **options))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the model into a file, or as model.safetensors into a folder; returns the file."""
        place = Path(path)
        file = place / FILE if place.is_dir() else place
        self.model.save(file)
        return file

    def report(self, path: str | os.PathLike[str] = "") -> Path:
        """Writes the page of the run that it is of, report.html beside it unless named; returns the
        file."""
        if self.folder is None:
            raise InputError("a report needs the files of a run: train with run=FOLDER")
        return write_report(find_runs(self.folder), Path(path) if path else self.folder / PAGE)

    def export(
        self,
        onnx: str | os.PathLike[str] = "",
        torch: str | os.PathLike[str] = "",
        card: str | os.PathLike[str] = "",
        data: Any = None,
        found: Mapping[str, Any] | None = None,
    ) -> Exported:
        """Writes the files asked for: ONNX, a torch.export program, both checked, and the model
        card.

        `data`: images to check the files on; without them those of the run. `found`: how the cell
        was found, for the card; without it as the run says.
        """
        wanted = {kind: Path(place) for kind, place in (("onnx", onnx), ("torch", torch)) if place}
        if not wanted and not card:
            raise InputError("nothing to write: give onnx, torch or card a file")
        check_places(wanted.get("onnx"), wanted.get("torch"))
        differences: dict[str, float] = {}
        # a card alone needs no files, and nothing to check them on
        checked_on = ""
        if wanted or data is not None:
            differences, checked_on = self.domain.export(self.model, wanted, data, self.folder)
        exported = Exported(wanted, differences, checked_on)
        if not card:
            return exported
        return self._with_card(
            exported, Path(card), found_by(self.folder) if found is None else found
        )

    def deliver(
        self,
        folder: Path,
        data: Any = None,
        found: Mapping[str, Any] | None = None,
        tell: Callable[[str], None] = say,
        more: Callable[[Mapping[str, Path]], Mapping[str, Any]] | None = None,
    ) -> Exported:
        """model.onnx, or model.pt2 without the extra `onnx`, and model_card.md in a folder. `more`
        makes other files of those, and says what the card is to tell of them."""
        if onnx_available():
            exported = self.export(onnx=folder / ONNX, data=data)
        else:
            exported = self.export(torch=folder / PROGRAM, data=data)
            tell(f"{PROGRAM} written instead of {ONNX}: pip install 'proxnas[onnx]' to have that")
        # the card comes last: it tells of the files that `more` has made
        told = dict(found_by(self.folder) if found is None else found)
        told |= more(exported.files) if more else {}
        return self._with_card(exported, folder / CARD, told)

    def _with_card(self, exported: Exported, card: Path, found: Mapping[str, Any]) -> Exported:
        write_atomically(card, self.domain.card(self.model, exported.files, found))
        return replace(exported, files={**exported.files, "card": card})


def load_model(place: str | os.PathLike[str], device: str = "cpu") -> TrainedModel:
    """The model of a file, or of the folder of a train or fit run, ready to use; an InputError says
    what is wrong with it."""
    path = find_model(place)
    where = pick_device(device)

    # the metadata say whose model it is before a network is built
    def read(file: Any, metadata: Mapping[str, str]) -> tuple[TrainableDomain, Model]:
        domain = of_metadata(metadata)
        return domain, domain.read_model(file, metadata, where)

    domain, model = read_file(path, read)
    return TrainedModel(domain, model, path.parent, read_result(path.parent))


def domain_of(place: str | os.PathLike[str]) -> TrainableDomain:
    """The domain of the model in a file or run folder."""
    return read_file(find_model(place), lambda file, metadata: of_metadata(metadata))


def found_by(folder: Path | None) -> dict[str, Any]:
    """How the cell was found that the train run in `folder` trained: its search's result, or the
    `cell` it was given.

    `fit` keeps the search beside the training; `train` may have been given the folder of a search.
    """
    if folder is None:
        return {}
    result = read_result(folder)
    search = result.get("search")
    if isinstance(search, Mapping) and isinstance(search.get("said"), str):
        return {**result, "said": search["said"]}  # a fit by the clock: search and training in one
    cell = result.get("cell")
    # RUN/train lies beside RUN/search in a fit; else CELL may be the folder of a search
    places = [folder.parent / "search", *([Path(cell)] if isinstance(cell, str) and cell else [])]
    for place in places:
        if "method" in (result := read_result(place)):
            return result
    return {"cell": cell} if isinstance(cell, str) else {}
