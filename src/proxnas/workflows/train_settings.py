"""From a command line to the configuration of a training: protocol, file, flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from proxnas import __version__
from proxnas.common.errors import InputError
from proxnas.common.options import build
from proxnas.common.stored import read_json, unreadable
from proxnas.domains import TrainableDomain
from proxnas.runs.options import NOT_STORED, RunConfig
from proxnas.searching.settings import (
    AnyRunConfig,
    checked_values,
    command_line,
    config_file,
    with_help,
)
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


def stored(folder: Path, command: str, cls: type[AnyRunConfig]) -> AnyRunConfig:
    """The configuration in a run folder: of that command, of a version that does the same, and with
    every value, since a default in place of one that is missing would go on with another run."""
    path = folder / "config.json"
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, "use --force to run anew") from error
    if not isinstance(found, dict) or "proxnas" not in found:
        raise InputError(f"{path}: not written by proxnas: choose another --run")
    writer, version = str(found.get("command"))[:40], str(found.get("proxnas"))[:40]
    if writer != command:
        raise InputError(
            f"{folder}: holds a run of `proxnas {writer}`, not of {command}: choose another --run"
        )
    if _release(version) != _release(__version__):
        raise InputError(
            f"{path}: written by proxnas {version}, which may do otherwise than this one"
            f" ({__version__}): go on with that version, or use --force to run anew"
        )
    values = checked_values(path, found, cls)
    kept = [field.name for field in dataclasses.fields(cls) if field.name not in NOT_STORED]
    if missing := [name for name in kept if name not in values]:
        raise InputError(
            f"{path}: {missing[0]} is missing, with which the run was begun: restore the file, or"
            " use --force to run anew"
        )
    return cls(**values)


def _release(version: str) -> str:
    """The part of a version within which a run goes on as it began."""
    return ".".join(version.split(".")[:2])


def need(config: RunConfig, *names: str) -> None:
    """An InputError unless the words that have no flag are all there."""
    for name in names:
        if not getattr(config, name):
            raise InputError(
                f"{name.upper().removesuffix('S')} is missing: --help shows how it is given"
            )
