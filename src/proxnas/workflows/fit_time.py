"""How the time of a fit is shared, and the training that makes most of its part."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from proxnas.cells.genotype import Genotype
from proxnas.domains.domain import of_options
from proxnas.domains.fitting import FitOptions, Free
from proxnas.runs.deadline import Deadline
from proxnas.training.few_steps import LEAST_STEPS
from proxnas.training.options import TrainOptions
from proxnas.workflows.fit_parts import MOST_TRAINING, free_in_training, train_config
from proxnas.workflows.jobs import fitting

if TYPE_CHECKING:
    from proxnas.training.job import Training

SEARCH_SHARE = 0.4
"""Of the time that the search may take, its refinement included; the rest, and what it leaves, is
for the training."""
RESERVE = 0.08
"""Of the time that is kept for start, test and export; at least RESERVE_SECONDS."""
RESERVE_SECONDS = 20.0


def time_for(config: FitOptions, share: float = 1.0, spent: float = 0.0) -> Deadline:
    """A share of the time of search and training, from now on, less what was spent."""
    return Deadline(share * budget_seconds(config) - spent) if config.minutes else Deadline()


def budget_seconds(config: FitOptions) -> float:
    """Seconds for search and training together."""
    seconds = 60 * config.minutes
    return seconds - max(RESERVE * seconds, RESERVE_SECONDS)


def fit_to_time(
    config: FitOptions, usual: Training, genotype: Genotype, deadline: Deadline
) -> tuple[Training, float]:
    """The training that makes most of the time, and the seconds of its epochs: the largest
    network and inputs that LEAST_STEPS steps can be made with, batches as usual if there are
    steps enough."""
    from proxnas.workflows.plan import measure_training

    domain = of_options(usual.config)
    free, batches = free_in_training(config), train_config(config, genotype).batch_size
    # first the network, then larger batches for it, then the epochs: each by a timing of the one
    # before
    chosen = _largest_in_time(usual, genotype, free, deadline)
    seconds, _ = measure_training(chosen)
    options, most = chosen.config, MOST_TRAINING * usual.config.epochs
    epochs = fitting(deadline.left(), seconds, most)
    # with so many epochs there may be steps enough for larger batches, which are quicker
    larger = domain.fitting.size_batches(options, chosen.data, batches, epochs, free)
    if larger != options:
        options = larger
        seconds, _ = measure_training(domain.training(options, chosen.data, genotype))
    options = dataclasses.replace(options, epochs=fitting(deadline.left(), seconds, most))
    return domain.training(options, chosen.data, genotype), seconds  # anew: it has made steps


def _largest_in_time(
    usual: Training, genotype: Genotype, free: Free, deadline: Deadline
) -> Training:
    """Of the trainings from the usual to the smallest the first that LEAST_STEPS steps are expected
    to be in time for: only the smallest is timed, and the others are taken to be slower as they
    have more multiply-adds."""
    from proxnas.workflows.plan import measure_training

    domain = of_options(usual.config)
    choices: list[Training] = []
    for options, data in domain.fitting.smaller(usual.config, usual.data, free):
        choices.append(domain.training(options, data, genotype))
    smallest = choices[-1]
    if len(choices) == 1:
        return smallest
    # seconds of an epoch / its steps; others ~ multiply-adds
    step = measure_training(smallest)[0] / len(smallest)
    for choice in choices[:-1]:
        if LEAST_STEPS * step * choice.flops / smallest.flops <= deadline.left():
            return choice
    return domain.training(smallest.config, smallest.data, genotype)  # anew, likewise


def plan_both(
    config: FitOptions, figures: dict[str, Any], training: TrainOptions, seconds: float, peak: int
) -> dict[str, Any]:
    """The figures of a search and those of the training after it: seconds of an epoch of it, and
    peak memory."""
    epochs, train_epochs = figures["epochs"], training.epochs
    if config.minutes:
        budget = budget_seconds(config)
        epochs = config.search_epochs or fitting(
            SEARCH_SHARE * budget, figures["seconds_per_epoch"], epochs
        )
        # what the search leaves is for the training
        left = budget - epochs * figures["seconds_per_epoch"]
        train_epochs = config.epochs or fitting(left, seconds, MOST_TRAINING * train_epochs)
    return figures | {
        "epochs": epochs,
        "train_epochs": train_epochs,
        "train_seconds_per_epoch": seconds,
        "minutes": (epochs * figures["seconds_per_epoch"] + train_epochs * seconds) / 60,
        "peak_bytes": max(peak, figures["peak_bytes"]),
    }
