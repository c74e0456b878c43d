from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxnas.common.errors import InputError
from proxnas.common.seeds import stable_seed
from proxnas.domains.images.data import images
from proxnas.domains.images.data.arrays import held_out_fifth
from proxnas.domains.images.data.images import Images, LoadOptions, from_arrays, load, split
from proxnas.domains.images.data.pixels import averaged
from proxnas.domains.images.parts import search_parts
from support.refusal import refused

Arrays = dict[str, Any]


def good(n: int = 20, k: int = 2) -> Arrays:
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8),
        "y_train": np.arange(n) % k,
    }


def with_test(**changes: Any) -> Arrays:
    arrays = good()
    return arrays | {"x_test": arrays["x_train"], "y_test": arrays["y_train"]} | changes


def without(name: str) -> Arrays:
    return {key: value for key, value in with_test().items() if key != name}


def ragged() -> Any:
    return np.array([np.zeros((8, 8)), np.zeros((9, 9))] * 10, dtype=object)


# arrays -> words the one line must have
BAD_ARRAYS: dict[str, tuple[Arrays, list[str]]] = {
    "no arrays": ({}, ["x_train", "no arrays"]),
    "other names": ({"train_images": good()["x_train"]}, ["x_train", "train_images"]),
    "no x_train": (without("x_train"), ["no x_train"]),
    "no y_train": (without("y_train"), ["no y_train"]),
    "x_test alone": (without("y_test"), ["no y_test", "x_test"]),
    "y_test alone": (without("x_test"), ["no x_test", "y_test"]),
    "x_valid alone": (good() | {"x_valid": good()["x_train"]}, ["no y_valid"]),
    "object images": (good() | {"x_train": ragged()}, ["x_train", "object"]),
    "object labels": (
        good() | {"y_train": np.array(["a", None] * 10, dtype=object)},
        ["y_train", "object"],
    ),
    "fewer labels": (good() | {"y_train": np.arange(19) % 2}, ["20 images", "19 labels"]),
    "flat images": (
        good() | {"x_train": np.zeros((20, 64), np.uint8)},
        ["x_train", "(20, 64)", "reshape"],
    ),
    "five axes": (
        good() | {"x_train": np.zeros((20, 8, 8, 3, 1), np.uint8)},
        ["x_train", "reshape"],
    ),
    "one-hot labels": (good() | {"y_train": np.eye(20, dtype=int)}, ["y_train", "(20, 20)"]),
    "scalar labels": (good() | {"y_train": np.array(3)}, ["y_train", "shape ()"]),
    "int64 images": (
        good() | {"x_train": np.zeros((20, 8, 8), int)},
        ["x_train", "int64", "uint8"],
    ),
    "uint16 images": (good() | {"x_train": np.zeros((20, 8, 8), np.uint16)}, ["x_train", "uint16"]),
    "complex images": (
        good() | {"x_train": np.zeros((20, 8, 8), complex)},
        ["x_train", "complex128"],
    ),
    "float labels": (good() | {"y_train": np.arange(20) % 2.0}, ["y_train", "float64", "integer"]),
    "bool labels": (good() | {"y_train": np.arange(20) % 2 == 0}, ["y_train", "bool"]),
    "text labels": (good() | {"y_train": np.array(["a", "b"] * 10)}, ["y_train", "<U1"]),
    "NaN": (good() | {"x_train": np.full((20, 8, 8), np.nan)}, ["x_train", "NaN"]),
    "infinite": (
        good() | {"x_train": np.full((20, 8, 8), -np.inf, np.float32)},
        ["x_train", "infinite"],
    ),
    "beyond float32": (good() | {"x_train": np.full((20, 8, 8), 1e300)}, ["x_train", "infinite"]),
    "NaN in test": (
        {
            "x_train": np.zeros((20, 8, 8), np.float32),
            "y_train": np.arange(20) % 2,
            "x_test": np.full((2, 8, 8), np.nan, np.float32),
            "y_test": np.arange(2),
        },
        ["x_test", "NaN"],
    ),
    "zero images": (
        {"x_train": np.zeros((0, 8, 8), np.uint8), "y_train": np.zeros(0, int)},
        ["x_train", "empty"],
    ),
    "zero channels": (
        good() | {"x_train": np.zeros((20, 8, 8, 0), np.uint8)},
        ["x_train", "empty"],
    ),
    "one class": (good() | {"y_train": np.full(20, 7)}, ["y_train", "one class", "7"]),
    "unseen in test": (with_test(y_test=np.full(20, 5)), ["y_test", "label 5"]),
    "unseen in valid": (
        with_test(x_valid=good()["x_train"], y_valid=np.full(20, -1)),
        ["y_valid", "label -1"],
    ),
    "other image size": (with_test(x_test=np.zeros((20, 9, 8, 3), np.uint8)), ["x_test", "differ"]),
    "other channels": (with_test(x_test=np.zeros((20, 8, 8), np.uint8)), ["x_test", "differ"]),
    "other dtype": (with_test(x_test=np.zeros((20, 8, 8, 3))), ["x_test", "differ"]),
    "tiny": (good() | {"x_train": np.zeros((20, 3, 8), np.uint8)}, ["x_train", "at least 4"]),
    "channels first": (
        good() | {"x_train": np.zeros((20, 3, 8, 8), np.uint8)},
        ["x_train", "(N, H, W, C)", "x.transpose(0, 2, 3, 1)"],
    ),
    "nothing left to test": (good(2), ["x_test"]),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_refused_by_name(case: str, tmp_path: Path) -> None:
    arrays, words = BAD_ARRAYS[case]
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    refused(path, str(path), *words)


def good_bytes() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **with_test())
    return buffer.getvalue()


