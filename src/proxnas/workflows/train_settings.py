"""From a command line to the configuration of a training: protocol, file, flags."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from proxnas import __version__
from proxnas.cells.designs import Architecture, Design
from proxnas.cells.reading import read_architecture
from proxnas.common.errors import InputError
from proxnas.common.stored import read_json, unreadable
from proxnas.runs.options import NOT_STORED, RunConfig, flag
from proxnas.searching.settings import (
    AnyRunConfig,
    auto_protocol,
    checked_values,
    command_line,
    config_file,
    with_help,
)
from proxnas.training.options import TrainConfig
from proxnas.training.protocols import BY_KIND, PROTOCOLS

PROG = "proxnas train"
OF_CELLS: dict[str, Any] = {"cells": 1, "channels": 1, "auxiliary": 0.0, "drop_path": 0.0}
"""What a network made by hand has no use for, with the values that ask for nothing."""


def defaults(protocol: str, data: str, genotype: Architecture | None) -> dict[str, Any]:
    """The values of a protocol, `auto` decided by the data, fitted to the kind of the cell."""
    name = auto_protocol(data) if protocol == "auto" else protocol
    values = PROTOCOLS[name]() | {"protocol": name}
    if isinstance(genotype, Design):
        return values | OF_CELLS
    of_kind = BY_KIND.get(genotype.kind) if genotype else None
    return values | (of_kind() if of_kind else {})


def parse_train(argv: list[str]) -> TrainConfig:
    """The configuration of a command line."""
    return with_help(argv, PROG, _resolve)


def _resolve(argv: list[str]) -> TrainConfig:
    file = config_file(argv, TrainConfig)
    named = command_line(TrainConfig, PROG, argv, file)  # the words that choose the layers
    genotype = read_architecture(named.cell) if named.cell and not named.resume else None
    layers = defaults(named.protocol, named.data, genotype)
    config = command_line(
        TrainConfig, PROG, argv, layers | {k: v for k, v in file.items() if k != "protocol"}
    )
    for name, neutral in OF_CELLS.items() if isinstance(genotype, Design) else ():
        if getattr(config, name) != neutral:
            raise InputError(
                f"{flag(name)} {getattr(config, name)}: is for cells, not for {config.cell}: leave"
                " it out"
            )
    return config


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
