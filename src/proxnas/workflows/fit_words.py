"""Errors and warnings of the search and the training in `fit`, which has flags of its own for the
same things."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

from proxnas.common.errors import InputError
from proxnas.common.options import in_flags
from proxnas.runs.options import RunConfig
from proxnas.searching.options import SearchOptions


def of_search(text: str, cls: type[RunConfig]) -> str:
    """What a search said, in the words of `fit`: --epochs is --search-epochs there, --final-cells
    is --cells, and what has no flag stands in the file of --search-config."""
    known = {field.name for field in fields(cls)}
    of_final = {
        name.removeprefix("final_")
        for name in SearchOptions.all_hints()
        if name.startswith("final_")
    }

    def reworded(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        if f"search_{name}" in known:
            return f"--search-{match[1]}"
        if name.startswith("final_") and name.removeprefix("final_") in known:
            return "--" + match[1].removeprefix("final-")
        if name in known and name not in of_final:
            return match[0]
        return f"{name} (in --search-config)"

    return re.sub(FLAG, reworded, text)


def of_training(text: str, cls: type[RunConfig]) -> str:
    """What a training said: what has no flag in `fit` stands in the file of --train-config."""
    known = {field.name for field in fields(cls)}

    def reworded(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return match[0] if name in known else f"{name} (in --train-config)"

    return re.sub(FLAG, reworded, text)


FLAG = r"(?<![\w-])--([a-z][a-z0-9-]*)"


@contextmanager
def searching(cls: type[RunConfig]) -> Iterator[None]:
    """Within, errors are about the search of a `fit` with these flags."""
    try:
        yield
    except InputError as error:
        raise InputError(of_search(in_flags(error), cls)) from error.__cause__


@contextmanager
def training(cls: type[RunConfig]) -> Iterator[None]:
    """The same about its training."""
    try:
        yield
    except InputError as error:
        raise InputError(of_training(in_flags(error), cls)) from error.__cause__
