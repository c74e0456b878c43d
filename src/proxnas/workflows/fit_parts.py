"""The two parts of a fit, its search and its training: what each is told, and each built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.cells.genotype import Genotype
from proxnas.common.config_file import read_values
from proxnas.common.options import Options
from proxnas.domains import TrainableDomain, named
from proxnas.domains.domain import trainable
from proxnas.domains.fitting import FitOptions
from proxnas.methods.limit_options import BudgetFlags
from proxnas.searching.defaults import resolve
from proxnas.searching.options import SearchOptions
from proxnas.searching.running import build_search
from proxnas.training.options import TrainOptions
from proxnas.workflows import fit_words

if TYPE_CHECKING:
    from proxnas.searching.job import Search
    from proxnas.training.job import Training

MOST_TRAINING = 4
"""A training is lengthened to at most so many times the epochs of its protocol."""


def domain_of_fit(config: FitOptions) -> TrainableDomain:
    """The domain whose fit is told so."""
    return trainable(named(config.DOMAIN))


def search_config(config: FitOptions) -> SearchOptions:
    """The search of a fit; its epochs as the protocol says or the option."""
    with fit_words.training(type(config)):
        training = train_config(config)  # a bad value is named now, not after the search
    values: dict[str, Any] = {"space": config.space, "method": config.method}
    values |= {"epochs": config.search_epochs, "batch_size": config.batch_size}
    values |= {"deterministic": config.deterministic} | budget_values(config)
    # zeros and empty words are what nobody has asked for: the protocol decides
    values = {name: value for name, value in values.items() if value} | {
        name: value for name, value in config.same_values().items() if name != "deterministic"
    }
    values |= domain_of_fit(config).fitting.search_values(config, training)
    file = read_values(Path(config.search_config), SearchOptions) if config.search_config else {}
    return resolve(values, file)


def budget_values(config: BudgetFlags) -> dict[str, Any]:
    """The limit on the network that is trained: the search has it too."""
    names = [field.name for field in dataclasses.fields(BudgetFlags)]
    return {name: getattr(config, name) for name in names if getattr(config, name) != "auto"}


def train_config(config: FitOptions, genotype: Genotype | None = None) -> TrainOptions:
    """The training of a fit; its epochs as the protocol says or the option."""
    domain = domain_of_fit(config)
    cls = domain.train_options
    file = read_values(Path(config.train_config), cls) if config.train_config else {}
    values = domain.fitting.train_values(config, genotype, file)
    return cls(**values | config.same_values() | {"cell": "../search"})


def is_free(config: FitOptions, file: str, cls: type[Options], name: str) -> bool:
    """Whether nobody gave a value, by the option or in the file of search_config or
    train_config."""
    if getattr(config, name):
        return False
    return not file or name not in read_values(Path(file), cls)


def free_in_training(config: FitOptions) -> Callable[[str], bool]:
    """Which options of its training a fit may choose."""
    return partial(is_free, config, config.train_config, domain_of_fit(config).train_options)


def prepare_search(config: FitOptions) -> Search:
    """The search of a fit, built and fitted to the data, and to the time, where nobody asked for
    anything else. What the training after it would refuse is refused here."""
    fitting = domain_of_fit(config).fitting
    free = partial(is_free, config, config.search_config, SearchOptions)
    with fit_words.searching(type(config)):
        asked, data = fitting.size_search(config, search_config(config), None, free)
        search = build_search(asked, data)
    with fit_words.training(type(config)):
        # where both read alike the data are read once
        same = fitting.reads_alike(asked, train_config(config))
        prepare_training(config, search.genotype(), data if same else None)
    return search


def prepare_training(config: FitOptions, genotype: Genotype, data: Any = None) -> Training:
    """The training of a fit, built; its batches, and its epochs, are such that it has steps, where
    nobody asked for others. `data`: what DATA names, if it was read."""
    domain = domain_of_fit(config)
    asked = train_config(config, genotype)
    loaded = domain.load(asked.data if data is None else data, asked)
    free = free_in_training(config)
    sized = domain.fitting.size_training(asked, loaded, free, MOST_TRAINING)
    return domain.training(sized, loaded, genotype)
