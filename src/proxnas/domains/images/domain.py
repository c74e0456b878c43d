"""Images: classifiers of convolutional cells. No torch before it is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.cells.designs import Architecture, Design
from proxnas.cells.kinds import BY_HAND
from proxnas.cells.reading import read_architecture
from proxnas.common.errors import InputError, OptionError
from proxnas.common.plugins import of_others
from proxnas.common.say import plain
from proxnas.domains.images.fitting import ImageFitting
from proxnas.domains.images.networks import NETWORKS
from proxnas.domains.images.options import ImageSearchOptions, ImageTestOptions, ImageTrainOptions
from proxnas.domains.images.protocols import OF_CELLS, PROTOCOLS, train_values
from proxnas.domains.images.spaces import SPACES, space_traits
from proxnas.domains.search_options import DomainOptions, SpaceTraits
from proxnas.training.options import Defaults, TestOptions, TrainOptions

if TYPE_CHECKING:
    import torch

    from proxnas.domains.images.data.images import Images
    from proxnas.domains.images.model import Model
    from proxnas.domains.images.task import ImageTask
    from proxnas.domains.images.training import ImageTraining

MOST_SHOWN = 20
"""Classes whose confusion matrix fits on a screen."""


class ImageDomain:
    """Images, their spaces, networks and models."""

    name = "images"
    spaces: Mapping[str, str] = SPACES
    protocols: Mapping[str, Defaults] = PROTOCOLS
    shared: tuple[str, ...] = ()
    train_options: type[TrainOptions] = ImageTrainOptions
    test_options: type[TestOptions] = ImageTestOptions
    fitting = ImageFitting()
    search_options: type[DomainOptions] = ImageSearchOptions

    def traits(self, space: str) -> SpaceTraits:
        return space_traits(space)

    def claims(self, data: object) -> bool:
        if not isinstance(data, str):
            from proxnas.domains.images.data.images import Images, is_dataset

            return isinstance(data, Images | Mapping) or is_dataset(data)
        # cheap questions first: the last one reads a whole folder
        if data == "digits" or data.partition(":")[0] in of_others("data"):
            return True
        if Path(data).suffix.lower() in (".npz", ".parquet"):
            return True
        if Path(data.partition("?")[0]).suffix.lower() in (".csv", ".tsv"):
            return True
        if not os.path.isdir(os.path.expanduser(data)):
            return False
        from proxnas.domains.images.data.images import load

        try:  # what a folder holds is known when it is read
            load(data)
        except InputError:
            return False
        return True

    def claims_cell(self, cell: str) -> bool:
        try:
            return read_architecture(cell).kind in (*NETWORKS, BY_HAND)
        except InputError:
            return False

    def claims_model(self, metadata: Mapping[str, str]) -> bool:
        return metadata.get("domain") == json.dumps(self.name) or "classes" in metadata

    def load(self, data: Any, options: Any) -> Images:
        from proxnas.domains.images.data.images import load

        return load(data, options.load_options())

    def kept_as(self, data: Any) -> str:
        from proxnas.domains.images.data.kept import is_of_paths

        return "data.csv" if is_of_paths(data) else "data.npz"

    def content_of(self, data: Any) -> bytes:
        from proxnas.domains.images.data.kept import csv_of, is_of_paths, npz_of

        return csv_of(data) if is_of_paths(data) else npz_of(data)

    def task(self, options: Any, data: Any, space: Any, device: torch.device) -> ImageTask:
        from proxnas.domains.images.task import ImageTask

        return ImageTask(options, data, space, device)

    def read_cell(self, cell: str | Path) -> Architecture:
        return read_architecture(cell)

    def train_values(
        self, protocol: str, data: str, architecture: Architecture | None
    ) -> dict[str, Any]:
        return train_values(protocol, data, architecture)

    def check_training(self, options: Any, architecture: Architecture | None) -> None:
        if not isinstance(architecture, Design):
            return
        for name, neutral in OF_CELLS.items():
            value = getattr(options, name)
            if value != neutral:
                raise OptionError(
                    name, value, f"is for cells, not for {options.cell}: leave it out"
                )

    def training(self, options: Any, data: Any, architecture: Architecture | None) -> ImageTraining:
        from proxnas.domains.images.training import ImageTraining

        assert architecture is not None, "every image classifier is described by one"
        return ImageTraining(options, data, architecture)

    def plan_lines(self, figures: Mapping[str, Any]) -> list[str]:
        f = figures
        cells = f"{f['cells']} cells, {f['channels']} channels"
        return [
            (
                f"{f['protocol']}: images {'x'.join(map(str, f['images']))}, {f['classes']}"
                f" classes, {f['train_images']} to train on, {f['valid_images']} to choose the best"
                " weights by"
            ),
            (
                f"network: {f.get('network') or cells}, {f['params']:,} parameters, {f['flops']:,}"
                " multiply-adds"
            ),
        ]

    def read_model(self, file: Any, metadata: Mapping[str, str], device: torch.device) -> Model:
        from proxnas.domains.images.model import read_model

        return read_model(file, metadata, device)

    def test(self, model: Any, options: Any, data: Any = None) -> dict[str, Any]:
        from proxnas.domains.images.testing import load_for, test_model

        return test_model(model, load_for(model, options, data), options.part)

    def score(self, figures: Mapping[str, Any]) -> float:
        return float(figures[figures.get("metric", "accuracy")])

    def test_lines(self, figures: Mapping[str, Any]) -> list[str]:
        if "metric" in figures:
            return _lines_of_targets(figures)
        top5 = f"  top 5 {figures['top5']:.4f}" if "top5" in figures else ""
        lines = [
            f"{figures['part']} accuracy {figures['accuracy']:.4f}{top5}"
            f"  loss {figures['loss']:.4f}  ({figures['images']} images: {figures['tested']})"
        ]
        accuracies = {plain(name): accuracy for name, accuracy in figures["per_class"].items()}
        width = max(map(len, accuracies))
        for name, accuracy in accuracies.items():
            shown = "no images" if accuracy is None else f"{accuracy:.4f}"
            lines.append(f"  {name:<{width}}  {shown}")
        if len(figures["confusion"]) > MOST_SHOWN:
            return lines
        lines.append("confusion (row: true class, column: answer)")
        # columns as wide as the largest count
        digits = len(str(max(map(max, figures["confusion"]))))
        for name, row in zip(figures["classes"], figures["confusion"], strict=True):
            counts = " ".join(f"{count:>{digits}}" for count in row)
            lines.append(f"  {plain(name):<{width}}  {counts}")
        return lines

    def predict(self, model: Any, inputs: Any, top: int) -> list[list[Any]]:
        single = isinstance(inputs, str | os.PathLike)
        answers: list[list[Any]] = model.predict([inputs] if single else inputs, top)
        return answers

    def generate(self, model: Any, prompt: str, **how: Any) -> str:
        raise InputError(
            "not a language model written by proxnas: give the model of a train run on text"
        )

    def export(
        self, model: Any, files: Mapping[str, Path], data: Any, folder: Path | None
    ) -> tuple[dict[str, float], str]:
        from proxnas.domains.images.deliver import images_for
        from proxnas.domains.images.export import export_model

        images, what = images_for(model, data, folder)
        found = export_model(model, images, files.get("onnx"), files.get("torch"))
        return {kind: found[path] for kind, path in files.items()}, what

    def card(self, model: Any, files: Mapping[str, Path], found: Mapping[str, Any]) -> str:
        from proxnas.domains.images.deliver import card_text

        return card_text(model, files, found)


def _lines_of_targets(figures: Mapping[str, Any]) -> list[str]:
    """The figures of numbers or labels, of all and of each."""
    shown = {name: figures[name] for name in figures if isinstance(figures[name], float)}
    lines = [
        f"{figures['part']} "
        + "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
        + f"  ({figures['images']} images: {figures['tested']})"
    ]
    for name, each in figures["each"].items():
        values = [f"{key} {value:.4f}" for key, value in each.items() if value is not None]
        lines.append(f"  {plain(name)}  {'  '.join(values) or 'no images'}")
    return lines


IMAGES = ImageDomain()