def claiming(shape: tuple[int, ...]) -> bytes:
    """An npz of a few hundred bytes whose header claims `shape`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, claimed in (("x_train", shape), ("y_train", shape[:1])):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"descr": "|u1", "fortran_order": False, "shape": claimed}
            )
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(100))
    return buffer.getvalue()


def plain_npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


BAD_FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "is empty"),
    "junk": (lambda: b"not a zip file at all" * 50, "not a readable npz"),
    "truncated": (lambda: good_bytes()[:-200], "not a readable npz"),
    "damaged inside": (
        lambda: good_bytes()[:300] + bytes(50) + good_bytes()[350:],
        "not a readable npz",
    ),
    "an npy file": (plain_npy, "not a readable npz"),
    "beyond 16 GB": (lambda: claiming((10**9, 32, 32, 3)), "its arrays claim 3073000000000 bytes"),
    "beyond what the file can hold": (
        lambda: claiming((30_000, 32, 32, 3)),
        "its arrays claim 92190000 bytes",
    ),
    "short of data": (lambda: claiming((10, 8, 8)), "not a readable npz"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused_by_name(case: str, tmp_path: Path) -> None:
    content, words = BAD_FILES[case]
    path = tmp_path / "bad.npz"
    path.write_bytes(content())
    refused(path, str(path), words)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_read_or_refused_but_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(good_bytes()[:])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "fuzz.npz"
    path.write_bytes(content)
    try:
        load(str(path))
    except InputError as error:
        assert "\n" not in str(error)


def test_unknown_data(tmp_path: Path) -> None:
    refused("digist", "did you mean digits", ".npz", "CIFAR folder", "hf:NAME")
    refused("", "digits")
    refused("bad\0name", "unknown data")
    refused("x" * 5000, "unknown data")
    refused(tmp_path / "missing.npz", "no such file", "missing.npz")
    refused(tmp_path / "missing", "no such file")
    refused(tmp_path, str(tmp_path), "neither CIFAR nor images in class folders")
    text = tmp_path / "images.txt"
    text.write_text("hello")
    refused(text, "images.txt", "not a kind of data")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    refused("hf:cifar10", "hf:cifar10: needs the package datasets: pip install 'proxnas[hub]'")


def test_digits() -> None:
    digits = load("digits")
    assert (digits.name, digits.shape, digits.num_classes) == ("digits", (1, 8, 8), 10)
    assert digits.x_train.dtype == np.uint8 and digits.y_train.dtype == np.int64
    assert (digits.x_train.min(), digits.x_train.max()) == (0, 255)
    assert len(digits.y_train) + len(digits.y_test) == 1797
    assert abs(len(digits.y_test) / 1797 - 0.2) < 0.001
    assert (digits.shift, digits.flip, digits.x_valid) == (True, False, None)
    np.testing.assert_allclose(digits.mean, (digits.x_train / 255).mean(), rtol=1e-12)
    np.testing.assert_allclose(digits.std, (digits.x_train / 255).std(), rtol=1e-12)


def test_arrays_are_made_smaller_by_the_mean_over_areas() -> None:
    """Each new pixel is the integral over its area, here taken from images enlarged to a common
    multiple."""
    x = np.random.default_rng(0).integers(0, 256, (5, 12, 9, 2)).astype(np.float32)
    fine = x[:, 1:10].repeat(4, axis=1).repeat(4, axis=2)  # the middle square, 36 x 36
    for side in (9, 6, 4):
        expected = fine.reshape(5, side, 36 // side, side, 36 // side, 2).mean((2, 4))
        np.testing.assert_allclose(averaged(x, side), expected, rtol=1e-5)
    bytes_ = x.astype(np.uint8)
    assert averaged(bytes_, 4).dtype == np.uint8
    np.testing.assert_allclose(averaged(bytes_, 4), averaged(x, 4), atol=0.51)
    small = load("digits", LoadOptions(image_size=4))
    whole = load("digits")
    assert small.shape == (1, 4, 4) and small.y_test.tolist() == whole.y_test.tolist()
    np.testing.assert_allclose(small.mean, whole.mean, atol=1e-3)
    assert small.std < whole.std and small.fingerprint == whole.fingerprint


def test_arrays_are_not_enlarged(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **good())
    for spec in ("digits", str(path)):
        assert load(spec, LoadOptions(image_size=8)).shape[1:] == (8, 8)
        with pytest.raises(
            InputError,
            match=r"image_size 16: .* is stored as 8 x 8 pixels: give at most 8, or auto",
        ):
            load(spec, LoadOptions(image_size=16))


@pytest.mark.parametrize("size", [-1, 1, 3, 4097])
def test_bad_image_sizes_name_the_flag(size: int) -> None:
    with pytest.raises(
        InputError, match=f"image_size {size}: give a side of 4 to 4096 pixels, or auto"
    ):
        LoadOptions(image_size=size)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **good())
    path.chmod(0)
    refused(path, "a.npz", "Permission denied")


def test_npz_with_all_parts(tmp_path: Path) -> None:
    path = tmp_path / "My photos (v2).npz"
    arrays = with_test(x_valid=good()["x_train"][:4], y_valid=good()["y_train"][:4], extra=ragged())
    np.savez(path, **arrays)
    read = load(str(path))
    assert (read.name, read.shape, read.classes) == ("My-photos-v2", (3, 8, 8), ("0", "1"))
    assert (read.shift, read.flip) == (True, False)
    np.testing.assert_array_equal(read.x_train, arrays["x_train"])
    np.testing.assert_array_equal(read.y_test, arrays["y_test"])
    (x_w, _), (x_A, y_A) = search_parts(read, seed=3)
    assert x_w is read.x_train and x_A is read.x_valid and y_A is read.y_valid


def test_blank_images_that_compress_extremely_well_are_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "blank.npz"
    np.savez_compressed(
        path, x_train=np.zeros((3000, 32, 32, 3), np.uint8), y_train=np.arange(3000) % 2
    )
    assert load(str(path)).shape == (3, 32, 32)


def test_labels_are_reindexed_in_increasing_order() -> None:
    arrays = with_test(
        y_train=np.array([7, -2, 1000, 7] * 5, np.int16), y_test=np.array([1000, -2] * 10)
    )
    read = from_arrays(arrays, "a", "a")
    assert read.classes == ("-2", "7", "1000")
    assert read.y_train[:4].tolist() == [1, 0, 2, 1]
    assert read.y_test[:2].tolist() == [2, 0]


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4"])
def test_grey_floats_become_native_float32(dtype: str) -> None:
    x = np.linspace(-3, 5, 20 * 64).reshape(20, 8, 8).astype(dtype)
    read = from_arrays({"x_train": x, "y_train": np.arange(20) % 2}, "a", "a")
    assert read.x_train.dtype == np.dtype("float32") and read.shape == (1, 8, 8)
    np.testing.assert_allclose(read.mean, read.x_train.mean(dtype=float))
    np.testing.assert_allclose(read.std, read.x_train.std(dtype=float))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_a_constant_channel_can_be_divided_by(value: float) -> None:
    x = np.zeros((20, 8, 8, 2), np.float32)
    x[..., 0], x[:, :4, :, 1] = value, 1e-6
    read = from_arrays({"x_train": x, "y_train": np.arange(20) % 2}, "a", "a")
    assert read.std[0] == 1.0
    np.testing.assert_allclose(read.std[1], 5e-7, rtol=1e-5)


@given(st.lists(st.integers(-3, 6), max_size=60), st.integers(1, 6), st.integers(0, 2**70))
def test_split_is_disjoint_complete_and_stratified(
    labels: list[int], parts: int, seed: int
) -> None:
    y = np.array(labels, dtype=np.int64)
    dealt = split(y, parts, seed)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(y)))
    for label in set(labels):
        counts = [int((y[part] == label).sum()) for part in dealt]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) > 1 or counts[0] == 1
        assert sum(counts) < parts or min(counts) >= 1


def test_split_follows_its_seed() -> None:
    y = np.arange(200) % 4
    first, again, other = (split(y, 2, seed)[0].tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_the_test_part_is_fixed_and_keeps_every_class_in_train() -> None:
    y = np.concatenate([np.arange(100) % 3, [3, 4, 4, 5]])
    x = np.zeros((len(y), 8, 8), np.uint8)
    x[:, 0, 0] = np.arange(len(y))
    read = from_arrays({"x_train": x, "y_train": y}, "a", "a")
    assert set(read.y_train) == set(range(6))
    # frozen: a published test accuracy must always be on the same images
    assert read.x_test[:5, 0, 0, 0].tolist() == [1, 3, 13, 15, 24]
    halves = [search_parts(read, seed) for seed in (0, 1)]
    ids = [[sorted(part[0][:, 0, 0, 0].tolist()) for part in pair] for pair in halves]
    assert ids[0] != ids[1]
    for w, A in ids:
        assert sorted(w + A + read.x_test[:, 0, 0, 0].tolist()) == list(range(len(y)))
    for (_, y_w), _ in halves:
        assert set(y_w) == set(range(6))


def test_one_image_a_class_cannot_be_halved() -> None:
    x, y = np.zeros((3, 8, 8, 1), np.uint8), np.arange(3)
    lone = Images("lone", x, y, x, y, ("0", "1", "2"), (0.0,), (1.0,), True, False)
    with pytest.raises(InputError, match="give more, or a valid part"):
        search_parts(lone, 0)


def test_stable_seed_is_the_same_in_every_process() -> None:
    assert stable_seed(0, "split") == 590571038515690228
    assert len({stable_seed(s, n, i) for s in range(5) for n in "ab" for i in range(5)}) == 50
    assert 0 <= stable_seed(-1, "x") < 2**63


def test_images_do_not_need_torch() -> None:
    code = (
        "import sys, proxnas.domains.images.data.images; sys.exit('torch' in sys.modules or"
        " 'sklearn' in sys.modules)"
    )
    source = Path(images.__file__).parents[4]
    assert subprocess.run([sys.executable, "-c", code], cwd=source, check=False).returncode == 0


@given(st.lists(st.integers(0, 6), min_size=10, max_size=60))
def test_every_class_of_two_images_has_one_in_the_test_part(labels: list[int]) -> None:
    """And where all had one before, the test part is the one that it always was."""
    y = np.array(labels)
    test, before = held_out_fifth(y), split(y, 5, 0)[-1]
    several = {label for label in labels if labels.count(label) > 1}
    assert several <= set(y[test].tolist())
    assert set(y.tolist()) == set(np.delete(y, test).tolist())
    if several <= set(y[before].tolist()):
        assert test.tolist() == before.tolist()


def test_classes_without_a_test_image_are_named(capsys: Any) -> None:
    y = np.array([0] * 20 + [1] * 20 + [2, 3, 3])
    read = from_arrays({"x_train": np.zeros((43, 8, 8), np.uint8), "y_train": y}, "a", "rare.npz")
    assert set(read.y_test.tolist()) == {0, 1, 3}
    (line,) = read.warnings
    assert line.startswith("rare.npz: no test image of 1 of 4 classes (2): ")
    assert capsys.readouterr().err == f"proxnas: {line}\n"
