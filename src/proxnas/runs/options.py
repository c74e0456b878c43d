"""What the commands that fill a run folder are told alike: where, with which seed, on which device,
and how to go on; and the options of a run in its folder: config.json, and whether a call asks for
the same run.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from proxnas import __version__
from proxnas.common.config_file import check_values
from proxnas.common.cores import Asked
from proxnas.common.errors import AboutOptions, OptionError, escape
from proxnas.common.options import Options, Range, flatten
from proxnas.common.stored import read_json, unreadable
from proxnas.runs.executors.choice import WHERE


@dataclass(frozen=True)
class RunConfig(Options):
    """What every command that runs takes."""

    heading: ClassVar[str] = "the run:"

    run: str = ""
    """Run folder; default runs/<command>-<data>-<space>-<method>-<seed>. With the flags behind it
    (-max-params-50k) where a run with other flags has that name."""
    seed: Annotated[int, Range(0, 2**31 - 1)] = 0
    """Seed of the split, the weights, the streams and A."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto: an accelerator if there is one."""
    threads: Asked = "auto"
    """CPU threads; auto: the quickest number. It is found by timing steps with 1, 2, 4, ... now and
    then. A number is kept to: only then does the same seed give the same bits, as others add up in
    another order."""
    deterministic: bool = False
    """Only algorithms that give the same bits each time, on a GPU too. They are slower there; on a
    CPU all are so."""
    quiet: bool = False
    """Only print the result."""
    config: str = ""
    """JSON, YAML or TOML file with values for these flags; flags override it."""

    def check(self) -> None:
        """A number of threads and a device that may exist."""
        super().check()
        if self.threads != "auto" and self.threads < 1:
            raise OptionError("threads", self.threads, "give auto or a number from 1 on")
        if not re.fullmatch(r"auto|(cpu|mps|cuda|xpu)(:\d{1,3})?", self.device):
            raise OptionError("device", repr(self.device), "give auto, cpu, cuda, cuda:1 or mps")


@dataclass(frozen=True)
class FolderConfig(RunConfig):
    """What every command takes that can be continued, or planned without being run."""

    resume: bool = False
    """Go on where the run folder stands."""
    force: bool = False
    """Overwrite an earlier run in the run folder."""
    dry_run: bool = False
    """Only say what would be built, how large and how fast it is."""
    json: bool = False
    """With --dry-run: as JSON."""
    processes: Annotated[int, Range(1, 1024)] = 1
    """Processes that work together on this machine, each on its part of every batch; with CUDA a
    device each. --threads is for each of them; auto: an equal share of the cores."""

    def check(self) -> None:
        """Either go on or begin anew."""
        super().check()
        if self.resume and self.force:
            raise OptionError("force", True, "give either {resume} or {force}")


MINUTES = Range(0, 1e7, below=True)


@dataclass(frozen=True)
class JobConfig(FolderConfig):
    """What a search and a training take: they run in epochs."""

    minutes: Annotated[float, MINUTES] = 0.0
    """Stop when so much time is over, after a step. Without --epochs as many are chosen as take so
    long, at most those of the protocol; 0: any time."""
    checkpoint_minutes: Annotated[float, Range(0, 1e9)] = 10.0
    """Checkpoints within an epoch, besides the one at its end."""


NOT_STORED = {
    "run",
    "resume",
    "force",
    "finish",
    "quiet",
    "config",
    "dry_run",
    "json",
    "processes",
    "tensorboard",
    "loggers",
    *WHERE,
}
"""Flags of one call, not of the run: a stored configuration must not overwrite or resume when it is
used again."""
MAY_CHANGE = {"device", "threads", "checkpoint_minutes", "minutes"}
"""Flags that a resumption may change; else it takes the stored ones, so that it repeats the run to
the bit."""


AnyOptions = TypeVar("AnyOptions", bound=Options)


def storable(options: Options) -> dict[str, Any]:
    """What config.json keeps: everything needed to repeat the run."""
    return {name: value for name, value in flatten(options).items() if name not in NOT_STORED}


def read_stored(folder: Path, command: str, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The values in a run folder: of that command, and of a version that does the same."""
    path = folder / "config.json"
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, "use {force} to run anew") from error
    if not isinstance(found, dict) or "proxnas" not in found:
        raise AboutOptions(f"{escape(path)}: not written by proxnas: choose another {{run}}")
    writer, version = str(found.get("command"))[:40], str(found.get("proxnas"))[:40]
    if writer != command:
        line = f"{folder}: holds a run of `proxnas {writer}`, not of {command}"
        raise AboutOptions(escape(line) + ": choose another {run}")
    # a version within a release does the same to the bit
    if _release(version) != _release(__version__):
        line = (
            f"{path}: written by proxnas {version}, which may do otherwise than this one"
            f" ({__version__}): go on with that version, "
        )
        raise AboutOptions(escape(line) + "or use {force} to run anew")
    return check_values(path, found, hints)


def stored(folder: Path, command: str, cls: type[AnyOptions]) -> AnyOptions:
    """The options in a run folder."""
    values = read_stored(folder, command, cls.all_hints())
    options = cls.from_values(values)
    # a default in place of a value that is missing would go on with another run
    for name in storable(options):
        if name not in values:
            raise AboutOptions(
                f"{escape(folder / 'config.json')}: {name} is missing, with which the run was"
                " begun: restore the file, or use {force} to run anew"
            )
    return options


def _release(version: str) -> str:
    """The part of a version within which a run goes on as it began."""
    return ".".join(version.split(".")[:2])


def check_same(given: Options, known: Options, where: Path) -> None:
    """An InputError unless both would be the same run."""
    new, old = flatten(given), flatten(known)
    for name in ("space", "method"):  # which others there are depends on them
        if new.get(name) != old.get(name):
            raise contradiction(name, new.get(name), old.get(name), where)
    for name, value in old.items():
        if name not in NOT_STORED | MAY_CHANGE and new[name] != value:
            raise contradiction(name, new[name], value, where)


def contradiction(name: str, new: object, old: object, where: Path) -> AboutOptions:
    """The error for an option that a run was begun with otherwise."""
    return AboutOptions(
        f"{{{name}}} {escape(new)}: the run in {escape(where)} was started with {escape(old)};"
        " leave the flag out to resume, or choose another {run}"
    )
