"""The run folder: locked while in use, written so that a crash at any moment loses nothing that was
finished.

Text files are replaced whole (written beside, synced, renamed). A checkpoint loads with
`weights_only=True`, holds a checksum of its own content, and the one before it is kept.
metrics.jsonl grows by a line an epoch and is cut back to the checkpoint on resume.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout

from proxnas.common import stored
from proxnas.common.errors import AboutOptions, InputError, OptionError, escape
from proxnas.common.files import append_line, is_run, make_folder, rename, sync_folder, write_beside

# where the others look for it
from proxnas.common.files import write_atomically as write_atomically
from proxnas.common.launch import here
from proxnas.common.metrics_row import SCHEMA, MetricsRow
from proxnas.common.say import note
from proxnas.common.types import State
from proxnas.runs.checkpoint import sound_state, write_state
from proxnas.runs.messages import meet

FILES = (
    "table.md",
    "table.csv",
    "table.json",
    "tests.json",
    "plan.json",
    "recipe.json",
    "baselines.json",
    "report.html",
    "result.json",
    "model_card.md",
    "model.onnx",
    "model.pt2",
    "model.safetensors",
    "checkpoint.pt",
    "checkpoint.previous.pt",
    "checkpoint.damaged.pt",
    "metrics.jsonl",
    "genotype.json",
    "vocabulary.json",
    "space.json",
    "environment.json",
    "config.json",
)
"""What a run writes into its folder, and what --force removes: config.json last, it says whose the
others are."""

EVALUATIONS = "evaluations"
"""Where a search whose cells are evaluated by workers has a folder for each."""
NEIGHBOURS, REFINED, WIRINGS = "neighbours", "refined", "wirings"
"""Where a search with --refine trains the neighbours of what it found, and the best of them for
longer."""
CELL = "cell.json"
"""In such a folder: what is to be evaluated, its number and the picks of every node."""
LOCK_SECONDS = 0.3
"""A command that looks whether a run is under way holds the lock for an instant; whoever runs holds
it for longer."""
ANEW = "use {force} to run anew"


class Run:
    """One run folder that is open, and locked against other processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @property
    def finished(self) -> bool:
        return (self / "result.json").exists()

    def write_json(self, name: str, value: Any) -> None:
        # NaN is no JSON: an error here is better than a file that others cannot read
        write_atomically(self / name, json.dumps(value, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str, most: int = stored.MOST_BYTES) -> Any:
        try:
            return stored.read_json(self / name, most)
        except (OSError, ValueError) as error:
            raise stored.unreadable(self / name, error, ANEW) from error

    def result(
        self, needed: Iterable[str] = (), fields: Mapping[str, stored.Check] = stored.RESULT
    ) -> dict[str, Any]:
        """What result.json holds: values that can be such, those that are needed among them; else
        an InputError."""
        try:
            return stored.check(self.read_json("result.json"), fields, needed)
        except ValueError as error:
            raise stored.unreadable(self / "result.json", error, ANEW) from error

    def keep_vocabulary(self, words: Sequence[str]) -> None:
        """Written once; a text that has changed since cannot go on with the weights of the old
        one."""
        path = self / "vocabulary.json"
        if not path.exists():
            write_atomically(path, json.dumps(list(words), ensure_ascii=False, indent=0) + "\n")
        elif self.read_json(path.name, stored.MOST_LINES_BYTES) != list(words):
            raise AboutOptions(
                f"{escape(path)}: the text has other words than when this run was started: restore"
                " the text, or use {force} to start anew"
            )

    def append_metrics(self, row: MetricsRow) -> None:
        append_line(self / "metrics.jsonl", json.dumps(row) + "\n")

    def metrics(self) -> list[MetricsRow]:
        """The whole lines of metrics.jsonl; a line torn by a crash is none."""
        path = self / "metrics.jsonl"
        try:
            content = stored.read_bytes(path, stored.MOST_LINES_BYTES)
            # else it is no file of lines, and all of it would be taken for a torn one
            content.decode("utf-8")
            lines = content.splitlines(keepends=True)
            rows = (stored.parse_json(line) for line in lines if line.endswith(b"\n"))
            return [_checked_row(row) for row in rows]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            why = escape(getattr(error, "strerror", None) or error)
            raise AboutOptions(f"{escape(path)}: damaged ({why}): {ANEW}") from error

    def cut_metrics(self, epochs: int) -> list[MetricsRow]:
        """The rows of the first so many epochs; later ones, written after the checkpoint, are
        removed."""
        # fewer rows than epochs cannot be: the line goes before the checkpoint
        rows = self.metrics()[:epochs]
        if len(rows) < epochs:
            raise AboutOptions(
                f"{escape(self / 'metrics.jsonl')}: has {len(rows)} epochs, the checkpoint"
                f" {epochs}: use {{force}}"
            )
        write_atomically(self / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        return rows

    def save_checkpoint(self, state: State) -> None:
        if not here().leads:
            return
        newest = self / "checkpoint.pt"
        part = write_beside(newest, partial(write_state, state))
        # killed between the two renames: the previous one is still there to resume from
        if newest.exists():
            rename(newest, self / "checkpoint.previous.pt")
        rename(part, newest)
        sync_folder(self.folder)

    def load_checkpoint(self) -> State | None:
        """The newest sound checkpoint; None if the run was stopped before its first."""
        newest, previous = self / "checkpoint.pt", self / "checkpoint.previous.pt"
        found = [path for path in (newest, previous) if path.exists()]
        for path in found:
            if (state := sound_state(path)) is not None:
                if path != found[0]:
                    self._set_aside(newest)
                return state
        if found:
            both = f", and so is {previous.name}" if len(found) > 1 else ""
            raise AboutOptions(
                f"{escape(found[0])}: the checkpoint is damaged or truncated{both}: use"
                " {force} to start anew"
            )
        return None

    def _set_aside(self, newest: Path) -> None:
        """Away with it before the next checkpoint is written, which would move it over the sound
        one."""
        rename(newest, self / "checkpoint.damaged.pt")
        note(
            f"{newest}: damaged or truncated, kept as checkpoint.damaged.pt: going on from"
            " checkpoint.previous.pt"
        )


@contextmanager
def open_run(folder: Path, resume: bool = False, force: bool = False) -> Iterator[Run]:
    """The run folder, made if need be and locked; an earlier run in it is neither overwritten nor
    mixed with.

    Of several processes of a job the first does that, when all have seen what is there; the others
    use it with it.
    """
    meet()
    if not here().leads:
        meet()
        yield Run(folder)
        return
    make_folder(folder, "run")
    # nothing is looked at before: another run could change it meanwhile
    with _lock(folder):
        run = Run(folder)
        _check_earlier(run, resume, force)
        meet()
        yield run


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Ours alone, as the system sees to: the lock of a process that died is free. `.owner` says who
    has it."""
    _check_lock_file(folder / ".lock")
    lock, owner = FileLock(folder / ".lock"), folder / ".owner"
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout as error:
        raise AboutOptions(
            f"{escape(folder)}: in use by {escape(_owner(owner))}: wait for it or choose another"
            " {run}"
        ) from error
    except OSError as error:
        advice = f"cannot be written ({error.strerror}): choose another folder"
        raise OptionError("run", folder, advice) from error
    try:
        with suppress(InputError):  # a full disk is for the files that matter to complain of
            write_atomically(
                owner, json.dumps({"process": os.getpid(), "host": platform.node()}) + "\n"
            )
        yield
    finally:
        with suppress(OSError):
            owner.unlink(missing_ok=True)
        lock.release()


def _check_lock_file(path: Path) -> None:
    """An InputError for what would be opened in the lock's place."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError(
            f"{path}: is a symbolic link or no regular file, which no lock is: remove it"
        )


def _owner(path: Path) -> str:
    """The process that has the lock, by its own word."""
    try:
        found = stored.read_json(path)
        process, host = int(found["process"]), str(found["host"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return "another process"
    return f"process {process}" + ("" if host == platform.node() else f" on {host[:60]!r}")


def _check_earlier(run: Run, resume: bool, force: bool) -> None:
    if not (run / "config.json").exists():
        for name in FILES:  # ours come after config.json and go before it
            if (run / name).exists():
                raise AboutOptions(
                    f"{escape(run / name)}: without a config.json beside it, whose is it? choose"
                    " another {run}"
                )
        return
    if not is_run(run.folder):
        raise AboutOptions(
            f"{escape(run / 'config.json')}: not written by proxnas: choose another {{run}}"
        )
    if force:
        evaluated = run / EVALUATIONS
        cells = [] if evaluated.is_symlink() else evaluated.glob("[0-9]*")
        for folder in (*cells, run / NEIGHBOURS, run / REFINED, run / WIRINGS):
            if not folder.is_symlink():  # else what is removed would be elsewhere
                _forget(folder)
        _forget(run.folder)
    elif not resume:
        state = "a finished run" if run.finished else "an unfinished run"
        raise AboutOptions(
            f"{escape(run.folder)}: holds {state}: use {{resume}} to go on, {{force}} to overwrite,"
            " or another {run}"
        )


def _forget(folder: Path) -> None:
    for name in (CELL, *FILES):
        (folder / f"{name}.part").unlink(missing_ok=True)
        (folder / name).unlink(missing_ok=True)


def _checked_row(values: Any) -> MetricsRow:
    """A ValueError unless it is a row of this version."""
    row = stored.check(values, stored.ROW, ("epoch", "seconds"))
    if row.get("schema", SCHEMA) != SCHEMA:
        raise ValueError(f"rows of schema {row['schema']}, and this version reads {SCHEMA}")
    return cast(MetricsRow, row)
