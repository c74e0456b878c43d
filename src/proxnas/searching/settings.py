"""From a command line to a configuration: protocols, presets, files and flags.

Defaults come in layers, each over the one before: the dataclass, the protocol (sizes), the method,
the preset (where paper and public code differ), a --config file, the flags. What is stored in
config.json is the outcome, so a run can be repeated whatever the defaults become.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from proxnas.common.cores import check_threads
from proxnas.common.errors import InputError, unknown
from proxnas.common.launch import here
from proxnas.common.say import note
from proxnas.common.stored import is_figure
from proxnas.common.stored import parse as parse_json
from proxnas.domains.images.domain import auto_protocol
from proxnas.domains.text.search_options import recurrent
from proxnas.methods import METHODS
from proxnas.runs.options import FINGERPRINT, MAY_CHANGE, NOT_STORED, RunConfig, flag
from proxnas.runs.worker_options import with_address
from proxnas.searching.options import ONE_OR_HALF, SearchConfig
from proxnas.searching.sampling_options import BY_ITSELF, table_defaults
from proxnas.searching.uses import check_asked, of_use
from proxnas.workflows.lengthening import as_long_as

Config = TypeVar("Config")
AnyRunConfig = TypeVar("AnyRunConfig", bound=RunConfig)

POSITIONAL = ("data", "cell")
"""Fields that are words without a flag."""

STAMP = ("proxnas", "command", FINGERPRINT)
"""Keys of a stored config.json that are no flags: the version, the command that wrote it, what
tells its data."""
RENAMED = {"budget_minutes": "minutes"}
"""Keys of files that earlier versions wrote, with their names today."""


def quick() -> dict[str, Any]:
    """Small data on a laptop."""
    return {
        "epochs": 15,
        "batch_size": 32,
        "cells": 5,
        "channels": 16,
        "final_cells": 8,
        "final_channels": 16,
    }


def cifar() -> dict[str, Any]:
    """The paper's search on CIFAR-10 and the network it trains."""
    return {
        "epochs": 50,
        "batch_size": 64,
        "cells": 8,
        "channels": 16,
        "final_cells": 20,
        "final_channels": 36,
    }


def nasbench201(protocol: str, method: str) -> dict[str, Any]:
    """The benchmark's own final network; one cell a stage is enough to search on small data. There
    a found cell has few neighbours, and one of them is mostly better (docs/results.md)."""
    sizes = {"final_cells": 5, "final_channels": 16, "cells": 1 if protocol == "quick" else 5}
    return sizes | ({"refine": BY_ITSELF} if method == "nasp" else {})


def resnet() -> dict[str, Any]:
    """The network that is searched is the one that is trained, in width and in depth."""
    return {"cells": 1, "channels": 32, "final_cells": 1, "final_channels": 32}


AS_PUBLISHED = {
    "arch_noise": 0.0,
    "ties": "first",
    "arch_optimizer": "adam",
    "arch_learning_rate": 3e-4,
    "explore": 0.0,
    "look_ahead": 0,
    "refine": 0,
    "patience": 0,
}
"""What paper and public code have in common, against our defaults; what differs all the same is in
docs/paper.md."""


def paper() -> dict[str, Any]:
    """The paper's text."""
    return AS_PUBLISHED | {"value": "a_k", "arch_decay": 0.0, "eta_cells": "all"}


def official() -> dict[str, Any]:
    """What the public code does."""
    return AS_PUBLISHED | {
        "value": "one",
        "arch_decay": 1e-3,
        "eta_cells": "normal",
        "unselected": "drift",
    }


PROTOCOLS = {"quick": quick, "cifar": cifar}
PRESETS = {"default": dict, "paper": paper, "official": official}
METHOD_DEFAULTS: dict[str, dict[str, Any]] = {
    "nasp": {  # by the study in docs/results.md
        "arch_optimizer": "scaled",
        "arch_learning_rate": 5e-4,
        "explore": 0.05,
        "look_ahead": 100,
    },
    "darts-1st": {"arch_decay": 1e-3, "patience": 0},
    "darts-2nd": {"arch_decay": 1e-3, "patience": 0},
    "random": {"patience": 0},
    "random-ws": {"patience": 0},
    "snas": {
        "arch_decay": 1e-3,
        "arch_noise": 0.01,
        "tau_start": 1.0,
        "tau_end": 0.03,
        "patience": 0,
    },
    "gdas": {
        "arch_decay": 1e-3,
        "weight_decay": 5e-4,
        "tau_start": 10.0,
        "tau_end": 0.1,
        "patience": 0,
    },
    "enas": {
        "learning_rate": 0.05,
        "learning_rate_min": 0.0005,
        "weight_decay": 2e-4,
        "arch_learning_rate": 0.0035,
        "patience": 0,
    },
    "asap": {"arch_decay": 1e-3, "tau_start": 1.6, "tau_end": 1.6 * 0.95**50, "patience": 0},
    "asng": {"learning_rate_min": 0.0, "patience": 0},
    "bayesnas": {"learning_rate": 0.1, "weight_decay": 1e-4, "warmup": ONE_OR_HALF, "patience": 0},
    "evolution": {"evaluations": 24, "patience": 0},
    "local": {"evaluations": 24, "patience": 0},
    "reinforce": {"evaluations": 24, "arch_learning_rate": 3.5e-4, "patience": 0},
    "pnas": {"evaluations": 24, "patience": 0},
}
"""As the public codes; what follows a schedule over all epochs, or chooses at the end, is not
stopped before."""


