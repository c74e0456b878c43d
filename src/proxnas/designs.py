"""Networks made by hand, which found ones are held against: a name in place of a cell.

`train`, `test`, `predict` and `export` take either. A design is written like a genotype, as JSON that names it, so that
run folders and model files say what they hold. No torch here.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from proxnas.errors import InputError, unknown
from proxnas.genotype import BY_HAND, MAX_BYTES, SCHEMA, Genotype
from proxnas.genotype import read as read_genotype
from proxnas.stored import opened

DESIGNS: dict[str, str] = {
    "ResNet18": "proxnas.networks.baselines:resnet18",
    "MobileNet": "proxnas.networks.baselines:mobilenet",
    "GoogLeNet": "proxnas.networks.branches:googlenet",
    "ShuffleNetV2": "proxnas.networks.branches:shufflenet",
    "ShuffleNetV2_2x": "proxnas.networks.branches:shufflenet_2x",
    "DenseNet_BC": "proxnas.networks.branches:densenet",
}
"""Name -> 'module:function' that makes its network, resolved late."""


@dataclass(frozen=True)
class Design:
    """A network made by hand."""

    name: str
    kind: ClassVar[str] = BY_HAND
    space: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.name not in DESIGNS:
            raise unknown("network", str(self.name)[:40], DESIGNS)

    def to_json(self) -> str:
        """The design as a run's genotype.json and a model's metadata hold it."""
        return json.dumps({"schema": SCHEMA, "kind": self.kind, "name": self.name}) + "\n"


Architecture = Genotype | Design
"""What a network is made from."""


def from_json(text: str) -> Architecture:
    """A design, or else a genotype, from what `to_json` wrote."""
    name = _named(text)
    return Genotype.from_json(text) if name is None else Design(name)


def read(path_or_text: str | os.PathLike[str]) -> Architecture:
    """The design of zoo:NAME, of a run folder or of a file; or else a genotype, wherever one can be."""
    if isinstance(path_or_text, str) and path_or_text.startswith("zoo:"):
        from proxnas import zoo  # late: the zoo is made of architectures

        return zoo.entry(path_or_text).genotype
    name = _named(_beginning(Path(path_or_text)))
    return read_genotype(path_or_text) if name is None else Design(name)


def _beginning(path: Path) -> str:
    """What a file holds, if it is small enough to be a design; what is wrong with it the genotype's reader says."""
    try:
        in_run = path.is_dir()
        path = path / "genotype.json" if in_run else path
        with opened(path) if in_run else path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8-sig")
    except (OSError, ValueError):
        return ""


def _named(text: str) -> str | None:
    """The name in the JSON of a design; None if it is none."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("kind") != BY_HAND:
        return None
    if data.get("schema") != SCHEMA or not isinstance(data.get("name"), str):
        raise InputError(f"a network made by hand is written as schema {SCHEMA} and a name: the file is damaged")
    return str(data["name"])
