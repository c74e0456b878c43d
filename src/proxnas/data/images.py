"""Labelled images from a built-in set, an .npz file or a CIFAR-10 folder, checked before anything is built on them."""

# N images, H height, W width, C channels, K classes; x is (N, H, W, C), y is (N,)

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxnas.errors import InputError

Array = NDArray[Any]
Part = tuple[Array, Array]  # x and y
Form = tuple[tuple[int, ...], np.dtype[Any]]  # shape and dtype
ACCEPTED = "give digits, an .npz file or a cifar-10-batches-bin folder"
PARTS = ("train", "valid", "test")
SMALLEST_SIDE = 4  # networks halve the image twice
LARGEST_ARRAY = 16 * 2**30  # bytes
DEFLATE_RATIO = 1032  # no byte of a zip file can stand for more bytes than this
CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", "batches.meta.txt")


@dataclass(frozen=True, eq=False)
class Images:
    """A data set in memory; x is (N, H, W, C), uint8 or float32; y is int64, any integers re-indexed to 0 .. K-1."""

    name: str
    """A short word, safe as part of a folder's name."""
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """A channel, over x_train: of x / 255 for uint8, of x itself for float32; `std` likewise."""
    std: tuple[float, ...]
    shift: bool
    """Whether a shifted image keeps its class; `flip`: whether a mirrored one does."""
    flip: bool
    x_valid: Array | None = None
    y_valid: Array | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        return (self.x_train.shape[3], *self.x_train.shape[1:3])

    @property
    def num_classes(self) -> int:
        return len(self.classes)


def load(spec: str) -> Images:
    """The data set that DATA names: a word or a path."""
    if spec == "digits":
        return _digits()
    path = Path(place := os.path.expanduser(spec))  # os.path: unlike Path's, its questions never raise
    if os.path.isdir(place):
        return _cifar10(path)
    if os.path.isfile(place) and path.suffix.lower() == ".npz":
        return _npz(path)
    if os.path.exists(place) or len(path.parts) > 1 or path.suffix:
        fault = "not a kind of data that can be read" if os.path.exists(place) else "no such file or folder"
        raise InputError(f"{spec!r}: {fault}: {ACCEPTED}")
    hint = "did you mean digits? " if difflib.get_close_matches(spec.lower(), ["digits"], cutoff=0.5) else ""
    raise InputError(f"unknown data {spec[:200]!r}: {hint}{ACCEPTED}")


def from_arrays(arrays: Mapping[str, Array], name: str, where: str, shift: bool = True, flip: bool = False) -> Images:
    """Images of x_train, y_train and, if given, x_valid, y_valid, x_test, y_test; errors begin with `where`."""
    _check_forms({key: (array.shape, array.dtype) for key, array in arrays.items()}, where)
    labels = np.unique(arrays["y_train"])
    if len(labels) < 2:
        raise InputError(f"{where}: y_train has one class only ({labels[0]}): give images of at least two classes")
    parts: dict[str, Array] = {}
    for x, y in ((f"x_{part}", f"y_{part}") for part in PARTS if f"x_{part}" in arrays):
        if len(unseen := np.setdiff1d(arrays[y], labels)):
            raise InputError(f"{where}: {y} has label {unseen[0]}, which y_train has not: remove it or train on some")
        parts |= {x: _pixels(arrays[x], f"{where}: {x}"), y: np.searchsorted(labels, arrays[y]).astype(np.int64)}
    if "x_test" not in parts:
        parts |= _set_aside(parts["x_train"], parts["y_train"], where)
    mean, std = _statistics(parts["x_train"])
    return Images(name, **parts, classes=tuple(map(str, labels)), mean=mean, std=std, shift=shift, flip=flip)