def parse_search(argv: list[str]) -> SearchConfig:
    """The configuration of a command line; an InputError for flags that would do nothing in it."""
    return with_help(argv, "proxnas search", _checked_search)


def _checked_search(argv: list[str]) -> SearchConfig:
    config, defaults = resolve_search(argv)
    check_asked(config, asked_of(config, defaults))
    return config


def asked_of(config: SearchConfig, defaults: dict[str, Any]) -> list[str]:
    """The fields that somebody has set to other values than they would have."""
    plain = {field.name: field.default for field in dataclasses.fields(config)} | defaults
    return [name for name, value in plain.items() if getattr(config, name) != value]


def resolve_search(argv: list[str]) -> tuple[SearchConfig, dict[str, Any]]:
    """The configuration of a command line, and the defaults that its data, space, method and preset
    bring."""
    file = config_file(argv)
    space = given_values(argv, "--space")  # which other flags may be set depends on it
    named = _cli(
        argv, file | ({"space": space[-1]} if space else {})
    )  # what chooses the layers: flags over file
    if named.preset != file.get(
        "preset", named.preset
    ):  # the flag stands over the file, so what it sets does too
        file = {k: v for k, v in file.items() if k not in paper() | official()}
    protocol: str = named.protocol
    text = named.space == "rnn"
    if protocol == "auto":
        protocol = (
            ("ptb" if Path(named.data).is_dir() else "quick") if text else auto_protocol(named.data)
        )
        protocol = "quick" if protocol == "tinyimagenet" else protocol
    layers = recurrent(protocol) if text else PROTOCOLS[protocol]()
    layers |= {"protocol": protocol}
    if named.space == "nasbench201":
        layers |= nasbench201(protocol, named.method)
    if named.space == "resnet":
        layers |= resnet()
    of_method = METHOD_DEFAULTS.get(named.method, {})
    layers |= {
        k: v for k, v in of_method.items() if not text or k not in layers
    }  # their rates are those for images
    if named.evaluate == "table":
        layers |= table_defaults()
    layers |= {
        k: v for k, v in PRESETS[named.preset]().items() if not text or k != "arch_learning_rate"
    }
    layers = {k: v for k, v in layers.items() if of_use(named.method, k)}
    # the space is among the values: which of the others may be set depends on it
    config = _cli(
        argv, layers | {k: v for k, v in file.items() if k != "protocol"} | {"space": named.space}
    )
    return config, layers


def parse_resumed(
    argv: list[str], stored: AnyRunConfig, where: Path, prog: str = "proxnas search"
) -> AnyRunConfig:
    """The stored configuration, after a check that no flag contradicts it."""
    cls = type(stored)
    for name in (
        "space",
        "method",
    ):  # first: the other stored values may be wrong together with another one
        asked = given_values(argv, flag(name))
        if asked and asked[-1] != getattr(stored, name, asked[-1]):
            raise _contradiction(flag(name), asked[-1], getattr(stored, name), where)
    given = command_line(cls, prog, argv, storable(stored) | config_file(argv, cls))
    if getattr(given, "protocol", "") == "auto":
        known: dict[str, Any] = {"protocol": getattr(stored, "protocol", "")}
        given = dataclasses.replace(given, **known)
    check_same(given, as_long_as(given, stored, where), where)
    return given


def check_same(given: RunConfig, stored: RunConfig, where: Path) -> None:
    """An InputError unless both would be the same run."""
    for field in dataclasses.fields(stored):
        old, new = getattr(stored, field.name), getattr(given, field.name)
        if field.name not in NOT_STORED | MAY_CHANGE and old != new:
            name = field.name.upper() if field.name in POSITIONAL else flag(field.name)
            raise _contradiction(name, new, old, where)


def _contradiction(name: str, new: object, old: object, where: Path) -> InputError:
    return InputError(
        f"{name} {new}: the run in {where} was started with {old}; leave the flag out to resume, "
        "or choose another --run"
    )


def storable(config: RunConfig) -> dict[str, Any]:
    """What config.json keeps: everything needed to repeat the run."""
    return {
        name: value for name, value in dataclasses.asdict(config).items() if name not in NOT_STORED
    }


def flags_of(config: RunConfig) -> list[str]:
    """The words of a command line that give this configuration, but for the flags of one call."""
    values = storable(config)
    words = [values.pop(name) for name in POSITIONAL if name in values]
    return words + [word for name, value in values.items() for word in flag_words(name, value)]


