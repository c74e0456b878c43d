"""What differs between images, text and modules of the user: data, spaces, networks, losses and
figures, export. Each is a folder behind the Protocol `Domain`; the folders do not import each
other, and all may import the rooms up to `training`."""

from proxnas.domains.domain import (
    Domain,
    TrainableDomain,
    every_domain,
    load_for_search,
    named,
    of_cell,
    of_data,
    of_metadata,
    of_options,
    of_space,
)

__all__ = [
    "Domain",
    "TrainableDomain",
    "every_domain",
    "load_for_search",
    "named",
    "of_cell",
    "of_data",
    "of_metadata",
    "of_options",
    "of_space",
]
