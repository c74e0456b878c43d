"""Networks made by hand, which found ones are held against: a name in place of a cell.

`train`, `test`, `predict` and `export` take either. A design is written like a genotype, as JSON
that names it, so that run folders and model files say what they hold. No torch here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from proxnas.cells.genotype import SCHEMA, Genotype
from proxnas.cells.kinds import BY_HAND
from proxnas.common.errors import InputError, unknown

DESIGNS: dict[str, str] = {
    "ResNet18": "proxnas.domains.images.networks.baselines:resnet18",
    "MobileNet": "proxnas.domains.images.networks.baselines:mobilenet",
    "GoogLeNet": "proxnas.domains.images.networks.branches:googlenet",
    "ShuffleNetV2": "proxnas.domains.images.networks.branches:shufflenet",
    "ShuffleNetV2_2x": "proxnas.domains.images.networks.branches:shufflenet_2x",
    "DenseNet_BC": "proxnas.domains.images.networks.branches:densenet",
    "MobileNetV2": "proxnas.domains.images.networks.published_mobile:mobilenet_v2",
    "MnasNet_A1": "proxnas.domains.images.networks.published_mobile:mnasnet_a1",
    "MnasNet_B1": "proxnas.domains.images.networks.published_mobile:mnasnet_b1",
    "ProxylessNAS_mobile": "proxnas.domains.images.networks.published_mobile:proxyless_mobile",
    "ProxylessNAS_CPU": "proxnas.domains.images.networks.published_mobile:proxyless_cpu",
    "ProxylessNAS_GPU": "proxnas.domains.images.networks.published_mobile:proxyless_gpu",
    "FBNet_A": "proxnas.domains.images.networks.published_mobile:fbnet_a",
    "FBNet_B": "proxnas.domains.images.networks.published_mobile:fbnet_b",
    "FBNet_C": "proxnas.domains.images.networks.published_mobile:fbnet_c",
    "SPOS": "proxnas.domains.images.networks.one_shot:spos",
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
    name = named_design(text)
    return Genotype.from_json(text) if name is None else Design(name)


def named_design(text: str) -> str | None:
    """The name in the JSON of a design; None if it is none."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("kind") != BY_HAND:
        return None
    if data.get("schema") != SCHEMA or not isinstance(data.get("name"), str):
        raise InputError(
            f"a network made by hand is written as schema {SCHEMA} and a name: the file is damaged"
        )
    return str(data["name"])
