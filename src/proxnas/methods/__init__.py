"""One file a search method, and the dict that names them; resolved late, so that listing them needs
no torch. Imports nothing below `core`: no space, no data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from proxnas.common.errors import unknown
from proxnas.common.plugins import of_others, resolve
from proxnas.methods.options import MethodOptions

if TYPE_CHECKING:
    from proxnas.methods.base import Method, Setup

METHODS: dict[str, str | type[Method]] = {
    "nasp": "proxnas.methods.proximal:Nasp",
    "pa": "proxnas.methods.proximal:Pa",
    "lazy-pa": "proxnas.methods.proximal:LazyPa",
    "darts-1st": "proxnas.methods.darts:FirstOrder",
    "darts-2nd": "proxnas.methods.darts:SecondOrder",
    "random": "proxnas.methods.random:RandomSearch",
    "random-ws": "proxnas.methods.random_ws:RandomWs",
    "pc-darts": "proxnas.methods.pc_darts:PcDarts",
    "darts-pt": "proxnas.methods.darts_pt:DartsPt",
    "darts-minus": "proxnas.methods.darts_minus:DartsMinus",
    "fair-darts": "proxnas.methods.fair_darts:FairDarts",
    "drnas": "proxnas.methods.drnas:DrNas",
    "proxyless": "proxnas.methods.proxyless:Proxyless",
    "snas": "proxnas.methods.snas:Snas",
    "gdas": "proxnas.methods.gdas:Gdas",
    "enas": "proxnas.methods.enas:Enas",
    "asap": "proxnas.methods.asap:Asap",
    "asng": "proxnas.methods.asng:Asng",
    "bayesnas": "proxnas.methods.bayesnas:BayesNas",
    "evolution": "proxnas.methods.evolution:EvolutionSearch",
    "local": "proxnas.methods.local:LocalSearch",
    "reinforce": "proxnas.methods.reinforce:ReinforceSearch",
    "pnas": "proxnas.methods.pnas:PnasSearch",
    "spos": "proxnas.methods.spos:Spos",
    "score": "proxnas.methods.score:Score",
    "mnasnet": "proxnas.methods.mnasnet:MnasnetSearch",
    "nao": "proxnas.methods.nao:NaoSearch",
    "genet": "proxnas.methods.genet:GenetSearch",
}
"""Name -> the class of the method, or where it is. Packages of others add theirs by the entry point
`proxnas.methods`, programs by `register`."""


def register(name: str, method: type[Method]) -> None:
    """Adds a method: a class as `Method` describes it, with its `Options`."""
    METHODS[name] = method


def names() -> list[str]:
    """Of all methods."""
    return list({**METHODS, **of_others("methods")})


def find(name: str) -> type[Method]:
    """The class of a method."""
    target = METHODS.get(name) or of_others("methods").get(name)
    if target is None:
        raise unknown("method", name, names())
    if not isinstance(target, str):
        return target
    method: type[Method] = resolve("method", name, target)
    return method


def options_of(name: str) -> type[MethodOptions]:
    """The class of a method's options."""
    cls: type[MethodOptions] = find(name).Options
    return cls


def name_of(options: MethodOptions) -> str:
    """The method that the options are of."""
    for name in names():
        if options_of(name) is type(options):
            return name
    raise unknown("method", type(options).__name__, names())


def public_options() -> Iterator[tuple[str, type[MethodOptions]]]:
    """(name in `proxnas`, class of options) of every method."""
    for name in names():
        cls = options_of(name)
        yield cls.public or name.replace("-", " ").title().replace(" ", ""), cls


def make(name: str, setup: Setup[Any]) -> Method:
    """The method of that name."""
    return find(name)(setup)  # type: ignore[call-arg]
