"""A search by each method, killed twice on its way, and what the third process makes of it."""

from __future__ import annotations

from pathlib import Path

from faults import crash
from support.short_searches import QUICK


def command(method: str, data: Path) -> list[str]:
    """The smallest search by the method in which all of its phases happen, with a checkpoint after
    every step."""
    return [*crash.command("search", data, epochs=2), f"--method={method}", *QUICK.get(method, ())]


def trial(method: str, data: Path, place: Path) -> tuple[bool, bool]:
    """(whether both kills came before the end, whether the outcome is that of an undisturbed run,
    to the bit)."""
    argv, alone, folder = command(method, data), place / f"{method}-alone", place / method
    if crash.run(argv, alone) != 0:
        raise RuntimeError(f"{method}: the undisturbed run failed: {crash.printed(alone)}")
    middle = crash.Fault("rename", crash.counts(alone)["rename"] // 2)
    later = crash.Fault("rename", middle.moment // 2)
    killed = [crash.run(argv, folder, middle), crash.run(argv, folder, later, resume=True)]
    ended = crash.run(argv, folder, resume=True)
    cut = all(code is not None and code < 0 for code in killed)
    return cut, ended == 0 and crash.outcome(folder) == crash.outcome(alone)
