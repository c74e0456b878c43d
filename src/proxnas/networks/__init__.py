"""Discrete networks from a Genotype, and the stacks of cells that search networks share with them."""

from __future__ import annotations

from torch import nn

from proxnas.genotype import Genotype
from proxnas.networks.cnn import Size


def build(genotype: Genotype, size: Size) -> nn.Module:
    """The network of a genotype."""
    from proxnas.networks.cnn import cell_network
    from proxnas.networks.nasbench201 import nasbench201_network

    return (nasbench201_network if genotype.kind == "nasbench201" else cell_network)(genotype, size)
