"""Errors that are the user's to mend, and the words that help to mend them. Options are named as
fields in Python, as flags on a command line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from string import Formatter
from typing import Any


class InputError(Exception):
    """Bad input: one line that names the file, flag or value and says what to do (exit code 2)."""


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a registry, with the nearest names suggested."""
    names = sorted(known)
    folded = {each.casefold(): each for each in names}
    # the nearest whatever their case
    near = [
        folded[each] for each in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)
    ]
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(names)}"
    return InputError(f"unknown {what} {name!r}: {hint}")


def in_one_line(error: BaseException) -> str:
    """An error of another library in a few words of one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:120]


POSITIONAL = ("data", "cell")
"""Options that are words of a command line without a flag."""


def flag_of(name: str) -> str:
    """The option as a command line spells it."""
    return name.upper() if name in POSITIONAL else "--" + name.replace("_", "-")


class AboutOptions(InputError):
    """An error whose words name options: {max_skip} is max_skip in Python, --max-skip on a command
    line. Other braces are doubled, as for str.format."""

    def __init__(self, template: str) -> None:
        super().__init__(template)
        self.template = template

    def spelt(self, spell: Callable[[str], str]) -> str:
        """The message with every option as `spell` has it."""
        return self.template.format_map(_Spelling(spell))

    def __str__(self) -> str:
        return self.spelt(str)

    def renamed(self, rename: Callable[[str], str]) -> AboutOptions:
        """The same for whoever has other names for some options; `rename` gives the words for a
        name, options in braces among them."""
        template = ""
        for words, name, _, _ in Formatter().parse(self.template):
            template += escape(words)
            if name is not None:
                template += rename(name)
        return AboutOptions(template)

    def as_flag(self) -> str:
        """The message in the words of a command line."""
        return self.spelt(flag_of)


class OptionError(AboutOptions):
    """An option has a value that it cannot have. The advice may name others: {learning_rate}."""

    def __init__(self, name: str, value: object, advice: str) -> None:
        super().__init__(f"{{{name}}} {escape(value)}: {advice}")
        self.name, self.value, self.advice = name, value, advice

    def __reduce__(self) -> tuple[Any, ...]:
        # else it would be made anew of its message alone
        return type(self), (self.name, self.value, self.advice)


def in_flags(error: InputError) -> str:
    """An error in the words of a command line."""
    return error.as_flag() if isinstance(error, AboutOptions) else str(error)


class _Spelling(dict[str, str]):
    """Name -> how it is spelt, for every name."""

    def __init__(self, spell: Callable[[str], str]) -> None:
        super().__init__()
        self.spell = spell

    def __missing__(self, name: str) -> str:
        return self.spell(name)


def escape(value: object) -> str:
    """A value of the user's within the words of an `AboutOptions`."""
    return str(value).replace("{", "{{").replace("}", "}}")


def unknown_value(name: str, value: object, known: Iterable[str]) -> AboutOptions:
    """The error for an option that names nothing in a registry, with the nearest names."""
    # a sign that no name has keeps the place: braces would be doubled with all others
    return AboutOptions(escape(unknown("\0", str(value), known)).replace("\0", f"{{{name}}}"))
