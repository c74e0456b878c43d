"""Where a run goes that was given no --run: runs/<command>-<data>-<space>-<method>-<seed>.

If a run with other flags has that name, what its own flags are goes behind it, so that the same
command line always means the same folder. No torch here: `--help` must be quick.

What a program gives as objects is kept in the run folder: a run goes on by its folder alone, and
its workers are processes of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proxnas.common.errors import POSITIONAL, AboutOptions, escape, flag_of
from proxnas.common.files import write_atomically
from proxnas.common.launch import here
from proxnas.common.options import Options, flatten
from proxnas.common.say import note
from proxnas.common.stored import read_json
from proxnas.domains.domain import of_data, trainable
from proxnas.runs.options import MAY_CHANGE, storable

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
    config: Options, plain: str, resolve: Callable[[dict[str, Any]], Options], *named: str
) -> Path:
    """The folder of the run that is asked for.

    `plain` is its name, made of the options `named`; `resolve` gives the options of a run with the
    values of these alone.
    """
    asked = flatten(config)
    first = Path(asked["run"] or plain)
    # a named folder, or the plain one if it holds this very run
    if asked["run"] or _holds(first, config):
        return first
    # what the flags would be by themselves: those that differ make the name
    usual = resolve({name: asked[name] for name in named if asked[name] != ""})
    beside = Path(f"{plain}-{_flags(config, usual)}")
    if _has_begun(beside):
        return beside
    if not _has_begun(first) or asked.get("resume") or asked.get("force"):
        return first
    if not asked["quiet"] and here().leads:
        note(f"{first} holds a run with other flags: this one goes to {beside}")
    return beside


def _has_begun(folder: Path) -> bool:
    return (folder / "config.json").exists()


def _holds(folder: Path, config: Options) -> bool:
    """Whether the folder has a run of this very configuration."""
    try:
        stored = read_json(folder / "config.json")
    except (OSError, ValueError):  # what is damaged is said when it is opened
        return False
    if not isinstance(stored, dict):
        return False
    asked = _values(config)
    # epochs that were chosen by the clock then would be others now
    if flatten(config).get("minutes") and stored.get("minutes"):
        asked = {name: value for name, value in asked.items() if name not in CHOSEN}
    return all(stored.get(name, value) == value for name, value in asked.items())


def _values(config: Options) -> dict[str, Any]:
    """What makes it this run and no other."""
    return {name: value for name, value in storable(config).items() if name not in MAY_CHANGE}


def _flags(config: Options, plain: Options) -> str:
    """The flags that are not as they would be by themselves: max-params-50k; a checksum where that
    is no name."""
    usual, asked = _values(plain), _values(config)
    given = slug(
        "-".join(
            f"{flag_of(name)}-{value}" for name, value in asked.items() if usual[name] != value
        )
    )
    # whether the words without a flag are already in the name as they are, nothing cut off
    told = all(asked[name] == data_word(asked[name]) for name in POSITIONAL if name in asked)
    if given and told and len(given) < LONGEST:
        return given
    checksum = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
    return checksum if told or len(given) >= LONGEST or not given else f"{given}-{checksum}"


CONFIGS = ("search_config", "train_config")
"""Options that are files of values, and may be the values themselves."""


def keep_in(folder: Path, data: Any, options: Mapping[str, Any]) -> dict[str, str]:
    """The words for DATA and for values that stand in files: as given, or the files in the folder
    that they are kept in now."""
    replace = bool(options.get("force"))
    words = {}
    if isinstance(data, str | os.PathLike):
        words["data"] = os.fspath(data)
    else:
        domain = trainable(of_data(data))
        words["data"] = keep_file(folder / domain.kept_as(data), domain.content_of(data), replace)
    for name in CONFIGS:
        values = options.get(name)
        if isinstance(values, Mapping):
            content = json.dumps(dict(values), indent=2).encode()
            words[name] = keep_file(folder / f"{name}.json", content, replace)
    return words


def keep_file(file: Path, content: bytes, replace: bool) -> str:
    """A file with this content; that of an earlier run stays as it is, and must hold the same."""
    if file.exists() and not replace:
        # a run must not go on with other data than it was begun with
        if file.read_bytes() != content:
            what = file.stem.replace("_", " ")
            raise AboutOptions(
                f"{escape(file)}: holds other {what} than these: give {{force}}, or another {{run}}"
            )
        return str(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, content)
    return str(file)
