"""Disks that are full or may not be written: real small ones where the system lets us mount them,
else by limits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults import crash

MEGABYTE = 2**20


def can_mount() -> bool:
    """Whether small disks can be had: as root, outside of a container without rights."""
    if shutil.which("mount") is None:
        return False
    done = (
        subprocess.run(["unshare", "-m", "true"], capture_output=True)
        if shutil.which("unshare")
        else None
    )
    return done is not None and done.returncode == 0


@contextmanager
def mounted(place: Path, size: int) -> Iterator[Path]:
    """A disk of so many bytes."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        check=True,
        capture_output=True,
    )
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def remount(place: Path, mode: str) -> None:
    """`ro` or `rw`."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(place)], check=True)


def trials(place: Path) -> dict[str, tuple[bool, str]]:
    """Name -> (whether it went as promised, what was said)."""
    argv = crash.command("search", crash.stripes(place))
    crash.run(argv, place / "alone")
    wanted = crash.outcome(place / "alone")
    size = int(crash.counts(place / "alone")["write"])
    found = {}
    for share in (0.01, 0.3, 0.6, 0.95):
        folder = place / f"full-{share}"
        code = crash.run(argv, folder, crash.Fault("full", share * size))
        found[f"full after {share:.0%} of all bytes"] = judged(argv, folder, code, wanted)
    if can_mount():
        with mounted(place / "small", MEGABYTE) as small:
            found["a real disk of 1 MB"] = filled(argv, small, wanted)
        with mounted(place / "locked", 50 * MEGABYTE) as locked_:
            found["a real disk that may only be read"] = locked(argv, locked_, wanted)
    return found


def filled(argv: list[str], disk: Path, wanted: dict[str, object]) -> tuple[bool, str]:
    run, notes = disk / "run", disk.parent / "small-notes"
    crash.run(argv, run, crash.Fault("sync", 12), notes_at=notes)  # some steps are done
    for part in run.glob("*.part"):
        part.unlink()  # else there would be room again when the run removes it
    (disk / "filler").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - 20_000)))
    code = crash.run(argv, run, resume=True, notes_at=notes)
    (disk / "filler").unlink()
    return judged(argv, run, code, wanted, notes)


def locked(argv: list[str], disk: Path, wanted: dict[str, object]) -> tuple[bool, str]:
    run, notes = disk / "run", disk.parent / "locked-notes"
    crash.run(argv, run, crash.Fault("sync", 12), notes_at=notes)
    remount(disk, "ro")
    code = crash.run(argv, run, resume=True, notes_at=notes)
    remount(disk, "rw")
    return judged(argv, run, code, wanted, notes)


def judged(
    argv: list[str],
    folder: Path,
    code: int | None,
    wanted: dict[str, object],
    notes_at: Path | None = None,
) -> tuple[bool, str]:
    """One clear line, and the run goes on to the same end."""
    said = crash.printed(notes_at or folder)
    lines = [line for line in said.splitlines() if line.startswith("proxnas: error: ")]
    clear = (
        code == 2
        and len(lines) == 1
        and "cannot be written" in lines[0]
        and "Traceback" not in said
    )
    resumed = crash.run(argv, folder, resume=True, notes_at=notes_at)
    same = resumed == 0 and crash.outcome(folder) == wanted
    return clear and same, f"exit {code}, {len(lines)} line, resumed to the same bits: {same}"
