"""Raw text in three parts, from a folder, a file, Python's own documentation or the Hugging Face hub.

Everything is judged before it is used: size, encoding, and whether there is anything in it at all.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxnas.errors import InputError

ACCEPTED = "give pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME"
PARTS = ("train", "valid", "test")
NAMES = ("{}.txt", "ptb.{}.txt", "wiki.{}.tokens")
"""What the file of a part may be called: ours, and as PTB and WikiText-2 are handed out."""
SHARES = (0.8, 0.9)
"""Where one text is cut into train, valid and test."""
LARGEST_FILE = 2**30  # bytes; as tokens it takes ten times as much memory


@dataclass(frozen=True)
class Corpus:
    """The text of each part, lines ending in \\n."""

    name: str
    """A short word, safe as part of a folder's name."""
    where: str
    """What errors begin with."""
    train: str
    valid: str
    test: str


def is_text(spec: str) -> bool:
    """Whether DATA names text rather than images; of hf:NAME nobody can say before it is read."""
    place = Path(os.path.expanduser(spec))
    if os.path.isdir(place):
        return _part_file(place, "train") is not None
    return spec == "pydocs" or (place.suffix.lower() == ".txt" and not spec.startswith("hf:"))


def read(spec: str) -> Corpus:
    """The text that DATA names: a word, a path or hf:NAME."""
    if spec == "pydocs":
        return _pydocs()
    if spec.startswith("hf:"):
        return _hub(spec.removeprefix("hf:"))
    place = os.path.expanduser(spec)  # os.path: unlike Path's, its questions never raise
    if os.path.isdir(place):
        return _folder(Path(place))
    if os.path.isfile(place) and Path(place).suffix.lower() == ".txt":
        return _file(Path(place))
    if os.path.exists(place):
        raise InputError(f"{spec!r}: not a kind of text that can be read: {ACCEPTED}")
    fault = "no such file or folder" if len(Path(place).parts) > 1 or Path(place).suffix else "unknown text"
    raise InputError(f"{fault} {spec[:200]!r}: {ACCEPTED}")


def cut(text: str) -> tuple[str, str, str]:
    """The first 80%, the next 10% and the last 10% of a text, cut at the end of a line or word if there is one near."""
    first, second = (_boundary(text, round(share * len(text))) for share in SHARES)
    return text[:first], text[first:second], text[second:]


def _boundary(text: str, position: int) -> int:
    """The first end of a line from here on; where that is far away, of a word; else here."""
    reach = position + max(1, len(text) // 50)
    for mark in ("\n", " "):
        if (found := text.find(mark, position, reach)) >= 0:
            return found + 1
    return position


def _pydocs() -> Corpus:
    """The language reference behind Python's help(): each topic is cut, so that all parts speak of all topics."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise InputError(f"pydocs: this Python comes without pydoc_data ({error}): {ACCEPTED}") from error
    cuts = [cut(_lines(topics[name])) for name in sorted(topics)]
    train, valid, test = ("".join(parts) for parts in zip(*cuts, strict=True))
    return Corpus("pydocs", "pydocs", train, valid, test)


def _folder(folder: Path) -> Corpus:
    files: dict[str, Path] = {}
    for part in PARTS:
        file = _part_file(folder, part)
        if file is None:
            raise InputError(f"{folder}: no file {part}.txt: {ACCEPTED}")
        files[part] = file
    texts = {part: read_text(file) for part, file in files.items()}
    return Corpus(_short(folder.resolve().name), str(folder), **texts)


def _part_file(folder: Path, part: str) -> Path | None:
    return next((file for name in NAMES if os.path.isfile(file := folder / name.format(part))), None)


def _file(path: Path) -> Corpus:
    return Corpus(_short(path.stem), str(path), *cut(read_text(path)))


def read_text(path: Path) -> str:
    """A UTF-8 file, its lines ending in \\n; binary data, an empty file or a huge one is refused by name."""
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise InputError(f"{path}: {size:,} bytes is above the limit of {LARGEST_FILE:,}: give a part of it")
    data = path.read_bytes()
    if not data.strip():
        raise InputError(f"{path}: is empty: give a file with text in it")
    try:
        text = data.decode("utf-8-sig")
        fault = "NUL characters" if "\0" in text else ""
    except UnicodeDecodeError as error:
        fault = f"byte {error.start} is not UTF-8"
    if fault:
        raise InputError(f"{path}: binary data, not text ({fault}): give plain text in UTF-8")
    return _lines(text)


def _lines(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if text.endswith("\n") else text + "\n"


def _hub(spec: str) -> Corpus:
    """A data set of the hub with a column of text: its own parts, or its train part cut in three."""
    from proxnas.data.hub import loaded

    name, chosen, splits = loaded(spec, ("text",))
    where = f"hf:{name}"
    texts = {part: _joined(splits[part], chosen.get("text", "text"), where) for part in PARTS if part in splits}
    if not texts["train"].strip():
        raise InputError(f"{where}: is empty: choose another data set")
    if len(texts) < len(PARTS):
        texts = dict(zip(PARTS, cut(texts["train"]), strict=True))
    return Corpus(_short(Path(name).stem), where, **texts)


def _joined(split: Any, column: str, where: str) -> str:
    if column not in split.column_names:
        found = ", ".join(split.column_names)[:120]
        raise InputError(f"{where}: no column {column} (found: {found}): give {where}?text=COLUMN")
    rows = split[column]
    if not all(isinstance(row, str) for row in rows):
        raise InputError(f"{where}: column {column} holds other things than strings: give {where}?text=COLUMN")
    return "".join(_lines(row) for row in rows)


def _short(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", name)[:40].strip("-") or "text"
