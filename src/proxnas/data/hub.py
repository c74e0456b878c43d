"""Images from the Hugging Face hub, or from parquet files as the hub keeps them, through the package `datasets`.

hf:NAME?config=C&label=COLUMN&image=COLUMN&train=SPLIT&valid=SPLIT&test=SPLIT, everything from ? on as needed.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from PIL import Image

from proxnas.data.arrays import Images, reason, reindexed, short_name
from proxnas.data.gather import gather
from proxnas.data.lazy import TRACED
from proxnas.data.options import LoadOptions
from proxnas.data.parts import NAMES
from proxnas.data.picture import BrokenImage, opened
from proxnas.data.split import Array
from proxnas.errors import InputError, unknown

LABELS = ("label", "labels", "class", "target", "y", "fine_label")


def read(spec: str, options: LoadOptions) -> Images:
    """The images of a set on the hub, a parquet file, or a folder of parquet files."""
    name, chosen, splits = loaded(spec, ("image", "label"))
    image, label = _columns(splits["train"], chosen, f"hf:{name}")
    labels = {part: _labels(split, label, f"hf:{name}: {part}") for part, split in splits.items()}
    known, y = reindexed(labels, f"hf:{name}", bool(options.for_model))
    names = getattr(splits["train"].features[label], "names", None)
    classes = [str(names[number] if names else number) for number in known.tolist()]
    parts = {part: (Column.of(split, image, part, not is_local(name)), y[part]) for part, split in splits.items()}
    return gather(parts, classes, short_name(Path(name)), f"hf:{name}", options)


def loaded(spec: str, columns: tuple[str, ...]) -> tuple[str, dict[str, str], dict[str, Any]]:
    """(name, what was chosen after the ?, part -> dataset) of NAME?config=C&COLUMN=NAME&train=SPLIT..."""
    name, chosen = _parsed(spec, ("config", *columns, *NAMES))
    local = is_local(name)
    name = os.path.expanduser(name) if local else name
    if local and not os.path.exists(name):
        raise InputError(f"hf:{name}: no such file or folder: give a .parquet file or a folder of such files")
    return name, chosen, _splits(_loaded(name, chosen.get("config"), local), chosen, f"hf:{name}")


def is_local(name: str) -> bool:
    """Whether a path is meant, not a set on the hub."""
    return name.startswith(("/", ".", "~")) or name.endswith(".parquet")


@dataclass(frozen=True)
class Column:
    """A column of images, each as the content of its file."""

    split: Any
    column: str
    part: str
    may_name_files: bool
    """Whether an image may be a path in place of a content: in sets that the hub's own package has put on this disk."""

    @classmethod
    def of(cls, split: Any, column: str, part: str, may_name_files: bool) -> Column:
        from datasets import Image as ImageFeature

        if isinstance(split.features[column], ImageFeature):
            split = split.cast_column(column, ImageFeature(decode=False))  # we decode, with our limits
        return cls(split.select_columns([column]), column, part, may_name_files)

    def __len__(self) -> int:
        return len(self.split)

    def name(self, number: int) -> str:
        return f"{self.part}[{number}]"

    def open(self, number: int) -> Image.Image:
        stored = self.split[number][self.column]
        content = stored.get("bytes") if isinstance(stored, dict) else stored
        if isinstance(content, bytes):
            return opened(content)
        path = stored.get("path") if isinstance(stored, dict) else None
        if isinstance(path, str) and self.may_name_files:
            return opened(path)
        raise BrokenImage("no content of an image file")

    def trace(self, number: int, content: bool) -> bytes:
        stored = self.split[number][self.column] if content else None
        found = stored.get("bytes") if isinstance(stored, dict) else stored
        return f"{len(found)}/".encode() + found[:TRACED] if isinstance(found, bytes) else b""


def _parsed(spec: str, choices: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    name, _, query = (spec, "", "") if os.path.exists(spec) else spec.partition("?")
    chosen = dict(parse_qsl(query, keep_blank_values=True))
    for key in chosen:
        if key not in choices:
            raise InputError(f"hf:{spec}: {unknown('choice', key, choices)}")
    if not name.strip():
        raise InputError(f"hf:{spec}: no name: give hf:NAME of a set on the hub, or hf:/path/to/parquet")
    return name, chosen


def _loaded(name: str, config: str | None, local: bool) -> Any:
    """Split -> dataset."""
    try:
        import datasets
    except ImportError as error:
        raise InputError(f"hf:{name}: needs the package datasets: pip install 'proxnas[hub]'") from error
    try:
        with _quiet(datasets, bars=not local):
            if local:
                return datasets.load_dataset("parquet", data_files=_files(Path(name)))
            safe = {"trust_remote_code": False} if _asks_for_trust(datasets.load_dataset) else {}
            return datasets.load_dataset(name, config, **safe)
    except InputError:
        raise
    except Exception as error:  # no network, no such set, a script in place of data, damaged files
        remedy = "write the parquet file again" if local else "check the name and the network, or give a local folder"
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__  # says what is wrong
        raise InputError(f"hf:{name}: cannot be loaded ({reason(first)}): {remedy}") from error


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
        split = next((name for names in NAMES.values() for name in names if name in words), "train")
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
        raise InputError(f"{where}: no split train, but {', '.join(stored)}: give {where}?train=SPLIT")
    return found


def _columns(split: Any, chosen: dict[str, str], where: str) -> tuple[str, str]:
    """The columns of images and of labels, found by their types."""
    from datasets import ClassLabel
    from datasets import Image as ImageFeature

    features = split.features
    for key in ("image", "label"):
        if key in chosen and chosen[key] not in features:
            raise InputError(f"{where}: {unknown('column', chosen[key], features)}")
    images = [name for name, kind in features.items() if isinstance(kind, ImageFeature)]
    images = images or [name for name, kind in features.items() if _is_content(kind)]
    labels = [name for name, kind in features.items() if isinstance(kind, ClassLabel)]
    labels = labels or [name for name in features if name in LABELS]
    return _one("image", images, chosen, features, where), _one("label", labels, chosen, features, where)


def _is_content(kind: Any) -> bool:
    """An image file as plain bytes, as others than the hub's package write it."""
    return getattr(kind, "dtype", None) == "binary" or (isinstance(kind, dict) and "bytes" in kind)


def _one(what: str, found: list[str], chosen: dict[str, str], features: Any, where: str) -> str:
    if what in chosen:
        return chosen[what]
    if len(found) != 1:
        number = f"columns {', '.join(found)} could be the {what}" if found else f"no column of {what}s"
        raise InputError(f"{where}: {number} (columns: {', '.join(features)}): give {where}?{what}=COLUMN")
    return found[0]


def _labels(split: Any, column: str, where: str) -> Array:
    labels = list(split[column]) if column in split.features else [None]
    if any(label is None or label == -1 for label in labels):
        raise InputError(f"{where}: no labels: leave the part out (?test=) or choose another split (?test=validation)")
    if not labels or not all(type(label) is type(labels[0]) and isinstance(label, int | str) for label in labels):
        raise InputError(f"{where}: labels in column {column} are no whole numbers or words: give another column")
    return np.array(labels)
