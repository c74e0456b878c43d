"""Runs that go on: the flags of a resumption, and more --epochs, --patience or --minutes.

A run is lengthened where it then equals one that had the larger value from the start: where nothing
follows a schedule over all of its epochs, or where it was stopped before them. Else it is refused,
with the way out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from proxnas import __version__
from proxnas.common.errors import AboutOptions, OptionError, escape, flag_of
from proxnas.common.launch import check_alone, here
from proxnas.common.options import Options, changed, flatten
from proxnas.common.words import command_line, config_file, given_values
from proxnas.runs.deadline import MINUTES
from proxnas.runs.options import check_same, contradiction, storable, stored

if TYPE_CHECKING:
    from proxnas.runs.folder import Run

AnyOptions = TypeVar("AnyOptions", bound=Options)
LENGTHS = ("epochs", "patience")
"""Options that say when a run ends, besides --minutes, which may always change."""
REFINEMENTS = ("neighbours", "refined")


@runtime_checkable
class MayBeLonger(Protocol):
    """Options of a run that can be given more epochs."""

    def over_all_epochs(self) -> str:
        """What follows a schedule over all of its epochs, in words; empty if nothing does."""


def parse_resumed(argv: list[str], known: AnyOptions, where: Path, prog: str) -> AnyOptions:
    """The stored options with the flags of this call, after a check that none contradicts them."""
    old = flatten(known)
    for name in ("space", "method"):
        # first: the other stored values may be wrong together with another one
        asked = given_values(argv, flag_of(name))
        if name in old and asked and asked[-1] != old[name]:
            raise contradiction(name, asked[-1], old[name], where)
    # the stored values are the defaults here, so that a flag left out changes nothing
    default = changed(known, **config_file(argv, type(known)))
    given = command_line(type(known), prog, argv, default=default)
    if flatten(given).get("protocol") == "auto":
        given = changed(given, protocol=old["protocol"])
    check_same(given, as_long_as(given, known, where), where)
    return given


def as_long_as(given: AnyOptions, known: AnyOptions, where: Path) -> AnyOptions:
    """The stored options with the lengths that are given; an InputError unless a run can be made
    that long."""
    if not isinstance(known, MayBeLonger):
        return known
    new, old = flatten(given), flatten(known)
    longer: dict[str, Any] = {}
    for name in LENGTHS:
        if name in old and new.get(name) != old[name]:
            longer[name] = new[name]
            _check(name, old[name], new[name], known, where)
    return changed(known, **longer)


def _check(name: str, old: int, new: int, known: MayBeLonger, where: Path) -> None:
    check_alone(f"{{{name}}} {new}")
    # patience 0 means never to stop early, which is the longest of all
    longer = new > old if name == "epochs" else old > 0 and (new == 0 or new > old)
    place = escape(where)
    if not longer:
        raise OptionError(
            name,
            new,
            f"the run in {place} has {old}, and a run can only be made longer: give more,"
            " leave the flag out to resume, or choose another {run}",
        )
    reason = known.over_all_epochs() if name == "epochs" else ""
    if any((where / part / "config.json").exists() for part in REFINEMENTS):
        reason = "what it found was refined already"
    if reason:
        raise AboutOptions(
            f"{{{name}}} {new}: the run in {place} cannot be made longer, because {reason}: start"
            f" another {{run}} with {{{name}}} {new}, or leave the flag out to resume"
        )


def more_than_before(given: Options, known: Options, run: Run) -> dict[str, Any]:
    """The lengths that a run is given beyond those that it had."""
    if not here().alone:  # none of them has been given more
        return {}
    new, old = flatten(given), flatten(known)
    more = {name: new[name] for name in LENGTHS if name in new and new[name] != old.get(name)}
    minutes = new.get("minutes", 0.0)
    # only a run that the clock has ended becomes longer by more minutes
    cut = run.finished and run.read_json("result.json").get("stopped") == MINUTES
    if cut and (minutes == 0 or minutes > old.get("minutes", 0.0)):
        more["minutes"] = minutes
    return more


def lengthen(run: Run, more: dict[str, Any]) -> None:
    """Makes of a finished run one that is under way, if it is given more than it had; config.json
    says so.

    result.json goes first: a crash in between leaves a run that resumes to where it was.
    """
    if more:
        (run / "result.json").unlink(missing_ok=True)
        run.write_json("config.json", run.read_json("config.json") | more)


def check_stored(given: Options, command: str, run: Run) -> dict[str, Any]:
    """Writes config.json, or finds that the one which is there says the same; returns what the run
    is given more, for `lengthen`, once everything else was found good."""
    if not (run / "config.json").exists():
        stamp = {"proxnas": __version__, "command": command}
        run.write_json("config.json", stamp | storable(given))
        return {}
    known = stored(run.folder, command, type(given))
    check_same(given, as_long_as(given, known, run.folder), run.folder)
    return more_than_before(given, known, run) if isinstance(given, MayBeLonger) else {}


def store(given: Options, command: str, run: Run) -> None:
    """The same, and at once as long as is asked for."""
    lengthen(run, check_stored(given, command, run))
