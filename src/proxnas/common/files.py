"""Files that no crash, full disk or second Ctrl-C can harm: written beside, synced, then renamed.

Nothing is written through a symbolic link: whoever can put one into a run folder could otherwise
choose what is overwritten when the run goes on. A link in the place of a file is replaced; one in
the place of a folder inside a run is refused. The run folder itself may be reached through links,
which are the user's own.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from proxnas.common.errors import AboutOptions, InputError, escape
from proxnas.common.launch import here
from proxnas.common.stored import read_json

NO_LINK, NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)
DEEPEST = 2
"""RUN/search/NAME and RUN/evaluations/NUMBER: so far below a run its parts have their folders."""


class Unwritable(AboutOptions):
    """A file that cannot be written, and what is left of it: all that was there before."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            escape(f"{path}: cannot be written ({error.strerror or error}): make room on the disk")
            + " or allow writing; what was written before is unharmed, and a run goes on with"
            " {resume}"
        )


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file whole: readers and crashes see the old content or the new one. Of several
    processes of a job, which all have the same to write, the first does."""
    if not here().leads:
        return
    data = content.encode() if isinstance(content, str) else content
    rename(write_beside(path, lambda file: file.write(data)), path)


def write_beside(path: Path, write: Callable[[IO[bytes]], object]) -> Path:
    """The new content in PATH.part, safe on the disk, for `rename`; of a failure nothing is
    left."""
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)  # left by a crash, or a link that somebody has put there
        with open_new(part) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        # not a request to stop
        if isinstance(error, Exception) and (fault := _of_the_disk(error)) is not None:
            raise Unwritable(path, fault) from error
        raise
    return part


def _of_the_disk(error: BaseException | None) -> OSError | None:
    """The fault of the disk behind an error: torch answers one with an error of its own."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def open_new(part: Path) -> IO[bytes]:
    """A new file; never one that is there, nor where a link leads. Tests put failing disks in its
    place."""
    return os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o666), "wb")


def rename(source: Path, target: Path) -> None:
    """Put a file in the place of another; a link there is replaced, not followed."""
    try:
        os.replace(source, target)
    except OSError as error:
        raise Unwritable(target, error) from error


def open_to_append(path: Path) -> IO[bytes]:
    """A file to be written on at its end, made if need be: a regular one, not where a link
    leads."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK | NO_WAIT
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "ab")


def append_line(path: Path, line: str) -> None:
    """One more line, safe on the disk; if it cannot be had whole, none of it. By the first process
    of a job."""
    if not here().leads:
        return
    # to cut back to, if the disk is full in the middle of the line
    before = path.stat().st_size if path.is_file() else 0
    try:
        with open_to_append(path) as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            if not path.is_symlink():
                os.truncate(path, before)
        raise Unwritable(path, error) from error


def make_folder(folder: Path, option: str = "") -> None:
    """A folder and those above it; an InputError if a link leads out of the run that it is a part
    of. `option`: by which the user chose it."""
    # the folder and those between it and the run: a run itself may be reached through links
    inside = [folder]
    for above in folder.absolute().parents[:DEEPEST]:
        if is_run(above):
            for part in inside:
                if part.is_symlink():
                    raise InputError(
                        f"{part}: is a symbolic link inside a run, through which nothing is"
                        " written: put a folder in its place"
                    )
        inside.append(above)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        place = f"{{{option}}} {escape(folder)}" if option else escape(folder)
        raise AboutOptions(
            f"{place}: cannot be made ({error.strerror}): choose another folder"
        ) from error


def is_run(folder: Path) -> bool:
    """Whether proxnas has written the config.json in a folder."""
    try:
        found = read_json(folder / "config.json")
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "proxnas" in found


def sync_folder(folder: Path) -> None:
    """Make the renames themselves durable, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
