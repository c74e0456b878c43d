"""From a command line to a run on text: whether a command is about text, and the configuration of a
training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

from proxnas.cells.reading import read_genotype
from proxnas.cells.zoo import LSTM, PREFIX
from proxnas.common.errors import InputError
from proxnas.common.stored import parse, read_json
from proxnas.domains.text.options import TEXT_PROTOCOLS, TextTrainConfig
from proxnas.runs.options import RunConfig
from proxnas.searching.settings import command_line, config_file, given_values, with_help

PROG = "proxnas train"


def words_of(argv: list[str], *classes: type[RunConfig]) -> list[str]:
    """The words of a command line that are neither flags nor their values; `classes` say which
    flags have none."""
    alone = {
        f"--{name.replace('_', '-')}"
        for cls in classes
        for name, hint in get_type_hints(cls).items()
        if hint is bool
    } | {"--help", "-h"}
    found, value = [], False
    for word in argv:
        if not value and not word.startswith("-"):
            found.append(word)
        value = not value and word.startswith("--") and "=" not in word and word not in alone
    return found


def about_text(argv: list[str], *classes: type[RunConfig]) -> bool:
    """Whether `train` is asked for a language model: by its cell, or by the run that it is to go on
    with."""
    given = dict(zip(("cell", "data"), words_of(argv, *classes, TextTrainConfig), strict=False))
    if "cell" not in given:
        given = values_of(argv, "--config") or values_of(argv, "--run")
    cell = given.get("cell")
    if not isinstance(cell, str) or not cell:
        return False
    if is_lstm(cell):
        return True
    try:
        return read_genotype(cell).kind == "rnn"
    except (
        InputError
    ):  # a cell that is gone since the run was started, or never was: that will be said
        return "bptt" in (values_of(argv, "--run") or {})


def is_lstm(cell: str) -> bool:
    """Whether CELL is the one that is no genotype."""
    return cell.casefold() == f"{PREFIX}{LSTM}".casefold()


def values_of(argv: list[str], flag: str) -> dict[str, Any]:
    """The values in the file of --config, or in the folder of --run."""
    for place in given_values(argv, flag):
        path = Path(place) / "config.json" if flag == "--run" else Path(place)
        try:
            values = read_json(path) if flag == "--run" else parse(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(values, dict):
            return values
    return {}


def parse_text_train(argv: list[str]) -> TextTrainConfig:
    """The configuration of a command line: protocol, file, flags."""
    return with_help(argv, PROG, _resolve)


def _resolve(argv: list[str]) -> TextTrainConfig:
    file = config_file(argv, TextTrainConfig)
    named = command_line(TextTrainConfig, PROG, argv, file)  # the words that choose the layers
    layers = TEXT_PROTOCOLS[named.protocol]() | {"protocol": named.protocol}
    return command_line(
        TextTrainConfig, PROG, argv, layers | {k: v for k, v in file.items() if k != "protocol"}
    )
