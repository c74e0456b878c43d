"""Runs that are given more: `search` and `train` with --resume and more --epochs, --patience or
--minutes.

A run is lengthened where it then equals one that had the larger value from the start: where nothing
follows a schedule over all of its epochs, or where it was stopped before them. Else it is refused,
with the way out.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proxnas.common.errors import InputError
from proxnas.common.launch import check_alone, here
from proxnas.runs.deadline import MINUTES
from proxnas.runs.options import RunConfig, flag, require
from proxnas.searching.options import SearchConfig
from proxnas.searching.uses import PROXIMAL
from proxnas.training.options import TrainOptions

if TYPE_CHECKING:
    from proxnas.runs.folder import Run

Config = TypeVar("Config", bound=RunConfig)
LENGTHS = ("epochs", "patience")
"""Flags that say when a run ends, besides --minutes, which may always change."""
BY_GRADIENT = (*PROXIMAL, "darts-1st", "darts-2nd")
"""Methods that have no schedule of their own."""
REFINEMENTS = ("neighbours", "refined")


def as_long_as(given: Config, stored: Config, where: Path) -> Config:
    """The stored configuration with the lengths that are given; an InputError unless a run can be
    made that long."""
    if not isinstance(stored, SearchConfig | TrainOptions):
        return stored
    changed: dict[str, Any] = {}
    for name in LENGTHS:
        old, new = getattr(stored, name, None), getattr(given, name, None)
        if new != old:
            changed[name] = new
            _check(name, old, new, stored, where)
    return dataclasses.replace(stored, **changed)


def _check(name: str, old: int | None, new: int | None, stored: RunConfig, where: Path) -> None:
    assert old is not None and new is not None, "both are of one class"
    check_alone(f"{flag(name)} {new}")
    longer = new > old if name == "epochs" else old > 0 and (new == 0 or new > old)
    require(
        longer,
        flag(name),
        new,
        f"the run in {where} has {old}, and a run can only be made longer: give more, "
        "leave the flag out to resume, or choose another --run",
    )
    reason = _schedule(stored) if name == "epochs" else ""
    if any((where / part / "config.json").exists() for part in REFINEMENTS):
        reason = "what it found was refined already"
    if reason:
        raise InputError(
            f"{flag(name)} {new}: the run in {where} cannot be made longer, because {reason}: start"
            f" another --run with {flag(name)} {new}, or leave the flag out to resume"
        )


def _schedule(config: RunConfig) -> str:
    """What follows a schedule over all epochs of the run; empty if nothing does."""
    if isinstance(config, TrainOptions):
        return config.over_all_epochs()
    assert isinstance(config, SearchConfig)
    if config.method not in BY_GRADIENT:
        return f"{config.method} is made for {config.epochs} epochs from the start"
    if config.explore:
        return f"its --explore falls to 0 over {config.epochs} epochs"
    if config.limit():
        return f"its limit is approached over {config.epochs} epochs"
    falls = config.learning_rate_min != config.learning_rate
    return f"its learning rate falls to its end over {config.epochs} epochs" if falls else ""


def lengthen(config: RunConfig, stored: RunConfig, run: Run) -> None:
    """Makes of a finished run one that is under way, if it is given more than it had; config.json
    says so.

    result.json goes first: a crash in between leaves a run that resumes to where it was.
    """
    if not here().alone:  # none of them has been given more
        return
    changed = {
        name: getattr(config, name)
        for name in LENGTHS
        if getattr(config, name, 0) != getattr(stored, name, 0)
    }
    minutes = getattr(config, "minutes", 0.0)
    cut = run.finished and run.read_json("result.json").get("stopped") == MINUTES
    if cut and (minutes == 0 or minutes > getattr(stored, "minutes", 0.0)):
        changed["minutes"] = minutes
    if changed:
        (run / "result.json").unlink(missing_ok=True)
        run.write_json("config.json", run.read_json("config.json") | changed)
