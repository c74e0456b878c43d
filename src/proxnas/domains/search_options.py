"""What is known of a search space before it is built; what the searches of a domain are told, and
where its sizes come from. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from proxnas.common.errors import OptionError
from proxnas.common.options import Options


@dataclass(frozen=True)
class SpaceTraits:
    """The respects in which a space may be different."""

    kind: str = "cnn"
    """Of its genotypes."""
    parted: bool = True
    """Whether candidates can read a part of the channels."""
    reduces: bool = True
    """Whether it has a reduction cell beside the normal one."""
    refined: bool = False
    """Whether short trainings after a search compare the found cell with its neighbours by
    themselves: where these are few and one is mostly better (docs/results.md)."""
    wired: bool = False
    """Whether nodes choose which states they read."""
    many_edges: bool = True
    """Whether cells have several edges with the same candidates."""
    has_tables: bool = False
    """Whether there are tables of its trained cells."""


Precision = Literal["fp32", "bf16", "fp16"]
WeightOptimizers = Literal["sgd", "muon"]
Wiring = Literal["free", "inputs", "auto"]


@dataclass(frozen=True)
class DomainOptions(Options):
    """How data of one kind are read, and how large the networks for them are."""

    heading: ClassVar[str] = "data and networks:"

    protocols: ClassVar[tuple[str, ...]] = ()
    """Those that its searches have."""
    weightless: ClassVar[bool] = False
    """Whether candidates have neither weights nor products."""
    cells_of_images: ClassVar[bool] = False
    """Whether what is found is a cell of an image classifier."""
    own_rates: ClassVar[bool] = False
    """Whether its rates stand over those of a method or a preset, which are those for images."""
    or_smaller: ClassVar[str] = ""
    """What else would bring networks within a limit, for an error."""

    @classmethod
    def choose_protocol(cls, data: str) -> str:
        """The protocol that suits the data."""
        raise NotImplementedError

    @classmethod
    def sizes(cls, protocol: str, space: str) -> dict[str, Any]:
        """Option -> its value by a protocol in a space."""
        return {}

    @classmethod
    def fixed(cls, space: str) -> dict[str, Any]:
        """What a method's defaults cannot change in a space."""
        return {}

    @classmethod
    def check_protocol(cls, protocol: str, space: str) -> None:
        """An InputError for a protocol of another domain."""
        if protocol not in (*cls.protocols, "auto"):
            advice = f"does not go with {{space}} {space}: leave it out"
            raise OptionError("protocol", protocol, advice)
