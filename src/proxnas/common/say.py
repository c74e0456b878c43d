"""The one place that prints. What is printed may come from a file or a name that somebody else has
chosen: signs that would steer the terminal (escape sequences) or turn the order of reading are
shown as what they are, \\x1b or \\u202e. What is told about the data is said once, however often a
command reads the same data.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import IO

from proxnas.common.launch import here

STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters of both sets, marks of writing direction, breaks of lines, lone surrogates,
tags."""


def plain(text: object) -> str:
    """A text as one line that can do nothing but be read."""
    return STEERING.sub(lambda found: _code_text(ord(found[0])), str(text))


def _code_text(code: int) -> str:
    # as Python writes them in a string
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain_lines(text: object) -> str:
    """The same of a text whose line breaks and tabs are ours."""
    return re.sub(r"[^\n\t]+", lambda part: plain(part[0]), str(text))


def say(text: object = "", file: IO[str] | None = None, flush: bool = False) -> None:
    """Prints lines for people."""
    print(plain_lines(text), file=file, flush=flush)


def note(text: object) -> None:
    """Prints one line about what happens, on standard error, so that it is not mixed with the
    answer."""
    # one line, whatever the text has
    line = " ".join(str(text).split())
    say(f"proxnas: {line}", file=sys.stderr)


NAMED = 5
"""So many names stand in a line; of the others there are dots."""
_said: set[str] = set()


def tell(line: str) -> None:
    """One line on stderr, by the first process of a job."""
    if here().leads and line not in _said:
        _said.add(line)
        note(f"{line}")


def list_names(names: Sequence[str], most: int = NAMED) -> str:
    """Names for a line, in one of which may stand anything."""
    shown = [name if name.isprintable() else repr(name) for name in names[:most]]
    return ", ".join(shown) + (", ..." if len(names) > most else "")
