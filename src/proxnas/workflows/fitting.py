"""`proxnas.fit`: from data to a tested, exported model; and how each domain is fitted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from proxnas.common.launch import BEGUN
from proxnas.common.say import say
from proxnas.domains.domain import of_data, of_space, trainable
from proxnas.domains.fitting import FitOptions
from proxnas.domains.images.fitting import FitConfig
from proxnas.runs.options import storable, stored
from proxnas.workflows.folders import keep_in

if TYPE_CHECKING:
    from proxnas.domains.trained import TrainedModel


def fit_by(
    config: FitOptions, folder: Path, tell: Callable[[str], None], begun: float | None = BEGUN
) -> dict[str, Any]:
    """The fit that is described, in its folder; returns what result.json holds.

    `begun`: since when, by time.monotonic, the time counts; None: since now.
    """
    if is_at_once(config):
        from proxnas.workflows.fit_minutes import fit_minutes

        return fit_minutes(config, folder, tell, begun=begun)
    from proxnas.workflows.fit import fit_in

    return fit_in(config, folder, tell)


def plan_by(config: FitOptions) -> dict[str, Any]:
    """The figures of `--dry-run`."""
    if is_at_once(config):
        from proxnas.workflows.fit_parts import prepare_search
        from proxnas.workflows.fit_plan import SPACE, plan_minutes
        from proxnas.workflows.plan import plan_search

        # of the space itself: what there is to choose, and how large it may become
        search = prepare_search(replace(config, space=SPACE))
        return plan_minutes(config, plan_search(search))
    from proxnas.workflows.fit import plan_fit

    return plan_fit(config)


def is_at_once(config: FitOptions) -> TypeGuard[FitConfig]:
    """Whether the search is the training, in one run by the clock: of images, unless something is
    asked for that needs a search first."""
    from proxnas.workflows.fit_minutes import is_one_pass

    return isinstance(config, FitConfig) and is_one_pass(config)


def fit(
    data: Any, *, run: str | os.PathLike[str] | None = None, progress: bool = False, **options: Any
) -> TrainedModel:
    """Searches, trains, tests and exports a model for data, as `proxnas fit` does.

    Args:
        data: as on the command line (digits, pydocs, a path, hf:NAME). Images may be a pair of
            arrays (x, y), a dict of arrays (x_train, y_train, x_test, ...), a torch Dataset of
            (image, label), paths and labels, or a DataFrame with a column of each, too.
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
    config = _options_of(folder, data, {"quiet": not progress} | options)
    tell: Callable[[str], None] = say if progress else _say_nothing
    # threads, seeds and the like of the calling program are as before when it is done
    with as_guest(pick_device(config.device)):
        fit_by(config, folder, tell, None)
    return load_model(folder, config.device)


def _options_of(folder: Path, data: Any, options: dict[str, Any]) -> FitOptions:
    """The fit that a program asks for; what it goes on with, the values of its folder below."""
    values = options | keep_in(folder, data, options)
    space = options.get("space")
    domain = of_space(space) if space not in (None, "auto") else of_data(values["data"])
    cls = trainable(domain).fitting.options
    if options.get("resume") and (folder / "config.json").exists():
        values = storable(stored(folder, "fit", cls)) | values
    return cls.from_values(values)


def _say_nothing(text: str) -> None:
    """For whoever does not want to see how far it is."""
