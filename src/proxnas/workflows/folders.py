"""Where a run goes that was given no --run: runs/<command>-<data>-<space>-<method>-<seed>.

If a run with other flags has that name, what its own flags are goes behind it, so that the same
command line always means the same folder. No torch here: `--help` must be quick.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxnas.common.launch import here
from proxnas.common.say import note
from proxnas.common.stored import read_json
from proxnas.runs.options import MAY_CHANGE, RunConfig, flag
from proxnas.searching.settings import POSITIONAL, flag_words, storable

LONGEST = 40
"""Letters of flags that a name is made longer by at most; a checksum stands for more."""
CHOSEN = ("epochs", "refine")
"""What --minutes chooses when the run begins."""


def slug(text: str) -> str:
    """A word that is safe as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")[:60]


def data_word(data: str) -> str:
    """DATA in the name of a folder."""
    return slug(Path(data).stem) or "data"


def run_folder(
    config: RunConfig, plain: str, parse: Callable[[list[str]], RunConfig], *named: str
) -> Path:
    """The folder of the run that a command line asks for.

    `plain` is its name, made of the fields `named`; `parse` gives the configuration of a command
    line with these alone.
    """
    first = Path(config.run or plain)
    if config.run or _holds(first, config):
        return first
    beside = Path(f"{plain}-{_flags(config, parse(_words(config, named)))}")
    if _begun(beside):
        return beside
    if not _begun(first) or getattr(config, "resume", False) or getattr(config, "force", False):
        return first
    if not config.quiet and here().leads:
        note(f"{first} holds a run with other flags: this one goes to {beside}")
    return beside


def _begun(folder: Path) -> bool:
    return (folder / "config.json").exists()


def _holds(folder: Path, config: RunConfig) -> bool:
    """Whether the folder has a run of this very configuration."""
    try:
        stored = read_json(folder / "config.json")
    except (OSError, ValueError):  # what is damaged is said when it is opened
        return False
    if not isinstance(stored, dict):
        return False
    asked = _values(config)
    if getattr(config, "minutes", 0.0) and stored.get("minutes"):
        asked = {name: value for name, value in asked.items() if name not in CHOSEN}
    return all(stored.get(name, value) == value for name, value in asked.items())


def _values(config: RunConfig) -> dict[str, Any]:
    """What makes it this run and no other."""
    return {name: value for name, value in storable(config).items() if name not in MAY_CHANGE}


def _words(config: RunConfig, named: tuple[str, ...]) -> list[str]:
    """The command line of the fields that the plain name is made of."""
    values = {name: getattr(config, name) for name in named}
    words = [values.pop(name) for name in reversed(POSITIONAL) if name in values]
    return words + [word for name, value in values.items() for word in flag_words(name, value)]


def _flags(config: RunConfig, plain: RunConfig) -> str:
    """The flags that are not as they would be by themselves: max-params-50k; a checksum where that
    is no name."""
    usual, asked = _values(plain), _values(config)
    given = slug(
        "-".join(f"{flag(name)}-{value}" for name, value in asked.items() if usual[name] != value)
    )
    told = all(asked[name] == data_word(asked[name]) for name in POSITIONAL if name in asked)
    if given and told and len(given) < LONGEST:
        return given
    checksum = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
    return checksum if told or len(given) >= LONGEST or not given else f"{given}-{checksum}"
