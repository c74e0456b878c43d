"""Errors of the search and the training in `fit`, which has options of its own for the same
things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial

from proxnas.common.errors import AboutOptions
from proxnas.runs.options import RunConfig
from proxnas.searching.options import SearchOptions


@contextmanager
def searching(cls: type[RunConfig]) -> Iterator[None]:
    """Within, errors are about the search of a `fit` with these options."""
    with _renamed(partial(of_search, cls)):
        yield


@contextmanager
def training(cls: type[RunConfig]) -> Iterator[None]:
    """The same about its training."""
    with _renamed(partial(of_training, cls)):
        yield


@contextmanager
def _renamed(rename: Callable[[str], str]) -> Iterator[None]:
    try:
        yield
    except AboutOptions as error:
        raise error.renamed(rename) from error.__cause__


def of_search(cls: type[RunConfig], name: str) -> str:
    """An option of a search in the words of `fit`: epochs is search_epochs there, final_cells is
    cells, and what has no option of its own stands in the file of search_config."""
    known = {field.name for field in fields(cls)}
    if f"search_{name}" in known:
        return f"{{search_{name}}}"
    # final_cells of a search are the cells of the network that a fit trains
    final = name.removeprefix("final_")
    if final != name and final in known:
        return f"{{{final}}}"
    of_final_network = f"final_{name}" in SearchOptions.all_hints()
    if name in known and not of_final_network:
        return f"{{{name}}}"
    return f"{name} (in {{search_config}})"


def of_training(cls: type[RunConfig], name: str) -> str:
    """An option of a training: what has none of its own in `fit` stands in the file of
    train_config."""
    known = {field.name for field in fields(cls)}
    return f"{{{name}}}" if name in known else f"{name} (in {{train_config}})"
