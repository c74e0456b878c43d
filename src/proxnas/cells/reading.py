"""A cell or a network by what names it: a run folder, a file, zoo:NAME or a NAS-Bench-201
string."""

from __future__ import annotations

import os
from pathlib import Path

from proxnas.cells.designs import Architecture, Design, named_design
from proxnas.cells.genotype import MAX_BYTES, Genotype
from proxnas.cells.zoo import find_cell, zoo_entry
from proxnas.common.errors import InputError
from proxnas.common.stored import open_regular


def read_genotype(path_or_text: str | os.PathLike[str]) -> Genotype:
    """The genotype of a run folder, a JSON file, zoo:NAME, a NAS-Bench-201 string or a file that
    holds one."""
    if isinstance(path_or_text, str) and path_or_text.lstrip().startswith("|"):
        return Genotype.from_string(path_or_text)
    if isinstance(path_or_text, str) and path_or_text.startswith("zoo:"):
        return find_cell(path_or_text)
    path = Path(path_or_text)
    try:
        in_run = path.is_dir()
        path = path / "genotype.json" if in_run else path
        with open_regular(path) if in_run else path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # never the whole of a file that was given by mistake
        if len(data) > MAX_BYTES:
            raise InputError(
                "too large to be a genotype (over 1 MB): give the genotype.json of a run"
            )
        # with or without the mark that some editors put before the text
        text = data.decode("utf-8-sig")
        if text.lstrip().startswith("|"):
            return Genotype.from_string(text)
        return Genotype.from_json(text)
    except FileNotFoundError:
        reason = "no such file: give a run folder, a JSON file, zoo:NAME or a NAS-Bench-201 string"
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 text (byte {error.start}): give a genotype.json"
    except (InputError, OSError, ValueError) as error:  # a ValueError: a path with a NUL character
        reason = getattr(error, "strerror", None) or str(error)
    raise InputError(f"{path if str(path).isprintable() else repr(str(path))}: {reason}")


def read_architecture(path_or_text: str | os.PathLike[str]) -> Architecture:
    """The design of zoo:NAME, of a run folder or of a file; or else a genotype, wherever one can
    be."""
    if isinstance(path_or_text, str) and path_or_text.startswith("zoo:"):
        return zoo_entry(path_or_text).genotype
    name = named_design(_beginning(Path(path_or_text)))
    return read_genotype(path_or_text) if name is None else Design(name)


def _beginning(path: Path) -> str:
    """What a file holds, if it is small enough to be a design; what is wrong with it the genotype's
    reader says."""
    try:
        in_run = path.is_dir()
        path = path / "genotype.json" if in_run else path
        with open_regular(path) if in_run else path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8-sig")
    except (OSError, ValueError):
        return ""
