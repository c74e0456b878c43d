"""From a command line to the configuration of a training: protocol, file, flags."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from proxnas.common.errors import InputError
from proxnas.common.options import Options, build
from proxnas.common.words import command_line, config_file, with_help
from proxnas.domains import TrainableDomain
from proxnas.training.options import TrainOptions
from proxnas.workflows.about import training_domain

PROG = "proxnas train"


def resolve_training(domain: TrainableDomain, values: dict[str, Any]) -> TrainOptions:
    """The options of a training with these values, the others as its protocol, its data and its
    cell say."""
    cls = domain.train_options
    return _settle(domain, build(cls, values), values, partial(build, cls))


def parse_train(argv: list[str]) -> TrainOptions:
    """The options of a command line; whose they are its cell says."""
    return with_help(argv, PROG, partial(_resolve, training_domain(argv)))


def _resolve(domain: TrainableDomain, argv: list[str]) -> TrainOptions:
    cls = domain.train_options
    file = config_file(argv, cls)
    named = command_line(cls, PROG, argv, file)  # the words that choose the layers
    return _settle(domain, named, file, lambda values: command_line(cls, PROG, argv, values))


def _settle(
    domain: TrainableDomain,
    named: TrainOptions,
    given: dict[str, Any],
    make: Callable[[dict[str, Any]], TrainOptions],
) -> TrainOptions:
    """The options that `make` makes of what the protocol, the data and the cell say that are
    `named`, with the values given over them."""
    architecture = domain.read_cell(named.cell) if named.cell and not named.resume else None
    layers = domain.train_values(named.protocol, named.data, architecture)
    options = make(layers | {name: value for name, value in given.items() if name != "protocol"})
    domain.check_training(options, architecture)
    return options


def need(config: Options, *names: str) -> None:
    """An InputError unless the words that have no flag are all there."""
    for name in names:
        if not getattr(config, name):
            raise InputError(
                f"{name.upper().removesuffix('S')} is missing: --help shows how it is given"
            )
