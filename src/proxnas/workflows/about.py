"""Which domain a command line is about, before its flags can be judged: they are the domain's."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from proxnas.common.config_file import STAMP
from proxnas.common.errors import InputError, flag_of
from proxnas.common.stored import parse_json, read_json
from proxnas.common.words import given_values, words_without_flags
from proxnas.domains import TrainableDomain, every_domain, named, of_cell, of_space
from proxnas.domains.domain import USUAL, of_unusual_data, trainable
from proxnas.runs.options import RunConfig


def words_of(argv: list[str], *classes: type[RunConfig]) -> list[str]:
    """The words of a command line that are neither flags nor their values; `classes` say which
    flags have none."""
    alone = {"--help", "-h"}
    for cls in classes:
        alone |= {flag_of(name) for name, hint in get_type_hints(cls).items() if hint is bool}
    return words_without_flags(argv, alone)


def trainable_domains() -> list[TrainableDomain]:
    """Those that `train` and `test` know."""
    return [domain for domain in every_domain().values() if isinstance(domain, TrainableDomain)]


def training_domain(argv: list[str]) -> TrainableDomain:
    """What `train` is asked for: by its cell, or by the run that it is to go on with."""
    words = words_of(argv, *(domain.train_options for domain in trainable_domains()))
    # flags are not parsed yet: whose they are is just what is asked
    stored = values_of(argv, "--run")
    given: dict[str, Any] = {"cell": words[0]} if words else values_of(argv, "--config") or stored
    cell = given.get("cell")
    if not isinstance(cell, str) or not cell:
        return trainable(named(USUAL))
    for domain in trainable_domains():
        if domain.claims_cell(cell):
            return domain
    # a cell that is gone since the run was started: whose options stand in its folder?
    for domain in trainable_domains():
        if stored and set(stored) - set(STAMP) <= {x.name for x in fields(domain.train_options)}:
            return domain
    return of_cell(cell)


def testing_domain(argv: list[str]) -> TrainableDomain:
    """What `test` is asked about: by its model."""
    words = words_of(argv, *(domain.test_options for domain in trainable_domains()))
    if not words or not Path(words[0]).exists():
        return trainable(named(USUAL))
    from proxnas.domains.trained import domain_of

    try:
        return domain_of(words[0])
    except InputError:  # no model at all: that will be said
        return trainable(named(USUAL))


def fitting_domain(argv: list[str]) -> TrainableDomain:
    """What `fit` is asked for: by its data, its space, or the run that it is to go on with."""
    stored = values_of(argv, "--run")
    words = words_of(argv, *(domain.fitting.options for domain in trainable_domains()))
    given = given_values(argv, "--space")
    space = given[-1] if given else stored.get("space")
    data = words[0] if words else stored.get("data")
    if isinstance(data, str) and (found := of_unusual_data(data)):
        return trainable(found)
    try:
        return trainable(of_space(space) if isinstance(space, str) else named(USUAL))
    except InputError:  # an unknown space: that will be said
        return trainable(named(USUAL))


def values_of(argv: list[str], flag: str) -> dict[str, Any]:
    """The values in the file of --config, or in the folder of --run."""
    for place in given_values(argv, flag):
        path = Path(place) / "config.json" if flag == "--run" else Path(place)
        try:
            values = read_json(path) if flag == "--run" else parse_json(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(values, dict):
            return values
    return {}
