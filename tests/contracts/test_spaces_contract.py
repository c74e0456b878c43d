"""What every space and every domain says of itself before anything is built is true."""

from __future__ import annotations

import pytest

from proxnas.domains import TrainableDomain, every_domain
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.spaces import SPACES, find, traits_of
from proxnas.workflows.fit_parts import search_config, train_config


@pytest.mark.parametrize("name", SPACES)
def test_the_traits_of_a_space_are_those_of_its_object(name: str) -> None:
    space, traits = find(name), traits_of(name)
    assert space.name == name
    assert traits.parted == hasattr(space, "part")
    assert traits.reduces or "reduce" not in space.groups


@pytest.mark.parametrize("domain", every_domain().values(), ids=list(every_domain()))
def test_a_domain_is_found_by_the_options_that_it_names(domain: object) -> None:
    if not isinstance(domain, TrainableDomain):
        return
    assert domain.fitting.options.DOMAIN == domain.train_options.DOMAIN == domain.name
    assert domain.fitting.auto_space in domain.spaces
    for space in domain.spaces:
        assert domain.traits(space) == traits_of(space)


@pytest.mark.parametrize("space", ["darts7", "nasbench201", "resnet", "mobile"])
def test_a_search_of_fit_counts_the_network_that_is_trained(space: str) -> None:
    config = FitConfig(data="digits", space=space)
    searched, trained = search_config(config), train_config(config)
    sizes = (searched.final_cells, searched.final_channels)
    assert sizes == (trained.cells, trained.channels)  # type: ignore[attr-defined]
