"""`proxnas.fit`: from data to a tested, exported model; and how each domain is fitted."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proxnas.common.errors import InputError
from proxnas.common.files import write_atomically
from proxnas.common.launch import BEGUN
from proxnas.common.options import AboutOptions, escape
from proxnas.common.say import say
from proxnas.domains.domain import of_data, of_space
from proxnas.runs.stored_options import storable, stored
from proxnas.workflows.fit_options import FitConfig, TextFitConfig

if TYPE_CHECKING:
    from proxnas.domains.trained import TrainedModel

ARRAYS = "data.npz"
"""What arrays are kept as in the run folder, so that a run can go on with them."""


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
            arrays (x, y) or a dict of arrays (x_train, y_train, x_test, ...) too.
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
    force, resume = bool(options.get("force")), bool(options.get("resume"))
    named = data
    if not isinstance(data, str | os.PathLike):
        named = _keep_arrays(_named_arrays(data), folder, force)
    space = options.get("space")
    domain = of_space(space) if space not in (None, "auto") else of_data(os.fspath(named))
    cls, fit_domain, _ = FITTINGS[domain.name]
    values = {"data": os.fspath(named), "quiet": not progress} | options
    if resume and (folder / "config.json").exists():
        values = storable(stored(folder, "fit", cls)) | values
    config = cls.from_values(values)
    tell: Callable[[str], None] = say if progress else _say_nothing
    with as_guest(pick_device(config.device)):
        fit_domain(config, folder, tell, None)
    return load_model(folder, config.device)


def _say_nothing(text: str) -> None:
    """For whoever does not want to see how far it is."""


def _named_arrays(data: Any) -> dict[str, Any]:
    """x_train, y_train, ... of a pair or a dict."""
    import numpy as np

    if isinstance(data, tuple | list) and len(data) == 2:
        data = {"x_train": data[0], "y_train": data[1]}
    if not isinstance(data, Mapping):
        raise InputError(
            f"data is a {type(data).__name__}: give a name, a path, a pair of arrays (x, y) or a"
            " dict of x_train, y_train, ..."
        )
    arrays = {str(name): np.asarray(array) for name, array in data.items()}
    for name, array in arrays.items():
        if array.dtype == object:  # it would be pickled
            raise InputError(f"{name}: an array of Python objects: give numbers")
    return arrays


def _keep_arrays(arrays: Mapping[str, Any], folder: Path, force: bool) -> Path:
    """A file of the run folder with the arrays; that of an earlier run stays as it is, and must
    hold the same."""
    import numpy as np

    file = folder / ARRAYS
    if file.exists() and not force:
        with np.load(file, allow_pickle=False) as kept:
            same = set(kept.files) == set(arrays)
            same = same and all(np.array_equal(kept[name], arrays[name]) for name in arrays)
        if not same:
            raise AboutOptions(
                f"{escape(file)}: holds other data than these: give {{force}}, or another {{run}}"
            )
        return file
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, buffer.getvalue())
    return file
