"""Errors that are the user's to mend, and the words that help to mend them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Bad input: one line that names the file, flag or value and says what to do (exit code 2)."""


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a registry, with the nearest names suggested."""
    names = sorted(known)
    folded = {each.casefold(): each for each in names}
    near = [
        folded[each] for each in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)
    ]
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(names)}"
    return InputError(f"unknown {what} {name!r}: {hint}")


def in_one_line(error: BaseException) -> str:
    """An error of another library in a few words of one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:120]
