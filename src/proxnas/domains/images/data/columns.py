"""Cells of a table as targets: classes, numbers or labels, by what stands in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.say import list_names
from proxnas.common.seeds import Array
from proxnas.domains.images.targets import CLASSES, KINDS, Labels, Numbers, Target

Cells = Sequence[tuple[str, ...]]
"""Of each image a cell a column of labels."""
SIGNS = (";", "|")
"""What stands between several labels of a cell."""
MANY, SHARE = 100, 0.1
"""More whole numbers than so many, and than this share of the images, may be classes or numbers."""
MOST_WORDS = 0.5
"""More words than MANY, and than this share of the images, are no classes: names, captions, ..."""
TRUTH = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}


def targets_of(
    columns: Sequence[str], parts: Mapping[str, Cells], kind: str, where: str, for_model: bool
) -> tuple[list[str], dict[str, Array], Target]:
    """Names of the outputs, y of each part, and the kind that they are of; `kind`: as asked for."""
    everything = [row for cells in parts.values() for row in cells]
    kind = kind or kind_of(everything, where, for_model)
    if kind not in KINDS:
        raise InputError(f"{where}: ?kind={kind}: give {', '.join(KINDS)}")
    if kind == "numbers":
        return _numbers(columns, parts, where)
    if kind == "labels":
        return _labels(columns, parts, where)
    if len(columns) > 1:
        raise InputError(
            f"{where}: {list_names(columns, 20)} cannot all be the class: give ?label=ONE"
        )
    names = _classes(parts, where, for_model)
    number = {name: k for k, name in enumerate(names)}
    y = {
        part: np.array([number[label] for (label,) in cells], np.int64)
        for part, cells in parts.items()
    }
    return names, y, CLASSES


def kind_of(rows: Cells, where: str, for_model: bool = False) -> str:
    """The kind that the cells look like. `for_model`: few images may be of many classes."""
    cells = {cell for row in rows for cell in row}
    several = len(rows[0]) > 1
    if several and all(cell.lower() in TRUTH for cell in cells):
        return "labels"
    if not several and any(sign in cell for cell in cells for sign in SIGNS):
        return "labels"
    numbers = [_number(cell) for cell in cells]
    if any(number is None for number in numbers):
        wordy = len(cells) > MANY and len(cells) > MOST_WORDS * len(rows)
        if wordy and not several and not for_model:
            raise InputError(
                f"{where}: {len(cells)} different labels of {len(rows)} images"
                f" ({list_names(sorted(cells))}): give ?label=COLUMN, or ?kind=classes if they are"
                " classes"
            )
        return "classes"
    if several or any(number != round(number) for number in numbers if number is not None):
        return "numbers"
    if len(cells) > MANY and len(cells) > SHARE * len(rows):
        raise InputError(
            f"{where}: {len(cells)} different whole numbers: are they numbers to be learnt, or"
            " classes? Give ?kind=numbers or ?kind=classes behind the name"
        )
    return "classes"


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def reads_as_number(cell: str) -> bool:
    """Whether a cell holds a number, or the truth of a label."""
    return _number(cell) is not None or cell.strip().lower() in TRUTH


def _numbers(
    columns: Sequence[str], parts: Mapping[str, Cells], where: str
) -> tuple[list[str], dict[str, Array], Target]:
    found: dict[str, list[list[float | None]]] = {}
    bad = []
    for part, rows in parts.items():
        found[part] = []
        for row in rows:
            found[part].append([_number(cell) for cell in row])
            bad += [cell for cell in row if _number(cell) is None]
    if bad:
        raise InputError(
            f"{where}: {len(bad)} cells are no numbers ({list_names(bad)}): mend them, or give"
            " ?kind=classes"
        )
    y = {part: np.array(numbers, np.float32) for part, numbers in found.items()}
    # of the training part, where there is one: a scale must not know the test
    some = y.get("train", next(iter(y.values()))).astype(np.float64)
    std = some.std(0)
    if not (std > 0).all() and len(some) > 1:
        constant = columns[int(np.flatnonzero(std == 0)[0])]
        raise InputError(f"{where}: {constant} is the same in all images of train: leave it out")
    scale = Numbers(tuple(some.mean(0).tolist()), tuple(np.where(std > 0, std, 1.0).tolist()))
    return list(columns), y, scale


def _labels(
    columns: Sequence[str], parts: Mapping[str, Cells], where: str
) -> tuple[list[str], dict[str, Array], Target]:
    if len(columns) > 1:
        return _truth_columns(columns, parts, where)
    words: dict[str, list[list[str]]] = {}
    known: set[str] = set()
    for part, rows in parts.items():
        words[part] = [_labels_in(cell) for (cell,) in rows]
        known.update(*words[part])
    names = sorted(known)
    number = {name: k for k, name in enumerate(names)}
    y = {}
    for part, each in words.items():
        y[part] = np.zeros((len(each), len(names)), np.float32)
        for n, row in enumerate(each):
            y[part][n, [number[word] for word in row]] = 1
    return names, y, Labels()


def _truth_columns(
    columns: Sequence[str], parts: Mapping[str, Cells], where: str
) -> tuple[list[str], dict[str, Array], Target]:
    """A column a label, in which 0 or 1 stands."""
    y, bad = {}, 0
    for part, rows in parts.items():
        # -1: neither
        truth = [[TRUTH.get(cell.lower(), -1.0) for cell in row] for row in rows]
        y[part] = np.array(truth, np.float32)
        bad += int((y[part] < 0).sum())
    if bad:
        raise InputError(f"{where}: {bad} cells of labels are neither 0 nor 1: mend them")
    return list(columns), y, Labels()


def _labels_in(cell: str) -> list[str]:
    """The labels of a cell: between signs, or if there are none between blanks."""
    sign = next((sign for sign in SIGNS if sign in cell), None)
    return [word.strip() for word in cell.split(sign) if word.strip()]


def _classes(parts: Mapping[str, Cells], where: str, for_model: bool) -> list[str]:
    """The classes of train, numbers in their order; those of other parts must be among them."""
    found = {part: {label for (label,) in rows} for part, rows in parts.items()}
    known = set().union(*found.values()) if for_model else found["train"]
    if len(known) < 2 and not for_model:
        raise InputError(f"{where}: one class only ({list_names(sorted(known))}): give two or more")
    for part, labels in found.items():
        if unseen := sorted(labels - known):
            raise InputError(
                f"{where}: {len(unseen)} classes of {part} are not in train ({list_names(unseen)}):"
                " remove them or add some images to train"
            )
    # 2 before 10, which the order of words has the other way round
    if all(label.lstrip("-").isdigit() for label in known):
        return sorted(known, key=int)
    return sorted(known)