def flag_words(name: str, value: Any) -> list[str]:
    """A flag with its value; what is false or empty needs none."""
    if isinstance(value, bool):
        return [flag(name)] * value
    return [f"{flag(name)}={value}"] if value != "" else []


def command_line(
    cls: type[Config], prog: str, argv: list[str], values: dict[str, Any] | None = None
) -> Config:
    """The dataclass from flags, with `values` in place of its defaults."""
    argv = with_address(argv)
    markers: tuple[Any, ...] = (tyro.conf.FlagCreatePairsOff,)  # --quiet without --no-quiet
    with (
        nullcontext() if here().leads else redirect_stderr(io.StringIO())
    ):  # of several processes one complains
        if values:
            # else tyro would offer --no-pick in place of --pick, not both; 1 == True, but is no
            # such flag
            if any(value is True for value in values.values()):
                markers = ()
            found = tyro.cli(cls, args=argv, default=cls(**values), prog=prog, config=markers)
        else:
            found = tyro.cli(cls, args=argv, prog=prog, config=markers)
    check_threads(
        getattr(found, "threads", "auto")
    )  # not at birth: a run may be read, or go on, on another machine
    return found


HELP = ("--help", "-h")


def with_help(
    argv: list[str], prog: str, resolve: Callable[[list[str]], AnyRunConfig]
) -> AnyRunConfig:
    """The configuration that a command line resolves to; with --help its values are shown as the
    defaults.

    They come in layers, so no earlier step may print them. What cannot be resolved is said, and the
    help is that of the command alone.
    """
    words = [word for word in argv if word not in HELP]
    if words == argv:
        return resolve(argv)
    try:
        config = resolve(words)
    except InputError as error:
        note(f"{error}; the defaults below are those without flags")
        config = resolve([])
    return command_line(type(config), prog, ["--help"], dataclasses.asdict(config))


def parse(cls: type[AnyRunConfig], prog: str, argv: list[str]) -> AnyRunConfig:
    """The configuration of a command without layers: the dataclass, a --config file, the flags."""

    def resolve(words: list[str]) -> AnyRunConfig:
        asked = command_line(cls, prog, words)
        return (
            command_line(cls, prog, words, read_values(Path(asked.config), cls))
            if asked.config
            else asked
        )

    return with_help(argv, prog, resolve)


def config_file(argv: list[str], cls: type[RunConfig] = SearchConfig) -> dict[str, Any]:
    """The values of the --config file, found without judging the flags, which may be right only
    together with it."""
    given = given_values(argv, "--config")
    return read_values(Path(given[-1]), cls) if given else {}


def epochs_given(argv: list[str], cls: type[RunConfig]) -> bool:
    """Whether a flag or the --config file says how many epochs; the file of a run does, as they
    were chosen then."""
    return bool(given_values(argv, "--epochs")) or "epochs" in config_file(argv, cls)


def given_values(argv: list[str], name: str) -> list[str]:
    """The values of a flag on a command line that nobody has judged yet."""
    given = [value for word, value in pairwise(argv) if word == name]
    return given + [word.removeprefix(f"{name}=") for word in argv if word.startswith(f"{name}=")]


def _cli(argv: list[str], values: dict[str, Any] | None = None) -> SearchConfig:
    method = given_values(argv, "--method")
    if values and method and method[-1] in METHODS:  # the values may be right only together with it
        values = values | {"method": method[-1]}
    return command_line(SearchConfig, "proxnas search", argv, values)


def read_values(path: Path, cls: type[RunConfig] = SearchConfig) -> dict[str, Any]:
    """Field -> value from a JSON file, checked against the types of the dataclass."""
    try:
        values = parse_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): give a JSON file") from error
    except ValueError as error:
        raise InputError(
            f"{path}: not JSON ({error}): give an object of flag names and values"
        ) from error
    return checked_values(path, values, cls)


def checked_values(path: Path, values: Any, cls: type[RunConfig]) -> dict[str, Any]:
    """The same from JSON that is parsed already."""
    if not isinstance(values, dict):
        raise InputError(f"{path}: not a JSON object of flag names and values")
    kept = {
        RENAMED.get(str(name), str(name)): value
        for name, value in values.items()
        if name not in STAMP
    }
    if kept.get("threads", 1) in (0, None):  # so earlier versions wrote "as many as torch takes"
        kept["threads"] = "auto"
    hints = get_type_hints(cls)
    for name, value in kept.items():
        if name not in hints:
            raise InputError(f"{path}: {unknown('key', name, hints)}")
        if not _fits(value, hints[name]):
            raise InputError(
                f"{path}: {name} is {json.dumps(value)[:60]}: give {_wanted(hints[name])}"
            )
    return kept


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, kind) for kind in get_args(hint))
    if get_origin(hint) is Literal:
        return type(value) is type(get_args(hint)[0]) and value in get_args(hint)
    if hint is float:
        return is_figure(value)
    return type(value) is hint


def _wanted(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_wanted, get_args(hint)))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(hint))
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    return words.get(hint, "a string")
