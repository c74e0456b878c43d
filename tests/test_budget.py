"""Limits on the final network: the sums, the projection, the price of size, and what a search returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxnas import spaces
from proxnas.budget import Budget, Sizes
from proxnas.choice import Group
from proxnas.cli import main
from proxnas.complexity import parameters
from proxnas.config import SearchConfig
from proxnas.errors import InputError
from proxnas.methods import METHODS
from proxnas.projection import best_within
from proxnas.quantities import count, seconds
from proxnas.search import Search
from proxnas.selection import random_selection
from proxnas.sizing import sizes
from proxnas.types import Matrices

MakeSearch = Callable[..., Search]
SPACES = [name for name in spaces.SPACES if name != "nasp12-full"]  # as nasp12, only slower


def random_A(groups: Mapping[str, Group], seed: int) -> Matrices:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(group.shape, generator=generator, dtype=torch.float64) for name, group in groups.items()}


# ------------------------------------------------------------------ sizes


@pytest.mark.parametrize("space", SPACES)
def test_sizes_are_those_of_the_networks_that_are_built(make_search: MakeSearch, space: str) -> None:
    search = make_search("--space", space)
    generator = torch.Generator().manual_seed(0)
    sums = {of: sizes(of, search.task, search.space) for of in ("params", "flops")}
    for _ in range(3):
        A_bar = {name: random_selection(group, generator) for name, group in search.net.groups.items()}
        network = search.final_network(search.space.genotype(A_bar))
        assert sums["params"](A_bar) == parameters(network)
        assert sums["flops"](A_bar) == search.task.multiply_adds(network)
        assert all(s.smallest <= s(A_bar) <= s.largest for s in sums.values())
    assert (space == "rnn") == (sums["params"].smallest == sums["params"].largest)
