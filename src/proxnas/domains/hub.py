"""Data sets of the Hugging Face hub, or files in its form, by name."""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from proxnas.common.errors import InputError, in_one_line, unknown
from proxnas.domains.parts import NAMES


def load_hub(spec: str, columns: tuple[str, ...]) -> tuple[str, dict[str, str], dict[str, Any]]:
    """(name, what was chosen after the ?, part -> dataset) of
    NAME?config=C&COLUMN=NAME&train=SPLIT..."""
    name, chosen = _parse_spec(spec, ("config", *columns, *NAMES))
    local = is_local(name)
    name = os.path.expanduser(name) if local else name
    if local and not os.path.exists(name):
        raise InputError(
            f"hf:{name}: no such file or folder: give a .parquet file or a folder of such files"
        )
    return (
        name,
        chosen,
        _splits(_load_splits(name, chosen.get("config"), local), chosen, f"hf:{name}"),
    )


def is_local(name: str) -> bool:
    """Whether a path is meant, not a set on the hub."""
    return name.startswith(("/", ".", "~")) or name.endswith(".parquet")


def _parse_spec(spec: str, choices: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    # a file may have a ? in its name
    name, _, query = (spec, "", "") if os.path.exists(spec) else spec.partition("?")
    chosen = dict(parse_qsl(query, keep_blank_values=True))
    for key in chosen:
        if key not in choices:
            raise InputError(f"hf:{spec}: {unknown('choice', key, choices)}")
    if not name.strip():
        raise InputError(
            f"hf:{spec}: no name: give hf:NAME of a set on the hub, or hf:/path/to/parquet"
        )
    return name, chosen


def _load_splits(name: str, config: str | None, local: bool) -> Any:
    """Split -> dataset."""
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            f"hf:{name}: needs the package datasets: pip install 'proxnas[hub]'"
        ) from error
    try:
        with _quiet(datasets, bars=not local):
            if local:
                return datasets.load_dataset("parquet", data_files=_files(Path(name)))
            # a set on the hub may bring a program along: it is never run
            safe = {"trust_remote_code": False} if _asks_for_trust(datasets.load_dataset) else {}
            return datasets.load_dataset(name, config, **safe)
    except InputError:
        raise
    except Exception as error:  # no network, no such set, a script in place of data, damaged files
        remedy = "check the name and the network, or give a local folder"
        if local:
            remedy = "write the parquet file again"
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__  # says what is wrong
        raise InputError(f"hf:{name}: cannot be loaded ({in_one_line(first)}): {remedy}") from error


@contextmanager
def _quiet(datasets: Any, bars: bool) -> Iterator[None]:
    """Without log lines, which our error says again, and without bars where nothing is fetched."""
    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    hide = not bars and not datasets.utils.are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    if hide:
        datasets.utils.disable_progress_bars()
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if hide:
            datasets.utils.enable_progress_bars()


def _asks_for_trust(load: Any) -> bool:
    """Older versions run scripts of a set where the environment says so; newer ones never do."""
    return "trust_remote_code" in inspect.signature(load).parameters


def _files(path: Path) -> dict[str, list[str]]:
    """Split -> parquet files: by the words in their names, else all are for training."""
    if path.is_file():
        return {"train": [str(path)]}
    files = sorted(file for file in path.rglob("*.parquet") if file.is_file())
    if not files:
        raise InputError(f"hf:{path}: no .parquet files in this folder: give one that has some")
    found: dict[str, list[str]] = {}
    for file in files:
        words = re.split(r"[^a-z]+", file.relative_to(path).as_posix().lower())
        usual = (name for names in NAMES.values() for name in names)
        split = next((name for name in usual if name in words), "train")
        found.setdefault(split, []).append(str(file))
    return found


def _splits(stored: Any, chosen: dict[str, str], where: str) -> dict[str, Any]:
    """Part -> dataset."""
    found = {}
    for part, names in NAMES.items():
        wanted = [chosen[part]] if part in chosen else [name for name in names if name in stored]
        if wanted and wanted[0]:
            if wanted[0] not in stored:
                raise InputError(f"{where}: {unknown('split', wanted[0], stored)}")
            found[part] = stored[wanted[0]]
    if "train" not in found:
        raise InputError(
            f"{where}: no split train, but {', '.join(stored)}: give {where}?train=SPLIT"
        )
    return found
