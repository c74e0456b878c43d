"""Image folders: a folder a class, in train, valid and test or by themselves; and Tiny ImageNet as
it is published."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from proxnas.common.errors import InputError
from proxnas.common.say import list_names as names_of
from proxnas.common.seeds import Array
from proxnas.domains.images.data.arrays import Images, short_name
from proxnas.domains.images.data.gather import gather
from proxnas.domains.images.data.lazy import Files
from proxnas.domains.images.data.options import LoadOptions
from proxnas.domains.images.data.picture import SUFFIXES
from proxnas.domains.parts import by_part, part_of

ANNOTATIONS = "val_annotations.txt"
NOT_OURS = ("__MACOSX", "lost+found")
Listed = dict[str, list[str]]
"""Class -> its image files."""


def read_folder(folder: Path, options: LoadOptions) -> Images:
    """The images of a folder in one of the three layouts."""
    found, unused = _list_files(folder, bool(options.for_model))
    if options.for_model:
        classes = sorted(
            {name for listed in found.values() for name, files in listed.items() if files}
        )
    else:
        classes = sorted(found["train"])
        _check_parts(folder, found, classes)
    parts = {part: _part(listed, classes, folder) for part, listed in found.items()}
    tiny = (folder / "val" / ANNOTATIONS).is_file()
    name = "tinyimagenet" if tiny else short_name(folder)
    names = [os.fsencode(name).decode("utf-8", "replace") for name in classes]
    warnings = (_unused_line(folder, unused),) if unused else ()
    return gather(parts, names, name, str(folder), options, flip=tiny, warnings=warnings)


def _list_files(folder: Path, for_model: bool) -> tuple[dict[str, Listed], list[str]]:
    """Part -> class -> files; and what is in the folder but belongs to none of them. A model may be
    tested on data without a training part."""
    tops = _folders(folder)
    # a class may be called train: then it has images in it, not folders
    parted = [name for name in tops if part_of(name) and _folders(folder / name)]
    # no train: class folders by themselves, unless a model is tested on parts alone
    if not any(part_of(name) == "train" for name in parted) and not (
        for_model and parted and parted == tops
    ):
        _check_no_parts(folder, tops)
        return {"train": _classes(folder)}, _loose(folder)
    names = by_part(tops, str(folder))
    found: dict[str, Listed] = {}
    if (folder / "val" / ANNOTATIONS).is_file():
        found["train"] = _classes(folder / names["train"])
        found["test"] = _list_by_annotations(folder / "val", set(found["train"]))
        others = [name for name in tops if name not in (names["train"], "val")]
        return found, [f"{name}/ (no labels)" for name in others] + _loose(folder)
    unused = [f"{name}/" for name in tops if name not in names.values()] + _loose(folder)
    for part, name in names.items():
        found[part] = _classes(folder / name)
        unused += [f"{name}/{file}" for file in _loose(folder / name)]
    return found, unused


def has_classes(folder: Path) -> bool:
    """Whether there are images in folders of a folder."""
    return any(_images(folder / name) for name in _folders(folder))


def _check_no_parts(folder: Path, tops: list[str]) -> None:
    """Folders that hold the same folders, or are called like parts, are no classes."""
    inside = [set(_folders(folder / name)) for name in tops]
    # folders in which there are only folders
    pure = bool(tops) and all(inside) and not any(_loose(folder / name) for name in tops)
    if pure and all(part_of(name) for name in tops):
        raise InputError(
            f"{folder}: {tops[0]} but no train in it: rename one of its folders to train, or give"
            " the folder above"
        )
    shared = sorted(set.intersection(*inside)) if len(tops) > 1 else []
    if pure and len(shared) > 1:
        raise InputError(
            f"{folder}: {names_of(tops)} all hold {names_of(shared)}, so they are parts and no"
            " classes: rename them to train, valid and test, or put the images of a class right"
            " into its folder"
        )


def _unused_line(folder: Path, unused: list[str]) -> str:
    return f"{folder}: ignored {len(unused)} beside the parts and class folders: {names_of(unused)}"


def _loose(folder: Path) -> list[str]:
    """Images that lie in a folder itself."""
    return [name for name, is_folder in _entries(folder) if not is_folder and _is_image(name)]


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def _classes(folder: Path) -> Listed:
    """Class -> files, for the class folders in a folder."""
    classes = {name: _images(folder / name) for name in _folders(folder)}
    if any(classes.values()):
        return classes
    if _images(folder):
        raise InputError(
            f"{folder}: images without class folders, so without labels: sort them into a folder a"
            " class"
        )
    if classes:
        first = folder / min(classes)
        raise InputError(
            f"{first}: no images in this class folder, nor in any other: put some in it"
        )
    raise InputError(
        f"{folder}: neither CIFAR nor images in class folders: give a folder with a folder a class"
    )


def _folders(folder: Path) -> list[str]:
    return [name for name, is_folder in _entries(folder) if is_folder]


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """(name, whether it is a folder), hidden ones left out, in the order of names."""
    if not folder.is_dir():
        return []
    try:
        with os.scandir(folder) as entries:
            # neither pipes nor sockets, which would be waited for; a link to nothing is a broken
            # image
            found = [
                (e.name, e.is_dir()) for e in entries if e.is_dir() or e.is_file() or e.is_symlink()
            ]
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be read ({error.strerror}): change its permissions"
        ) from error
    return sorted(
        (name, is_folder)
        for name, is_folder in found
        if not name.startswith(".") and name not in NOT_OURS
    )


def image_files(folder: str) -> list[str]:
    """All image files in a folder and the folders in it, hidden ones left out, in the order of
    names."""
    return _images(Path(folder))


def _images(folder: Path, depth: int = 8) -> list[str]:
    """All image files in a folder and the folders in it; `depth` ends loops of links."""
    found = []
    for name, is_folder in _entries(folder):
        if is_folder and depth:
            found += _images(folder / name, depth - 1)
        elif not is_folder and _is_image(name):
            found.append(str(folder / name))
    return found


def _list_by_annotations(folder: Path, classes: set[str]) -> Listed:
    """Tiny ImageNet's val: all images in one folder, and a file with lines of image, class and a
    box."""
    path = folder / ANNOTATIONS
    found: Listed = {}
    for number, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        words = line.split()
        if not words:
            continue
        if len(words) < 2 or words[1] not in classes:
            raise InputError(
                f"{path}: line {number} is not an image and a class of train: extract the archive"
                " again"
            )
        image = folder / "images" / os.path.basename(words[0])
        if not image.is_file():
            raise InputError(
                f"{path}: line {number} names {words[0][:80]!r}, which is not in images: extract it"
                " again"
            )
        found.setdefault(words[1], []).append(str(image))
    return found


def _check_parts(folder: Path, found: dict[str, Listed], classes: list[str]) -> None:
    if len(classes) < 2:
        raise InputError(
            f"{folder}: one class only ({classes[0]!r}): give images of at least two classes"
        )
    for part, listed in found.items():
        _check_classes(folder, part, listed, classes)


def _check_classes(folder: Path, part: str, listed: Listed, classes: list[str]) -> None:
    """Every class has images, and all parts have the same classes."""
    for name, files in listed.items():
        if name not in classes:
            raise InputError(
                f"{folder}: class {name!r} is in {part} but not in train: add it there or remove it"
                " here"
            )
        if not files:
            raise InputError(
                f"{folder}: no images of class {name!r} in {part}: put some in its folder or"
                " remove it"
            )
    if missing := [name for name in classes if name not in listed]:
        raise InputError(
            f"{folder}: class {missing[0]!r} is in train but not in {part}: add it there or remove"
            " it here"
        )


def _part(listed: Listed, classes: list[str], root: Path) -> tuple[Files, Array]:
    files = [file for name in classes for file in listed.get(name, [])]
    # files lie class by class: 0, 0, ..., 1, 1, ...
    y = np.repeat(np.arange(len(classes)), [len(listed.get(name, [])) for name in classes])
    return Files(tuple(files), str(root)), y
