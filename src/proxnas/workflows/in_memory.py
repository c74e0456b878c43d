"""What a program gives as objects, kept in the run folder: a run goes on by its folder alone, and
its workers are processes of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxnas.common.errors import AboutOptions, escape
from proxnas.common.files import write_atomically
from proxnas.domains.domain import of_data, trainable

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
        words["data"] = _keep(folder / domain.kept_as(data), domain.content_of(data), replace)
    for name in CONFIGS:
        values = options.get(name)
        if isinstance(values, Mapping):
            content = json.dumps(dict(values), indent=2).encode()
            words[name] = _keep(folder / f"{name}.json", content, replace)
    return words


def _keep(file: Path, content: bytes, replace: bool) -> str:
    """A file with this content; that of an earlier run stays as it is, and must hold the same."""
    if file.exists() and not replace:
        if file.read_bytes() != content:
            what = file.stem.replace("_", " ")
            raise AboutOptions(
                f"{escape(file)}: holds other {what} than these: give {{force}}, or another {{run}}"
            )
        return str(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, content)
    return str(file)
