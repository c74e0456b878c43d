"""Search spaces of language models, resolved late so that listing them needs no torch."""

from proxnas.cells.kinds import RECURRENT
from proxnas.domains.search_options import SpaceTraits

SPACES: dict[str, str] = {"rnn": "proxnas.domains.text.space:RecurrentSpace"}
"""Name -> 'module:what makes it'."""
USUAL = SpaceTraits(kind=RECURRENT, parted=False, reduces=False)
TRAITS: dict[str, SpaceTraits] = dict.fromkeys(SPACES, USUAL)
"""Of each space."""


def space_traits(name: str) -> SpaceTraits:
    """What is known of a space before it is built; of those of others: nothing unusual."""
    return TRAITS.get(name, USUAL)
