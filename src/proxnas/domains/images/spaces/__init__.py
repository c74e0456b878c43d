"""Search spaces of image classifiers, resolved late so that listing them needs no torch."""

from dataclasses import replace

from proxnas.common.plugins import of_others
from proxnas.domains.search_options import SpaceTraits

SPACES: dict[str, str] = {
    **of_others("spaces"),
    "darts7": "proxnas.domains.images.spaces.cnn:darts7",
    "darts8": "proxnas.domains.images.spaces.cnn:darts8",
    "nasp12": "proxnas.domains.images.spaces.cnn:nasp12",
    "nasp12-full": "proxnas.domains.images.spaces.cnn:nasp12_full",
    "nasbench201": "proxnas.domains.images.spaces.nasbench201:NasBench201",
    "resnet": "proxnas.domains.images.spaces.resnet:resnet",
    "mobile": "proxnas.domains.images.spaces.mobile:mobile",
    "genet": "proxnas.domains.images.spaces.genet:GenetSpace",
    "enas5": "proxnas.domains.images.spaces.enas5:Enas5",
}
"""Name -> 'module:what makes it'; those of other packages (entry point `proxnas.spaces`) too."""

CELLS = SpaceTraits()
WIRED = SpaceTraits(wired=True)
"""Nodes keep two of the states before them."""
CHAIN = SpaceTraits(kind="chain", parted=False, many_edges=False)
"""Blocks of a chain change their channels: they read all of them."""
TRAITS: dict[str, SpaceTraits] = {
    **dict.fromkeys(SPACES, CELLS),
    **dict.fromkeys(("darts7", "darts8", "nasp12", "nasp12-full"), WIRED),
    "nasbench201": SpaceTraits(kind="nasbench201", reduces=False, refined=True, has_tables=True),
    "resnet": CHAIN,
    "mobile": replace(CHAIN, kind="mobile"),
    "genet": replace(CHAIN, kind="genet", reduces=False),
}
"""Of each space."""


def space_traits(name: str) -> SpaceTraits:
    """What is known of a space before it is built; of those of others: nothing unusual."""
    return TRAITS.get(name, CELLS)
