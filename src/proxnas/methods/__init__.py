"""One file a search method, and the dict that names them; resolved late, so that listing them needs
no torch. Imports nothing below `core`: no space, no data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from proxnas.common.errors import unknown

if TYPE_CHECKING:
    from proxnas.methods.base import Method, Setup

METHODS: dict[str, str] = {
    "nasp": "proxnas.methods.proximal:nasp",
    "pa": "proxnas.methods.proximal:pa",
    "lazy-pa": "proxnas.methods.proximal:lazy_pa",
    "darts-1st": "proxnas.methods.darts:first_order",
    "darts-2nd": "proxnas.methods.darts:second_order",
    "random": "proxnas.methods.random:random",
    "random-ws": "proxnas.methods.random_ws:RandomWs",
    "snas": "proxnas.methods.snas:Snas",
    "gdas": "proxnas.methods.gdas:Gdas",
    "enas": "proxnas.methods.enas:enas",
    "asap": "proxnas.methods.asap:Asap",
    "asng": "proxnas.methods.asng:Asng",
    "bayesnas": "proxnas.methods.bayesnas:BayesNas",
    "evolution": "proxnas.methods.evolution:evolution",
    "local": "proxnas.methods.local:local",
    "reinforce": "proxnas.methods.reinforce:reinforce",
    "pnas": "proxnas.methods.pnas:pnas",
}

SAMPLING = ("random", "evolution", "local", "reinforce", "pnas")
"""Methods that evaluate whole cells, one after the other."""


def make(name: str, setup: Setup) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    module, factory = METHODS[name].split(":")
    method: Method = getattr(import_module(module), factory)(setup)
    return method
