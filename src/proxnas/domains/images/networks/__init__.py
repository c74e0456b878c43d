"""Discrete networks from a Genotype or made by hand, and the stacks of cells that search networks
share with them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from proxnas.cells.designs import DESIGNS, Architecture, Design
from proxnas.common.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from proxnas.domains.images.networks.cnn import Size

NETWORKS: dict[str, str] = {
    "cnn": "proxnas.domains.images.networks.cnn:cell_network",
    "nasbench201": "proxnas.domains.images.networks.nasbench201:nasbench201_network",
    "chain": "proxnas.domains.images.networks.chain:chain_network",
    "mobile": "proxnas.domains.images.networks.mobile:mobile_network",
    "genet": "proxnas.domains.images.networks.genet:genet_network",
}
"""Kind of a genotype -> 'module:function' that makes its network, resolved late."""


def build_network(genotype: Architecture, size: Size) -> nn.Module:
    """The network that is trained, for a genotype of any kind that classifies images, or for a
    design.

    A design has a size of its own: of `size` it takes what is read and told apart, and the stem. It
    is called with images and gives logits.
    """
    if isinstance(genotype, Design):
        module, function = DESIGNS[genotype.name].split(":")
        made: nn.Module = getattr(import_module(module), function)(size)
        return made
    if genotype.kind not in NETWORKS:
        raise InputError(
            f"a cell of kind {genotype.kind} makes no image classifier: give one of"
            f" {', '.join(NETWORKS)}"
        )
    module, function = NETWORKS[genotype.kind].split(":")
    network: nn.Module = getattr(import_module(module), function)(genotype, size)
    return network
