"""`proxnas.fit`: from data to a tested, exported model; and how each domain is fitted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proxnas.common.launch import BEGUN
from proxnas.common.say import say
from proxnas.domains.domain import of_data, of_space
from proxnas.runs.stored_options import stored
from proxnas.workflows.fit_options import FitConfig, TextFitConfig
from proxnas.workflows.in_memory import keep_in

if TYPE_CHECKING:
    from proxnas.domains.trained import TrainedModel


class Fitting(NamedTuple):
    """How a domain is fitted."""

    options: type[Any]
    fit: Callable[..., dict[str, Any]]
    plan: Callable[..., dict[str, Any]]


def _fit_images(
    config: FitConfig, folder: Path, tell: Callable[[str], None], begun: float | None = BEGUN
) -> dict[str, Any]:
    from proxnas.workflows.fit import fit

    return fit(config, folder, tell, begun)


def _plan_images(config: FitConfig) -> dict[str, Any]:
    from proxnas.workflows.fit import plan_fit

    return plan_fit(config)


def _fit_text(
    config: TextFitConfig, folder: Path, tell: Callable[[str], None], begun: float | None = None
) -> dict[str, Any]:
    from proxnas.workflows.fit_text import fit_text

    return fit_text(config, folder, tell)


def _plan_text(config: TextFitConfig) -> dict[str, Any]:
    from proxnas.workflows.fit_text import plan_fit_text

    return plan_fit_text(config)


FITTINGS = {
    "images": Fitting(FitConfig, _fit_images, _plan_images),
    "text": Fitting(TextFitConfig, _fit_text, _plan_text),
}
"""Domain -> how it is fitted."""


def fit(
    data: Any, *, run: str | os.PathLike[str] | None = None, progress: bool = False, **options: Any
) -> TrainedModel:
    """Searches, trains, tests and exports a model for data, as `proxnas fit` does.

    Args:
        data: as on the command line (digits, pydocs, a path, hf:NAME). Images may be a pair of
            arrays (x, y), a dict of arrays (x_train, y_train, x_test, ...) or a torch Dataset of
            (image, label) too.
        run: a folder for everything that is made; without it a new one in the system's place for
            such things.
        progress: say how far it is.
        options: as `proxnas fit` takes them, with underscores: minutes, space, max_params, seed,
            device, threads, resume, force, ...
    """
    from proxnas.common.environment import pick_device
    from proxnas.domains.trained import load_model
    from proxnas.runs.guest import as_guest

    folder = Path(run) if run is not None else Path(tempfile.mkdtemp(prefix="proxnas-fit-"))
    values = {"quiet": not progress} | options | keep_in(folder, data, options)
    space = options.get("space")
    domain = of_space(space) if space not in (None, "auto") else of_data(values["data"])
    cls, fit_domain, _ = FITTINGS[domain.name]
    if options.get("resume") and (folder / "config.json").exists():
        values = stored(folder, "fit", cls).__dict__ | values
    config = cls.from_values(values)
    tell: Callable[[str], None] = say if progress else _say_nothing
    with as_guest(pick_device(config.device)):
        fit_domain(config, folder, tell, None)
    return load_model(folder, config.device)


def _say_nothing(text: str) -> None:
    """For whoever does not want to see how far it is."""