def search_parts(images: Images, seed: int) -> tuple[Part, Part]:
    """The part that trains w and the part that trains A: x_train and x_valid, or two seeded halves of x_train."""
    x, y = images.x_train, images.y_train
    if images.x_valid is not None and images.y_valid is not None:
        return (x, y), (images.x_valid, images.y_valid)
    w, A = split(y, 2, seed)
    if not len(A):
        raise InputError(f"{images.name}: one image a class cannot be halved: give more, or x_valid and y_valid")
    return (x[w], y[w]), (x[A], y[A])


def split(y: Array, parts: int, seed: int) -> list[Array]:
    """Deal the indices of y into parts of equal class shares (to within one); a class of one goes to the first part."""
    # RandomState: its numbers are frozen for all versions of numpy, so a split means the same images everywhere
    random = np.random.RandomState(stable_seed(seed, "split") % 2**32).random_sample(len(y))
    part = np.empty(len(y), dtype=np.int64)
    part[np.lexsort((random, y))] = np.arange(len(y)) % parts
    _, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
    part[counts[inverse] == 1] = 0
    return [np.flatnonzero(part == p) for p in range(parts)]


def stable_seed(seed: int, name: str, number: int = 0) -> int:
    """A 63-bit seed for the number-th use of randomness called `name`: the same in every process, unlike hash()."""
    digest = hashlib.sha256(f"{seed}/{name}/{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _set_aside(x: Array, y: Array, where: str) -> dict[str, Array]:
    """A fixed, stratified fifth becomes the test part: it must not depend on the seed of a run."""
    test = split(y, 5, seed=0)[-1]
    if not len(test):
        raise InputError(f"{where}: too few images to set a fifth aside for testing: give more, or x_test and y_test")
    train = np.setdiff1d(np.arange(len(y)), test)
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


def _statistics(x: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel; a constant channel gets 1, so that it can be divided by."""
    unit = 255.0 if x.dtype == np.uint8 else 1.0
    mean = x.mean(axis=(0, 1, 2), dtype=np.float64)
    chunks = np.array_split(x, math.ceil(len(x) / 256))  # x.std() would hold all of x in float64
    std = np.sqrt(sum(np.square(chunk - mean).sum(axis=(0, 1, 2)) for chunk in chunks) / x[..., 0].size)
    std = np.where(std > np.maximum(1e-6 * np.abs(mean), 1e-30), std, unit)  # else constant up to float32's rounding
    return tuple((mean / unit).tolist()), tuple((std / unit).tolist())


def _check_forms(forms: Mapping[str, Form], where: str) -> None:
    """Everything that shapes and dtypes alone can tell, so that headers are judged before any array is read."""
    for x, y in ((f"x_{part}", f"y_{part}") for part in PARTS):
        if x not in forms and y not in forms and x != "x_train":
            continue
        if missing := [name for name in (x, y) if name not in forms]:
            found = ", ".join(sorted(forms)[:6]) or "no arrays"
            raise InputError(f"{where}: no {missing[0]} (found: {found}): store both {x} and {y} with numpy.savez")
        _check_form(forms[x], (3, 4), "f", "(N, H, W) or (N, H, W, C), uint8 or float", f"{where}: {x}")
        _check_form(forms[y], (1,), "iu", "(N,), integer", f"{where}: {y}")
        ((images, *sides), dtype), ((labels,), _), ((_, *like), dtype_train) = forms[x], forms[y], forms["x_train"]
        if images != labels:
            raise InputError(f"{where}: {images} images in {x} but {labels} labels in {y}: give one label an image")
        if min(sides[:2]) < SMALLEST_SIDE:
            raise InputError(f"{where}: {x} is {forms[x][0]}: H and W of (N, H, W, C) must be at least {SMALLEST_SIDE}")
        if [*sides, 1][:3] != [*like, 1][:3] or dtype.kind != dtype_train.kind:
            raise InputError(f"{where}: {x} and x_train differ in image shape or in uint8 / float: make them alike")


def _check_form(form: Form, ndims: tuple[int, ...], kinds: str, wanted: str, where: str) -> None:
    shape, dtype = form
    if dtype.hasobject:
        raise InputError(f"{where} is an object array (rows of different sizes?): store one plain array, {wanted}")
    if dtype.kind not in kinds and dtype != np.uint8:
        raise InputError(f"{where} has dtype {dtype}: convert it to {wanted}")
    if len(shape) not in ndims:
        raise InputError(f"{where} has shape {shape}: reshape it to {wanted}")
    if math.prod(shape) == 0:
        raise InputError(f"{where} is empty (shape {shape}): give at least one image")


def _pixels(x: Array, where: str) -> Array:
    """x as (N, H, W, C), uint8 or finite float32."""
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise InputError(f"{where} has NaN or infinite pixels (in float32): remove or replace them")
    return np.ascontiguousarray(x if x.ndim == 4 else x[..., None])


def _digits() -> Images:
    """The 1797 hand-written digits that scikit-learn brings along: 8 x 8 pixels of 0 .. 16."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = np.rint(x * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
    return from_arrays({"x_train": x, "y_train": y}, name="digits", where="digits")


def _npz(path: Path) -> Images:
    try:
        arrays = _stored_arrays(path)
    except InputError:
        raise
    except Exception as error:  # damaged zips and headers raise nearly every kind
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120] if path.stat().st_size else "it is empty"
        raise InputError(f"{path}: not a readable npz file ({reason}): write it again with numpy.savez") from error
    # no flip: a mirrored image of unknown kind may be of another class
    return from_arrays(arrays, re.sub(r"[^A-Za-z0-9_]+", "-", path.stem)[:40].strip("-") or "npz", str(path))


def _stored_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an npz file, never unpickled, and not read before all headers are found sound."""
    with zipfile.ZipFile(path) as archive:
        forms = {name[:-4]: _header(archive, name) for name in archive.namelist() if name.endswith(".npy")}
    _check_forms(forms, str(path))
    known = [name for name in forms if re.fullmatch(f"[xy]_({'|'.join(PARTS)})", name)]
    for name in known:
        claimed = math.prod(forms[name][0]) * forms[name][1].itemsize
        if claimed > min(LARGEST_ARRAY, DEFLATE_RATIO * path.stat().st_size):
            raise InputError(f"{path}: {name} claims {claimed} bytes, above 16 GB or what the file can hold: fix it")
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in known}


def _header(archive: zipfile.ZipFile, name: str) -> Form:
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    return shape, dtype


def _cifar10(folder: Path) -> Images:
    """The binary version of CIFAR-10: records of a label byte and the red, green and blue planes of 32 x 32 bytes."""
    if (inner := folder / "cifar-10-batches-bin").is_dir():
        folder = inner
    for file in CIFAR_FILES:
        if not (folder / file).is_file():
            raise InputError(f"{folder}: no file {file}: give the {inner.name} folder of CIFAR-10's binary version")
    *train, test = (_cifar10_records(folder / file) for file in CIFAR_FILES[:-1])
    classes = tuple((folder / CIFAR_FILES[-1]).read_text(encoding="utf-8", errors="replace").split())
    if len(classes) != 10:
        raise InputError(f"{folder / CIFAR_FILES[-1]}: {len(classes)} class names, not 10: extract the archive again")
    x, y = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    return Images("cifar10", x, y, *test, classes, *_statistics(x), shift=True, flip=True)


def _cifar10_records(path: Path) -> Part:
    stored = np.fromfile(path, dtype=np.uint8)
    if not stored.size or stored.size % 3073:
        raise InputError(f"{path}: {stored.size} bytes are not records of 3073: extract the archive again")
    y, planes = stored.reshape(-1, 3073)[:, 0].astype(np.int64), stored.reshape(-1, 3073)[:, 1:]
    if y.max() > 9:
        raise InputError(f"{path}: label {y.max()} is above 9, so this is not CIFAR-10 or damaged: extract it again")
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), y
