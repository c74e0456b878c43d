"""Raw text in three parts, from a folder, a file, Python's own documentation or the Hugging Face
hub.

Everything is judged before it is used: size, encoding, and whether there is anything in it at all.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxnas.common.errors import InputError
from proxnas.common.say import tell
from proxnas.domains.parts import by_part

ACCEPTED = "give pydocs, a folder with train.txt, valid.txt and test.txt, a .txt file, or hf:NAME"
PARTS = ("train", "valid", "test")
AROUND = (("", ".txt"), ("ptb.", ".txt"), ("wiki.", ".tokens"))
"""What stands around the part in the name of its file: ours, and as PTB and WikiText-2 are handed
out."""
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
    warnings: tuple[str, ...] = ()
    """What is odd about the text, a line each."""


def is_text(spec: str) -> bool:
    """Whether DATA names text rather than images; of hf:NAME nobody can say before it is read."""
    place = Path(os.path.expanduser(spec))
    if os.path.isdir(place):
        return "train" in _part_files(place)
    return spec == "pydocs" or (place.suffix.lower() == ".txt" and not spec.startswith("hf:"))


def read_corpus(spec: str) -> Corpus:
    """The text that DATA names: a word, a path or hf:NAME."""
    if spec == "pydocs":
        return _pydocs()
    if spec.startswith("hf:"):
        return _hub(spec.removeprefix("hf:"))
    place = os.path.expanduser(spec)  # os.path: unlike Path's, its questions never raise
    if os.path.isdir(place):
        return _folder(Path(place))
    if os.path.isfile(place) and Path(place).suffix.lower() == ".txt":
        path = Path(place)
        return Corpus(_short(path.stem), str(path), *cut_parts(read_text(path)))
    if os.path.exists(place):
        raise InputError(f"{spec!r}: not a kind of text that can be read: {ACCEPTED}")
    fault = "unknown text"
    if len(Path(place).parts) > 1 or Path(place).suffix:
        fault = "no such file or folder"
    raise InputError(f"{fault} {spec[:200]!r}: {ACCEPTED}")


def cut_parts(text: str) -> tuple[str, str, str]:
    """The first 80%, the next 10% and the last 10% of a text, cut at the end of a line or word if
    there is one near."""
    first, second = (_boundary(text, round(share * len(text))) for share in SHARES)
    return text[:first], text[first:second], text[second:]


def _boundary(text: str, position: int) -> int:
    """The first end of a line from here on; where that is far away, of a word; else here."""
    # near: within 2% of the text
    reach = position + max(1, len(text) // 50)
    for mark in ("\n", " "):
        if (found := text.find(mark, position, reach)) >= 0:
            return found + 1
    return position


def _pydocs() -> Corpus:
    """The language reference behind Python's help(): each topic is cut, so that all parts speak of
    all topics."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise InputError(
            f"pydocs: this Python comes without pydoc_data ({error}): {ACCEPTED}"
        ) from error
    # sorted: in the order of names on every machine
    cuts = [cut_parts(_lines(topics[name])) for name in sorted(topics)]
    train, valid, test = ("".join(parts) for parts in zip(*cuts, strict=True))
    return Corpus("pydocs", "pydocs", train, valid, test)


def _folder(folder: Path) -> Corpus:
    files = _part_files(folder)
    for part in PARTS:
        if part not in files:
            raise InputError(f"{folder}: no file {part}.txt: {ACCEPTED}")
    train, valid, test = (read_text(files[part]) for part in PARTS)
    return Corpus(_short(folder.resolve().name), str(folder), train, valid, test)


def _part_files(folder: Path) -> dict[str, Path]:
    """Part -> its file, by the usual names of parts in upper or lower case; of ours and another's
    ours counts."""
    try:
        files = sorted(name for name in os.listdir(folder) if os.path.isfile(folder / name))
    except OSError:  # whoever reads it will say what is wrong
        return {}
    found: dict[str, Path] = {}
    for before, after in AROUND:
        fitting = [
            f for f in files if f.casefold().startswith(before) and f.casefold().endswith(after)
        ]
        # what stands in between: the name of the part
        words = {file[len(before) : -len(after)]: file for file in fitting}
        for part, word in by_part(words, str(folder)).items():
            # AROUND begins with our own names, which win
            found.setdefault(part, folder / words[word])
    return found


def read_text(path: Path) -> str:
    """A UTF-8 file, its lines ending in \\n; binary data, an empty file or a huge one is refused by
    name."""
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise InputError(
            f"{path}: {size:,} bytes is above the limit of {LARGEST_FILE:,}: give a part of it"
        )
    data = path.read_bytes()
    if not data.strip():
        raise InputError(f"{path}: is empty: give a file with text in it")
    try:
        # the mark that some editors begin with is no text
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
    """A data set of the hub with a column of text: its own parts, or its train part cut in
    three."""
    from proxnas.domains.hub import load_hub

    name, chosen, splits = load_hub(spec, ("text",))
    where = f"hf:{name}"
    texts = {
        part: _join_lines(splits[part], chosen.get("text", "text"), where)
        for part in PARTS
        if part in splits
    }
    if not texts["train"].strip():
        raise InputError(f"{where}: is empty: choose another data set")
    missing = [part for part in PARTS if part not in texts]
    return Corpus(
        _short(Path(name).stem),
        where,
        **_complete_parts(texts),
        warnings=_cut_lines(where, missing),
    )


def _complete_parts(texts: dict[str, str]) -> dict[str, str]:
    """The parts that a set has, and those that it lacks cut from the end of its training text."""
    whole = texts["train"]
    if len(texts) == 1:
        return dict(zip(PARTS, cut_parts(whole), strict=True))
    if len(texts) == len(PARTS):
        return texts
    end = _boundary(whole, round(SHARES[1] * len(whole)))
    # train is always there, so it is one of valid and test
    (missing,) = (part for part in PARTS if part not in texts)
    return texts | {"train": whole[:end], missing: whole[end:]}


def _cut_lines(where: str, missing: list[str]) -> tuple[str, ...]:
    """What is to be said of parts that were cut from the training text."""
    if not missing:
        return ()
    line = (
        f"{where}: no part {' and '.join(missing)}: cut from the end of its training text, a tenth"
        " each"
    )
    tell(line)
    return (line,)


def _join_lines(split: Any, column: str, where: str) -> str:
    if column not in split.column_names:
        found = ", ".join(split.column_names)[:120]
        raise InputError(f"{where}: no column {column} (found: {found}): give {where}?text=COLUMN")
    rows = split[column]
    if not all(isinstance(row, str) for row in rows):
        raise InputError(
            f"{where}: column {column} holds other things than strings: give {where}?text=COLUMN"
        )
    return "".join(_lines(row) for row in rows)


def _short(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", name)[:40].strip("-") or "text"
