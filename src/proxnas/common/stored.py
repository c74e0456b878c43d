"""Files of run folders and metadata of models, read as what they are: anything that anybody has put
there.

Only regular files are opened, so that nobody waits for the other end of a pipe; no more of them is
read than ours can have; whole numbers beyond 64 bits are read as floats, which may be infinite, so
that no later computation overflows. `FIELDS` says once what the values of a result and of a row of
metrics are: commands that need them refuse what differs (`check`), reports leave it out (`sound`).
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from proxnas.common.errors import AboutOptions, escape

MOST_BYTES = 4 * 2**20
"""Of a JSON object of ours."""
MOST_LINES_BYTES = 256 * 2**20
"""Of metrics.jsonl, a vocabulary or a log, which grow with the run."""
LONGEST = 18
"""Digits that surely fit into 64 bits."""
LARGEST = 1e100
"""No figure of ours is larger; its square can still be computed with."""

Check = Callable[[Any], bool]


def open_regular(path: Path) -> IO[bytes]:
    """A regular file; an OSError for anything else, at once."""
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_CLOEXEC", 0)
        | getattr(os, "O_BINARY", 0)
    )
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """All of a regular file; an OSError if it has more bytes than that."""
    with open_regular(path) as file:
        # one more than allowed tells that there is more, and no more is read
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes, which no file of ours has", str(path))
    return content


def parse_json(text: str | bytes) -> Any:
    """The JSON value in a text, its numbers within bounds; a ValueError if there is none."""
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _whole(digits: str) -> int | float:
    # past every float it becomes infinity, which no check takes for a figure
    return int(digits) if len(digits) <= LONGEST else float(digits)


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """The JSON value in a file; an OSError or a ValueError if there is none."""
    return parse_json(read_bytes(path, most))


def is_whole(value: Any) -> bool:
    """0, 1, 2, ..."""
    return type(value) is int and value >= 0


def is_figure(value: Any) -> bool:
    """A number that can be computed with."""
    # NaN is not; an int may be past every float
    return type(value) in (int, float) and abs(value) <= LARGEST


def is_measurement(value: Any) -> bool:
    """The same, or what stands for a measurement that came to nothing: NaN, infinity."""
    return type(value) in (int, float)


def is_amount(value: Any) -> bool:
    """Of seconds, for example."""
    return is_figure(value) and value >= 0


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def is_name(value: Any) -> bool:
    """One component of a path that leads nowhere else: letters, digits, and . _ + - after the
    first."""
    return isinstance(value, str) and re.fullmatch(r"\w[\w.+-]{0,99}", value) is not None


def list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def object_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _has(value: Any, fields: Mapping[str, Check]) -> bool:
    """An object of exactly these."""
    return (
        isinstance(value, dict)
        and value.keys() == fields.keys()
        and all(fields[key](value[key]) for key in fields)
    )


def _is_matrix(value: Any) -> bool:
    """(E, K)"""
    return list_of(list_of(is_measurement))(value) and len({len(row) for row in value}) == 1


def _is_pair(value: Any) -> bool:
    return list_of(is_whole)(value) and len(value) == 2


def _is_budget(value: Any) -> bool:
    sizes = ("limit", "smallest", "largest")
    return (
        isinstance(value, dict)
        and is_text(value.get("of"))
        and all(is_figure(value.get(name)) for name in sizes)
    )


def _is_refined(value: Any) -> bool:
    return isinstance(value, dict) and is_flag(value.get("changed"))


def _is_part(value: Any) -> bool:
    """What the result of a fit says of its search or its training."""
    return (
        isinstance(value, dict)
        and is_amount(value.get("seconds"))
        and is_text(value.get("warning", ""))
    )


COMMON: dict[str, Check] = {
    "epoch": lambda value: is_whole(value) and value > 0,
    "epochs": is_whole,
    "step": is_whole,
    "steps": is_whole,
    "seed": is_whole,
    "changes": is_whole,
    "rollbacks": is_whole,
    "params": is_whole,
    "flops": is_whole,
    "words": is_whole,
    "test_images": is_whole,
    "test_tokens": is_whole,
    "best_epoch": is_whole,
    "averaged_from": or_none(is_whole),
    "method": or_none(is_text),
    "space": or_none(is_text),
    "data": is_text,
    "command": is_text,
}
"""Key -> whether a value of it is one, wherever it stands."""
CONFIG = COMMON
RESULT: dict[str, Check] = COMMON | {
    "seconds": is_amount,
    "genotype": or_none(is_object),
    "converged": or_none(is_flag),
    "budget": or_none(_is_budget),
    "refined": _is_refined,
    "table": object_of(lambda value: is_measurement(value) or is_text(value)),
    "warning": is_text,
    "beyond_the_paper": is_text,
    "mean": is_figure,
    "std": is_figure,
    "seeds": list_of(is_whole),
    "search": _is_part,
    "train": _is_part,
    "exported": is_text,
    "model_card": is_text,
    "export_difference": is_figure,
    "sample": is_text,
    "cell": is_text,
}
ROW: dict[str, Check] = COMMON | {
    "seconds": object_of(is_amount),
    "memory": object_of(is_measurement),
    "genotype": is_object,
    "schema": is_whole,
    "A": object_of(_is_matrix),
    "selected": object_of(list_of(_is_pair)),
}
EVALUATION: dict[str, Check] = {
    "valid": lambda value: _has(value, {"loss": is_figure, "accuracy": is_figure}),
    "train": lambda value: _has(
        value, {"loss": is_figure, "accuracy": is_figure, "images": is_whole, "steps": is_whole}
    ),
    "seconds": is_amount,
}
"""The result of one cell of a search that was evaluated by itself."""
MEASURED = ("train_", "valid_", "test_")
"""How the names of measurements begin."""


def _fits(name: str, value: Any, fields: Mapping[str, Check]) -> bool:
    if name in fields:
        return fields[name](value)
    if fields is ROW and name.startswith(MEASURED):
        return is_measurement(value)
    if fields is RESULT and name.startswith(MEASURED):
        # nothing where nothing was held out to validate on, a list of several seeds
        return value is None or is_figure(value) or list_of(is_figure)(value)
    return True


def sound(values: Mapping[str, Any], fields: Mapping[str, Check]) -> dict[str, Any]:
    """Without the values that are none: a report of the rest is worth more than no report."""
    return {name: value for name, value in values.items() if _fits(name, value, fields)}


def check(values: Any, fields: Mapping[str, Check], needed: Iterable[str] = ()) -> dict[str, Any]:
    """The object, if all its values are such and those that are needed are there; else a ValueError
    that names one."""
    if not isinstance(values, dict):
        raise ValueError("not an object")
    for name in needed:
        if name not in values:
            raise ValueError(f"{name} is missing")
    for name, value in values.items():
        if not _fits(name, value, fields):
            raise ValueError(f"{name} is {json.dumps(value)[:60]}, which it cannot be")
    return values


def unreadable(path: Path, error: Exception, what_to_do: str) -> AboutOptions:
    """The InputError for a file of a run folder that cannot be used; what to do may name
    options."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return AboutOptions(escape(f"{path}: cannot be read ({reason}): ") + what_to_do)
